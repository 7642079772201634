"""attacks.py: a grader that is killed, and machines that lack something.

    attacks.py [--build build] term|no_room|no_process|no_memory|no_thread|out|quote

Each builds a class of a few students in a folder of its own, runs the grader on it, and says
what is wrong.  Bounded: two students, one exercise, a minute of waiting for anything.
Exit status: 0 as it should be; 1 not; 77 cannot be tried here (and why)."""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADER = ROOT / "common/grader/grade.py"
PATIENCE = 60


def command(place, build, out="out", folder="class"):
    return [sys.executable, "-B", str(GRADER), "--submissions", str(place / folder), "--out",
            str(place / out), "--ex", "online_step", "--build", build, "--cc",
            "cc -std=c11 -D_GNU_SOURCE -O1 -fopenmp", "--cxx",
            "c++ -x c++ -std=c++20 -D_GNU_SOURCE -O1 -fopenmp", "--link", "c++ -fopenmp"]


def students(place, *names, folder="class"):
    subprocess.run([sys.executable, "-B", str(ROOT / "tests/exercises/students.py"),
                    "--exercises", "online_step", "write", str(place / folder), *names],
                   check=True, cwd=ROOT)


def wrong(text):
    print(text)
    sys.exit(1)


def expect(done, status, words, place, out="out"):
    """The grader's exit status, one line with these words, and no results."""
    if done.returncode != status:
        wrong(f"exit status {done.returncode}, not {status}: {done.stdout}{done.stderr}")
    if words not in done.stderr or "Traceback" in done.stderr:
        wrong(f"'{words}' is not in: {done.stderr}")
    if status and (place / out / "grades.json").exists():
        wrong("marks were written")


