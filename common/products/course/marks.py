"""marks.py: what a student has for an exercise, and the files with the marks of a class."""
import csv
import json
import math
import pathlib

from source import fail
from submissions import printable


class Mark:
    """One exercise of one student; why in a line, and the lines behind it."""

    def __init__(self, exercise, marks, why, details=(), **more):
        self.exercise, self.marks, self.why = exercise, marks, printable(why)
        self.details = [printable(x) for x in details]
        self.record = {"marks": marks, "points": exercise.points, "why": self.why,
                       **(more or {"failing_families": []})}

    @property
    def full(self):
        return self.marks == self.exercise.points

    @property
    def words(self):
        """What the student reads."""
        return "\n".join([self.why, *self.details])


def write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_json(path, value):
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def feedback(student, marks, total, points):
    """What one student reads."""
    lines = [f"{student}: {total:g} of {points} points",
             "(what the names of the cases mean: RECIPES in common/core/verification/cases.h)", ""]
    for m in marks:
        lines.append(f"{m.exercise.stage}/{m.exercise.file.name}: {m.exercise.title}: "
                     f"{m.marks:g} of {m.exercise.points}")
        lines += ["    " + line for line in m.words.split("\n")] + [""]
    return "\n".join(lines)


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
        try:
            hours[name] = float(text)
        except ValueError:
            fail(f"LATE: '{path}', line {i}: '{line}' is not 'student,hours'")
        if not 0 <= hours[name] < 1e6:
            fail(f"LATE: '{path}', line {i}: {text} is no number of hours")
        if name not in students:
            fail(f"LATE: '{path}', line {i}: nobody is called '{name}'")
    return hours


def late_share(hours, course):
    """What is left of the marks: each day begun costs late_per_day, up to late_days."""
    days = math.ceil(hours / 24)
    return 0.0 if days > course.get("late_days", 3) else max(0.0, 1 - days * course.get("late_per_day", 0.1))


def counts(mark, hours, course):
    """What an exercise gives after the late days."""
    return round(mark.marks * late_share(hours, course), 2)


def total_of(marks, hours, course):
    """What a student has in all.  Every total that anybody sees is this one."""
    return round(sum(counts(m, hours, course) for m in marks), 1)


def late_words(hours, course):
    return f"{hours:g} hours late: {late_share(hours, course):.0%} of all marks count" if hours else ""


def gradescope(marks, total, points, late):
    """One student in Gradescope's form.  The score is the total, not the sum of the tests'."""
    return {"score": total, "output": f"{total:g} of {points} points" + (f" ({late})" if late else ""),
            "visibility": "visible", "stdout_visibility": "hidden", "tests": [
                {"name": f"{m.exercise.stage}/{m.exercise.name}: {m.exercise.title}",
                 "number": f"{m.exercise.number}.{i}", "score": m.marks,
                 "max_score": m.exercise.points,
                 "status": "passed" if m.full else "failed", "output": m.words,
                 "visibility": "visible"} for i, m in enumerate(marks, 1)]}


def cell(text):
    """A spreadsheet would compute what begins with =; and where ; divides cells, what follows one, unless quoted."""
    return ("'" if text[:1] in ("=", "+", "-", "@") else "") + text


def gradebook(out, students, names, points):
    """Students x exercises, after the late days: OUT.canvas.csv, whose columns Canvas imports, and OUT.csv for
    Moodle and for people."""
    marks = {who: [one["exercises"].get(x, {}).get("counts", 0) for x in names] for who, one in sorted(students.items())}
    with open(f"{out}.canvas.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        table.writerow(["Student", "ID", "SIS Login ID", "Section", *names])
        table.writerow(["    Points Possible", "", "", "", *(points[x] for x in names)])
        table.writerows([cell(who), "", cell(who), "", *its] for who, its in marks.items())
    with open(f"{out}.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        table.writerow(["Username", *names, "total", "late hours", "comment"])
        for who, its in marks.items():
            late = {students[who]["exercises"][x]["late_hours"] for x in names if x in students[who]["exercises"]}
            wrong = [f"{x}: {y['why']}" for x, y in students[who]["exercises"].items()
                     if x in names and y["marks"] < y["points"]]
            table.writerow([cell(who), *its, round(sum(its), 1), max(late, default=0), cell("; ".join(wrong)[:400])])


def write_class(out, table, course, hours, week="", **more):
    """Writes grades.json, gradebooks (of the term, and of these exercises: week_WEEK) and for each student
    feedback and Gradescope's file.  Exercises that were graded into OUT before stay."""
    path = out / "grades.json"
    grades = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"exercises": {}, "students": {}}
    first = [m.exercise for m in next(iter(table.values()))]
    grades["exercises"] |= {x.name: x.points for x in first}
    points = sum(x.points for x in first)
    for student, marks in table.items():
        its = hours.get(student, 0)
        total, late = total_of(marks, its, course), late_words(its, course)
        marks[0].details += [late] * bool(late)
        for m in marks:
            m.record |= {"late_hours": its, "counts": counts(m, its, course)}
        one = grades["students"].setdefault(student, {"marks": 0, "exercises": {}})
        one["exercises"] |= {m.exercise.name: m.record for m in marks}
        one["marks"] = round(sum(x["counts"] for x in one["exercises"].values()), 1)
        write_text(out / "feedback" / f"{student}.txt", feedback(student, marks, total, points))
        write_json(out / "gradescope" / student / "results.json", gradescope(marks, total, points, late))
    write_json(path, grades | more)
    gradebook(out / "gradebook", grades["students"], list(grades["exercises"]), grades["exercises"])
    gradebook(out / f"week_{week or 'all'}", {x: grades["students"][x] for x in table},
              [x.name for x in first], grades["exercises"])
