"""marks.py: what a student has for an exercise, and the files with the marks of a class."""
import hashlib
import json
import math
import pathlib

from forms import fail
from submissions import printable


class Mark:
    """One exercise of one student; why in a line, and the lines behind it."""

    def __init__(self, exercise, marks, why, details=(), **more):
        self.exercise, self.marks, self.why = exercise, marks, printable(why)
        self.details = [printable(x) for x in details]
        self.record = {"marks": marks, "points": exercise.points, "why": self.why,
                       **(more or ({"timed": None} if exercise.whole_file else {"failing_families": []}))}

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


def total_of(marks, hours, course):
    """What a student has in all, after the late days.  Every total that anybody sees is this one."""
    total = round(sum(m.marks for m in marks), 1)
    return math.floor(total * late_share(hours, course) * 10 + 1e-9) / 10 if hours else total


def late_words(hours, course):
    return f"{hours:g} hours late: {late_share(hours, course):.0%} of all marks count" if hours else ""


def alias(student, course):
    """Under which name a student is on the board, unless names are shown."""
    return hashlib.sha256((course.get("secret", "") + "/" + student).encode()).hexdigest()[:6]


def gradescope(marks, total, points, late):
    """One student in Gradescope's form.  The score is the total, not the sum of the tests'."""
    return {"score": total, "output": f"{total:g} of {points} points" + (f" ({late})" if late else ""),
            "visibility": "visible", "stdout_visibility": "hidden", "tests": [
                {"name": f"{m.exercise.stage}/{m.exercise.name}: {m.exercise.title}",
                 "number": f"{m.exercise.number}.{i}", "score": m.marks,
                 "max_score": m.exercise.points,
                 "status": "passed" if m.full else "failed", "output": m.words,
                 "visibility": "visible"} for i, m in enumerate(marks, 1)]}


def write_class(out, table, course, hours, file, **more):
    """Writes and returns grades.json or projects.json, and writes for each student feedback and
    Gradescope's file."""
    suffix, scope = ("", "results") if file == "grades" else (f"-{file}", file)
    points = sum(m.exercise.points for m in next(iter(table.values())))
    grades = {"points": points, **more, "students": {}}
    for student, marks in table.items():
        its = hours.get(student, 0)
        total, late = total_of(marks, its, course), late_words(its, course)
        marks[0].details += [late] * bool(late)
        if course and not suffix:
            marks[0].details.append(f"on the board you are {alias(student, course)}")
        grades["students"][student] = {"marks": total, "alias": alias(student, course), "late_hours": its,
                                       "exercises": {m.exercise.name: m.record for m in marks}}
        write_text(out / "feedback" / f"{student}{suffix}.txt", feedback(student, marks, total, points))
        write_json(out / "gradescope" / student / f"{scope}.json", gradescope(marks, total, points, late))
    write_json(out / f"{file}.json", grades)
    return grades