def below(place):
    """Processes that work in a folder or below it."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve().is_relative_to(place) and \
                    (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass
    return found


def wait_for(what, true):
    begin = time.monotonic()
    while not true():
        if time.monotonic() - begin > PATIENCE:
            wrong(f"{what} did not come in time")
        time.sleep(0.02)


def term(place, build):
    """TERM in the middle of a compilation: nothing stays, no file and no compiler."""
    students(place, "macros_without_end", "never_ends")
    work = place / "tmp"
    work.mkdir()
    with subprocess.Popen(command(place, build), cwd=ROOT, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "TMPDIR": str(work)}) as grader:
        wait_for("a compiler", lambda: any("A_16" in x.read_text(errors="replace") for x in
                                           work.glob("grade.*/*/online_step.c")) and
                 below(work))
        grader.send_signal(signal.SIGTERM)
        try:
            _, said = grader.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            grader.kill()
            wrong("the grader does not end")
    wait_for("the end of all compilers", lambda: not below(work))
    if grader.returncode != 128 + signal.SIGTERM or "Traceback" in said:
        wrong(f"exit status {grader.returncode}: {said}")
    if list(work.iterdir()):
        wrong(f"left behind: {[str(x) for x in work.rglob('*')][:5]}")
    # and what a grader left that was killed for good, the next one removes
    (work / "grade.old").mkdir()
    (work / "grade.old/lock").write_text("")
    shutil.rmtree(place / "class")
    students(place, "does_not_compile")
    done = subprocess.run(command(place, build), cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "TMPDIR": str(work)}, check=False)
    expect(done, 0, "", place)
    if list(work.iterdir()):
        wrong(f"left behind: {[str(x) for x in work.rglob('*')][:5]}")


def no_room(place, build):
    """A full disk, and one that others fill while submissions are compiled."""
    students(place, "knows_everything")
    (place / "small").mkdir()
    script = f'mount -t tmpfs -o size={{}}m none {place}/small || exit 77; TMPDIR={place}/small "$@"'
    for size, words in ((1, "MiB of room left"), (65, "stopped, nobody has a mark")):
        grader = command(place, build)
        if size > 1:  # the room is taken away after the check at the start
            grader = [sys.executable, "-B", "-c", FILLED.format(
                grader=str(GRADER.parent), file=f"{place}/small/filled"), *grader[3:]]
        done = subprocess.run(["unshare", "-m", "sh", "-c", script.format(size), "sh",
                               *grader], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 77 or "unshare: " in done.stderr:
            print(f"no small disk to be had here: {done.stderr.strip()}")
            sys.exit(77)
        expect(done, 3, words, place)


# A grader for which the room ends when the first submission is to be compiled.
FILLED = """
import sys
sys.path.insert(0, '{grader}')
import grade
mark = grade.Grader.mark
def fill(self, exercise, student):
    with open('{file}', 'wb', buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            pass
    return mark(self, exercise, student)
grade.Grader.mark = fill
sys.exit(grade.main())
"""

# A grader whose N-th new process, thread or file fails.
LACKING = """
import errno, os, sys
sys.path.insert(0, '{grader}')
import grade, grader, processes
n = [0]
def failing(real, error, after):
    def call(*a, **b):
        n[0] += 1
        if n[0] > after:
            raise error
        return real(*a, **b)
    return call
kind = '{kind}'
if kind == 'no_process':
    processes.subprocess.Popen = failing(processes.subprocess.Popen,
        BlockingIOError(errno.EAGAIN, 'Resource temporarily unavailable'), {after})
elif kind == 'no_memory':
    grader.contents = failing(grader.contents, MemoryError(), 0)
else:
    import threading
    threading.Thread.start = failing(threading.Thread.start,
        RuntimeError("can't start new thread"), 0)
sys.exit(grade.main())
"""


def lacking(place, build, kind):
    """No process for the first compiler, or for a later one; no memory; no thread."""
    students(place, "knows_everything")
    for after in (3, 8) if kind == "no_process" else (0,):
        done = subprocess.run(
            [sys.executable, "-B", "-c", LACKING.format(grader=str(GRADER.parent), kind=kind,
                                                        after=after),
             *command(place, build)[3:]], cwd=ROOT, capture_output=True, text=True, check=False)
        expect(done, 3, "stopped, nobody has a mark", place)


def out(place, build):
    """A place for results that cannot be one is refused before the work."""
    students(place, "knows_everything")
    (place / "file").write_text("x")
    (place / "full/grades.json").mkdir(parents=True)
    names = ["file", "file/below", "full", "class/out"]
    if os.getuid():  # root may write anywhere
        (place / "locked").mkdir(mode=0o500)
        names.append("locked")
    for name in names:
        done = subprocess.run(command(place, build, name), cwd=ROOT, capture_output=True,
                              text=True, check=False)
        expect(done, 2, "OUT: ", place, name if name != "full" else "class")
        if done.stdout or done.stderr.count("\n") != 1:
            wrong(f"{name}: not one line, before the work: {done.stdout}{done.stderr}")
    done = subprocess.run(command(place, build, folder="nobody's \"class\""), cwd=ROOT,
                          capture_output=True, text=True, check=False)
    expect(done, 2, "SUBMISSIONS: ", place)


def quote(place, build):
    """Quotes and spaces in names are names; a letter that nobody sees is shown."""
    folder = "the teacher's \"class\" $HOME"
    students(place, "does_not_compile", folder=folder)
    (place / folder / "linked").symlink_to(place / folder / "does_not_compile")
    (place / folder / "does_not_compile" / "src").symlink_to("/usr/include")
    (place / folder / "notes.txt").write_text("x")
    for unseen in ("\u200b", "\u202e"):
        shutil.copytree(place / folder / "does_not_compile", place / folder / f"does_not_{unseen}compile",
                        symlinks=True)
    done = subprocess.run(command(place, build, "a 'mark'", folder), cwd=ROOT,
                          capture_output=True, text=True, check=False)
    expect(done, 0, "", place)
    for words in ("linked: the folder is a link", "'src' is a link to a folder",
                  "'notes.txt' is neither"):
        if words not in done.stdout:
            wrong(f"'{words}' is not in: {done.stdout}")
    for name in ("does_not_?compile", "does_not_?compile~"):
        if not (place / f"a 'mark'/feedback/{name}.txt").exists():
            wrong(f"no feedback for {name}: two names that look alike")
    if "the folder is a link" not in (place / "a 'mark'/feedback/linked.txt").read_text():
        wrong("the student is not told that the folder is a link")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attack")
    parser.add_argument("--build", default="build")
    options = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="attacks.")).resolve()
    try:
        if options.attack in ("no_process", "no_memory", "no_thread"):
            lacking(place, options.build, options.attack)
        else:
            {"term": term, "no_room": no_room, "out": out, "quote": quote}[options.attack](
                place, options.build)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
