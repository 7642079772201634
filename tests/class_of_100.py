"""class_of_100.py CSV [STUDENTS]: a made-up class (students.py), graded three times: as it is; again; and the honest
ones alone, in another order.  A line of CSV with the seconds, and whether everybody has the same marks each
time and no more than they deserve."""
import csv
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from helpers import ROOT
from students import EXERCISES, HOSTILE, MISTAKES, TOOLS, tool_words, write_class


def graded(folder, out):
    begin = time.monotonic()
    subprocess.run([sys.executable, ROOT / "common/products/course/grade.py", "--submissions", folder, "--out", out,
                    *tool_words(TOOLS)], check=True, stdout=subprocess.DEVNULL)
    students = json.loads((out / "grades.json").read_text(encoding="utf-8"))["students"]
    return {who: {x: y["marks"] for x, y in one["exercises"].items()} for who, one in students.items()}, \
        round(time.monotonic() - begin)


def undeserved(marks):
    """Who has other marks than all for what is right, none for mischief, less for a mistake."""
    for who, its in marks.items():
        name = who.rsplit("_", 1)[0]
        spoiled = MISTAKES[name][0] if name in MISTAKES else "online_step" if name in HOSTILE else None
        for x, y in its.items():
            points = EXERCISES[x].points
            right = y == points if x != spoiled else y == 0 if name in HOSTILE else y < points
            if not right:
                yield f"{who}: {x} {y} of {points}"


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        write_class(place / "class", int(sys.argv[2]) if len(sys.argv) > 2 else 100)
        first, seconds = graded(place / "class", place / "first")
        second, _ = graded(place / "class", place / "second")
        (place / "honest").mkdir()
        for who in (x for x in first if x.rsplit("_", 1)[0] not in HOSTILE):
            shutil.copytree(place / "class" / who, place / "honest" / who)
        alone, _ = graded(place / "honest", place / "alone")
    wrong = sorted(set(undeserved(first)))
    print("\n".join(wrong))
    changed = [x for x in first if first[x] != second[x] or first[x] != alone.get(x, first[x])]
    print("other marks the second time:", changed)
    model = next((x.split(": ")[1] for x in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines()
                  if x.startswith("model name")), "?")
    new = not pathlib.Path(sys.argv[1]).exists()
    with open(sys.argv[1], "a", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        if new:
            table.writerow(["machine", "cores", "students", "hostile", "files", "seconds", "other_marks_again",
                            "undeserved_marks", "date", "commit"])
        table.writerow([model, len(os.sched_getaffinity(0)), len(first), len(first) - len(alone),
                        sum(len(x) for x in first.values()), seconds, len(changed), len(wrong), datetime.date.today(),
                        subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True,
                                       text=True, check=True).stdout.strip()])
    return bool(wrong or changed)


if __name__ == "__main__":
    sys.exit(main())
