"""class_of_100.py CSV [STUDENTS]: a made-up class (students.py), graded twice: as it is; and again in other company,
the hostile ones by themselves and the honest ones by themselves.  A line of CSV with the seconds of the first, and
whether everybody has the same marks each time and no more than they deserve.  The line of this machine is replaced.
A student is printed as soon as graded.  Needs `make exercises-built`."""
import csv
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from helpers import ROOT
from students import EXERCISES, HOSTILE, MISTAKES, TOOLS, tool_words, write_class

from source import parts_of


def graded(folder, out):
    begin = time.monotonic()
    subprocess.run([sys.executable, ROOT / "common/products/course/grade.py", "--submissions", folder, "--out", out,
                    *tool_words(TOOLS)], check=True)
    students = json.loads((out / "grades.json").read_text(encoding="utf-8"))["students"]
    return {who: {x: y["marks"] for x, y in one["exercises"].items()} for who, one in students.items()}, \
        round(time.monotonic() - begin)


def undeserved(marks):
    """Who has other marks than all for what is right, none for mischief, less for a mistake.  What includes a
    student's file that is wrong may be wrong too."""
    for who, its in marks.items():
        name = who.rsplit("_", 1)[0]
        spoiled = MISTAKES[name][0] if name in MISTAKES else "online_step" if name in HOSTILE else None
        for x, y in its.items():
            points, suffers = EXERCISES[x].points, spoiled and f"{spoiled}.c" in parts_of(EXERCISES[x], lambda _: b"")
            right = y == 0 if x == spoiled and name in HOSTILE else y < points if x == spoiled else y == points or suffers
            if not right:
                yield f"{who}: {x} {y} of {points}"


def write_lines(path, columns, lines):
    """Machine, these columns, date and commit; the lines of this machine are replaced."""
    def said(*words):
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    gpu = said("sh", "-c", "nvidia-smi --query-gpu=name --format=csv,noheader")
    model = next((x.split(": ")[1] for x in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines()
                  if x.startswith("model name")), "?")
    machine = f"{model}; {len(os.sched_getaffinity(0))} cores; {gpu or 'no GPU'}"
    old = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))[1:] if path.exists() else []
    ends = datetime.date.today(), said("git", "rev-parse", "--short=10", "HEAD") or "?"
    beside = path.with_suffix(".new")
    with open(beside, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([
            ["machine", *columns, "date", "commit"], *(x for x in old if x[0] != machine), *([machine, *x, *ends] for x in lines)])
    beside.rename(path)


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        write_class(place / "class", int(sys.argv[2]) if len(sys.argv) > 2 else 100)
        first, seconds = graded(place / "class", place / "first")
        print(f"{seconds} seconds; now in other company", flush=True)
        hostile = [x for x in first if x.rsplit("_", 1)[0] in HOSTILE]
        (place / "apart").mkdir()
        for who in hostile: (place / "class" / who).rename(place / "apart" / who)
        second = {x: y for folder in ("apart", "class") for x, y in graded(place / folder, place / f"{folder}.out")[0].items()}
    wrong, changed = sorted(undeserved(first)), [x for x in first if first[x] != second[x]]
    print("\n".join(wrong))
    print("other marks the second time:", [f"{who}: {x} {first[who][x]} and {second[who][x]}" for who in changed
                                           for x in first[who] if first[who][x] != second[who][x]])
    write_lines(pathlib.Path(sys.argv[1]), ["students", "hostile", "files", "seconds", "other marks again", "undeserved marks"], [
        [len(first), len(hostile), sum(len(x) for x in first.values()), seconds, len(changed), len(wrong)]])
    return bool(wrong or changed)


if __name__ == "__main__":
    sys.exit(main())
