"""marks.py: the files with the marks of a class."""
import hashlib
import json
import math
import os
import pathlib
import xml.etree.ElementTree as xml

from submissions import fail


def write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_json(path, value):
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def number(marks):
    return f"{marks:g}"


def feedback(student, marks, total, points):
    """What one student reads."""
    lines = [f"{student}: {number(total)} of {points} points",
             "(what the names of the cases mean: RECIPES in common/verification/cases.h)", ""]
    for m in marks:
        lines.append(f"{m.exercise.stage}/{m.exercise.file.name}: {m.exercise.title}: "
                     f"{number(m.marks)} of {m.exercise.points}")
        lines += ["    " + line for line in m.words.split("\n")] + [""]
    return "\n".join(lines)


def late_hours(path, students):
    """student -> hours, from a table of lines `student,hours`."""
    hours = {}
    if path and not os.access(path, os.R_OK):
        fail(2, f"LATE: '{path}' cannot be read")
    for number_, line in enumerate(pathlib.Path(path).read_text(
            encoding="utf-8").splitlines() if path else [], 1):
        name, _, text = line.rpartition(",")
        if not line.strip() or (number_ == 1 and text.strip() == "hours"):
            continue
        try:
            hours[name.strip()] = float(text)
        except ValueError:
            fail(2, f"LATE: '{path}', line {number_}: '{line}' is not 'student,hours'")
        if not 0 <= hours[name.strip()] < 1e6:
            fail(2, f"LATE: '{path}', line {number_}: {text} is no number of hours")
        if name.strip() not in students:
            fail(2, f"LATE: '{path}', line {number_}: nobody is called '{name.strip()}'")
    return hours


def late_share(hours, course):
    """What is left of the marks: each day begun costs late_per_day, up to late_days."""
    days = math.ceil(hours / 24)
    return 1.0 if not days else 0.0 if days > course.get("late_days", 3) else \
        max(0.0, 1 - days * course.get("late_per_day", 0.1))


def total_of(marks, hours, course):
    """What a student has in all, after the late days.  Every total that anybody sees is this one."""
    total = round(sum(m.marks for m in marks), 1)
    return math.floor(total * late_share(hours, course) * 10 + 1e-9) / 10 if hours else total


def late_words(hours, course):
    return f"{hours:g} hours late: {late_share(hours, course):.0%} of all marks count" if hours else ""


def alias(student, course):
    """Under which name a student is on the board, unless names are shown."""
    return hashlib.sha256((course.get("secret", "") + "/" + student).encode()).hexdigest()[:6]


def gradescope(marks, total, points, late=""):
    """One student in Gradescope's form.  The score is the total, not the sum of the tests'."""
    return {"score": total, "output": f"{number(total)} of {points} points" + (f" ({late})" if late else ""),
            "visibility": "visible", "stdout_visibility": "hidden", "tests": [
                {"name": f"{m.exercise.stage}/{m.exercise.name}: {m.exercise.title}",
                 "number": f"{m.exercise.number}.{i}", "score": m.marks,
                 "max_score": m.exercise.points,
                 "status": "passed" if m.full else "failed", "output": m.words,
                 "visibility": "visible"} for i, m in enumerate(marks, 1)]}


def write_class(out, table, course, hours, file="grades", **more):
    """Writes and returns grades.json or projects.json, and writes for each student feedback and Gradescope's file."""
    suffix, scope = ("", "results") if file == "grades" else (f"-{file}", file)
    points = sum(m.exercise.points for m in next(iter(table.values())))
    grades = {"points": points, **more, "students": {}}
    for student, marks in table.items():
        total = total_of(marks, hours.get(student, 0), course)
        late = late_words(hours.get(student, 0), course)
        if late:
            marks[0].details.append(late)
        if course and not suffix:
            marks[0].details.append(f"on the board you are {alias(student, course)}")
        grades["students"][student] = {
            "marks": total, "alias": alias(student, course), "late_hours": hours.get(student, 0),
            "exercises": {m.exercise.name: m.record for m in marks}}
        write_text(out / "feedback" / f"{student}{suffix}.txt", feedback(student, marks, total, points))
        write_json(out / "gradescope" / student / f"{scope}.json", gradescope(marks, total, points, late))
    write_json(out / f"{file}.json", grades)
    return grades


def write_junit(path, table):
    top = xml.Element("testsuites", name="exercises", **counts(sum(table.values(), [])))
    for student, marks in table.items():
        suite = xml.SubElement(top, "testsuite", name=student, **counts(marks))
        for m in marks:
            case = xml.SubElement(suite, "testcase", classname=student, name=f"{m.exercise.stage}/{m.exercise.name}")
            if not m.full:
                xml.SubElement(case, "failure", message=m.why,
                               type=f"{number(m.marks)} of {m.exercise.points}").text = m.words
    xml.indent(top)
    xml.ElementTree(top).write(path, encoding="utf-8", xml_declaration=True)


def counts(marks):
    return {"tests": str(len(marks)), "errors": "0",
            "failures": str(sum(not m.full for m in marks))}
