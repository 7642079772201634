"""class_of_100.py CSV [STUDENTS]: a made-up class (students.py), graded twice: as it is; and again in other company,
the hostile ones by themselves and the honest ones by themselves.  A line of CSV with the seconds of the first, and
whether everybody has the same marks each time and no more than they deserve."""
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
                    *tool_words(TOOLS)], check=True, stdout=subprocess.DEVNULL)
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


def machine():
    """The processor, the cores and the GPU, as in times.csv."""
    gpu = subprocess.run("nvidia-smi --query-gpu=name --format=csv,noheader", shell=True, capture_output=True, text=True,
                         check=False).stdout.strip()
    model = next((x.split(": ")[1] for x in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines()
                  if x.startswith("model name")), "?")
    return f"{model}; {len(os.sched_getaffinity(0))} cores; {gpu or 'no GPU'}"


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        write_class(place / "class", int(sys.argv[2]) if len(sys.argv) > 2 else 100)
        first, seconds = graded(place / "class", place / "first")
        hostile = [x for x in first if x.rsplit("_", 1)[0] in HOSTILE]
        (place / "apart").mkdir()
        for who in hostile: (place / "class" / who).rename(place / "apart" / who)
        second = {x: y for folder in ("apart", "class") for x, y in graded(place / folder, place / f"{folder}.out")[0].items()}
    wrong, changed = sorted(undeserved(first)), [x for x in first if first[x] != second[x]]
    print("\n".join(wrong))
    print("other marks the second time:", [f"{who}: {x} {first[who][x]} and {second[who][x]}" for who in changed
                                           for x in first[who] if first[who][x] != second[who][x]])
    new = not pathlib.Path(sys.argv[1]).exists()
    with open(sys.argv[1], "a", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        if new:
            table.writerow(["machine", "students", "hostile", "files", "seconds", "other marks again",
                            "undeserved marks", "date", "commit"])
        table.writerow([machine(), len(first), len(hostile), sum(len(x) for x in first.values()), seconds, len(changed),
                        len(wrong), datetime.date.today(),
                        subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True,
                                       text=True, check=True).stdout.strip()])
    return bool(wrong or changed)


if __name__ == "__main__":
    sys.exit(main())
