"""submissions.py: a folder of submissions: whose files, which exercise, what is in them."""
import errno
import os
import pathlib
import re
import stat

from source import fail

LARGEST = 64 << 10  # bytes of a source file


def printable(text):
    """Without what a terminal, a file name or JSON cannot hold, nobody sees, or turns the direction of the text."""
    return "".join(x if x in "\t\n" or x.isprintable() else "?" for x in text)


class Student:
    """files: exercise name -> paths, the one that counts first; close: exercise name ->
    a file that is nearly called so; notes: what was left out, a line each."""

    def __init__(self):
        self.files, self.close, self.notes = {}, {}, []

    def search(self, folder, names):
        """Finds the files in a folder, the shallow ones first.  Links are not followed.  names: file name -> exercise."""
        for top, folders, inside in os.walk(folder):
            here = pathlib.Path(top)
            links = sorted(x for x in folders if (here / x).is_symlink())
            self.notes += [f"'{here.relative_to(folder) / x}' is a link to a folder: not followed; "
                           "hand in the folder itself" for x in links]
            folders[:] = sorted(set(folders) - {"__MACOSX", *links})
            for file in sorted(inside):
                if file in names:
                    self.files.setdefault(names[file], []).append(here / file)
                letters = re.sub(r"[^a-z]", "", pathlib.Path(file).stem.lower())
                self.close |= {x: file for x in names.values() if file not in names and x.replace("_", "") in letters}


def collect(folder, exercises):
    """student -> Student; and what is no student's, a line each."""
    names = {x.file.name: x.name for x in exercises}
    loose = re.compile(r"(.*[^-_])[-_]+(" + "|".join(map(re.escape, names)) + ")", re.S)
    students, taken, ignored = {}, {}, []

    def student(raw):
        name = re.sub(r"[\t\n]", "?", printable(raw))[:60]
        while taken.setdefault(name, raw) != raw:
            name += "~"
        return students.setdefault(name, Student())

    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            ignored.append(f"'{printable(entry.name)}' is hidden: ignored")
        elif entry.is_dir() and entry.is_symlink():
            student(entry.name).notes.append("the folder is a link: not followed; hand in the folder itself")
        elif entry.is_dir():
            student(entry.name).search(entry, names)
        elif found := loose.fullmatch(entry.name):
            student(found[1]).files.setdefault(names[found[2]], []).append(entry)
        else:
            ignored.append(f"'{printable(entry.name)}' is neither a student's folder nor a "
                           "file STUDENT-EXERCISE.c: ignored")
    if not students:
        fail(f"SUBMISSIONS: nothing in '{folder}' is a student's folder or a file STUDENT-EXERCISE.c")
    return students, ignored


def contents(path):
    """The bytes of a file with the line ends of Linux, and why it cannot count, or "".  A pipe or a device is not
    read, nor more of a file than may be."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        return b"", "is a link: hand in the file itself" if error.errno == errno.ELOOP \
            else f"cannot be read: {error.strerror}"
    with os.fdopen(file, "rb") as opened:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        data = opened.read(LARGEST + 1) if regular else b""
    why = "is no file" if not regular else \
        f"the file is larger than {LARGEST >> 10} KiB" if len(data) > LARGEST else \
        "the file is empty" if not data.strip() else \
        "the file is no plain text (UTF-16? save it as UTF-8)" if b"\0" in data else ""
    return data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n"), why
