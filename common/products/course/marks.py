"""marks.py: the files with the marks of a class, and what late days cost.

A mark is a dictionary: marks, points, why (a line), details (lines), failing_families; after the late days
late_hours and counts too."""
import csv
import json
import math
import pathlib
import re

from source import fail


def write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_json(path, value):
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def late_hours(path, students):
    """student -> hours, from a table of lines `student,hours`."""
    hours = {}
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines() if path else []
    except (OSError, UnicodeError):
        fail(f"LATE: '{path}' cannot be read")
    for i, line in enumerate(lines, 1):
        name, _, text = (x.strip() for x in line.rpartition(","))
        if not line.strip() or (i == 1 and text == "hours"):
            continue
        if name not in students or not re.fullmatch(r"\d{1,6}(\.\d*)?", text):
            fail(f"LATE: '{path}', line {i}: '{line}' is not 'student,hours' of somebody who handed in")
        hours[name] = float(text)
    return hours


def after_late_days(marks, hours, course):
    """Adds to each mark what it counts: each day begun costs late_per_day, up to late_days.  Returns the total in
    words."""
    days = math.ceil(hours / 24)
    share = 0.0 if days > course.get("late_days", 3) else max(0.0, 1 - days * course.get("late_per_day", 0.1))
    for mark in marks.values():
        mark |= {"late_hours": hours, "counts": round(mark["marks"] * share, 2)}
    return f"{total_of(marks):g} of {sum(x['points'] for x in marks.values())} points" + (
        f" ({hours:g} hours late: {share:.0%} of all marks count)" if hours else "")


def total_of(marks):
    """What a student has in all.  Every total that anybody sees is this one."""
    return round(sum(x["counts"] for x in marks.values()), 1)


def feedback(head, marks, found):
    """What one student reads."""
    lines = [head,
             "(what the names of the cases mean: RECIPES in common/core/verification/cases.h)", ""]
    for x in found:
        mark = marks[x.name]
        lines += [f"{x.stage}/{x.file.name}: {x.title}: {mark['marks']:g} of {x.points}",
                  *("    " + line for line in [mark["why"], *mark["details"]]), ""]
    return "\n".join(lines)


def cell(text):
    """A spreadsheet would compute what begins with =; and where ; divides cells, what follows one, unless quoted."""
    return ("'" if text[:1] in ("=", "+", "-", "@") else "") + text


def gradebook(out, students, points):
    """Students x exercises (points: of each), after the late days: OUT.canvas.csv, whose columns Canvas imports, and
    OUT.csv for Moodle and for people."""
    canvas = [["Student", "ID", "SIS Login ID", "Section", *points], ["    Points Possible", "", "", "", *points.values()]]
    people = [["Username", *points, "total", "late hours", "comment"]]
    for who, one in sorted(students.items()):
        its = {x: one["exercises"].get(x, {}) for x in points}
        counts = [x.get("counts", 0) for x in its.values()]
        wrong = "; ".join(f"{x}: {y['why']}" for x, y in its.items() if y and y["marks"] < y["points"])
        canvas.append([cell(who), "", cell(who), "", *counts])
        people.append([cell(who), *counts, round(sum(counts), 1), max(x.get("late_hours", 0) for x in its.values()),
                       cell(wrong[:400])])
    for path, rows in ((f"{out}.canvas.csv", canvas), (f"{out}.csv", people)):
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)


def write_class(out, table, found, course, hours, week, **more):
    """Writes grades.json, gradebooks (of the term, and of these exercises: week_WEEK) and feedback for each
    student.  Exercises that were graded into OUT before stay."""
    path = out / "grades.json"
    grades = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"exercises": {}, "students": {}}
    points = {x.name: x.points for x in found}
    grades["exercises"] |= points
    for student, marks in table.items():
        head = after_late_days(marks, hours.get(student, 0), course)
        one = grades["students"].setdefault(student, {"exercises": {}})
        one["exercises"] |= marks
        one["marks"] = total_of(one["exercises"])
        write_text(out / "feedback" / f"{student}.txt", feedback(f"{student}: {head}", marks, found))
    for one in grades["students"].values():  # who is known from another week, and has handed in nothing now
        for x in found:
            one["exercises"].setdefault(x.name, {"marks": 0, "points": x.points, "why": "not handed in", "details": [],
                                                 "failing_families": [], "late_hours": 0, "counts": 0})
    write_json(path, grades | more)
    gradebook(out / "gradebook", grades["students"], grades["exercises"])
    gradebook(out / f"week_{week or 'all'}", grades["students"], points)
