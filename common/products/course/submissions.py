"""submissions.py: a folder of submissions: whose files, which exercise, what is in them."""
import errno
import os
import pathlib
import re
import stat

from source import fail

LARGEST = 64 << 10      # bytes of a source file
DEEPEST = 8             # folders in a student's folder
# Letters that nobody sees, or that turn the direction of the text: one name could look like another.
UNSEEN = ("\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
          "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff")


def printable(text):
    """Without what a terminal, a file name, JSON or XML cannot hold, and without UNSEEN."""
    return re.sub(rf"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd]|[{UNSEEN}]", "?", text)


class Student:
    """files: exercise name -> paths, the one that counts first; close: exercise name ->
    a file that is nearly called so; notes: what was left out, a line each."""

    def __init__(self):
        self.files, self.close, self.notes = {}, {}, []

    def add(self, names, path):
        """names: file name -> exercise name."""
        if path.name in names:
            self.files.setdefault(names[path.name], []).append(path)
            return
        letters = re.sub(r"[^a-z]", "", path.stem.lower())
        for name in names.values():
            if name.replace("_", "") in letters:
                self.close.setdefault(name, path.name)


def walk(folder, notes):
    """Its files, the shallow ones first.  Links are not followed; what is left out is
    noted."""
    for top, folders, inside in os.walk(folder):
        here = pathlib.Path(top)
        links = [x for x in folders if (here / x).is_symlink()]
        notes += [f"'{here.relative_to(folder) / x}' is a link to a folder: not followed; "
                  "hand in the folder itself" for x in sorted(links)]
        deep = len(here.relative_to(folder).parts) >= DEEPEST
        notes += [f"folders more than {DEEPEST} deep are not searched"] * bool(deep and folders)
        folders[:] = [] if deep else sorted(x for x in folders if x != "__MACOSX" and x not in links)
        yield from (here / name for name in sorted(inside))


def collect(folder, chosen):
    """student -> Student; and what is no student's, a line each."""
    names = {x.file.name: x.name for x in chosen}
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
            continue
        if entry.is_dir() and entry.is_symlink():
            student(entry.name).notes.append(
                "the folder is a link: not followed; hand in the folder itself")
        elif entry.is_dir():
            one = student(entry.name)
            for path in walk(entry, one.notes):
                one.add(names, path)
        elif (found := loose.fullmatch(entry.name)):
            student(found[1]).files.setdefault(names[found[2]], []).append(entry)
        else:
            ignored.append(f"'{printable(entry.name)}' is neither a student's folder nor a "
                           "file STUDENT-EXERCISE.c: ignored")
    return students, ignored


def contents(path):
    """The bytes of a file, or why it has none.  A pipe or a device is not read, nor more
    of a file than may be."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        return b"", "is a link: hand in the file itself" if error.errno == errno.ELOOP \
            else f"cannot be read: {error.strerror}"
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return b"", "is no file"
        data = opened.read(LARGEST + 1)
    if len(data) > LARGEST:
        return data, f"the file is larger than {LARGEST >> 10} KiB"
    if not data.strip():
        return data, "the file is empty"
    if b"\0" in data:
        return data, "the file is no plain text (UTF-16? save it as UTF-8)"
    return data, ""
