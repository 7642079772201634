"""course_test.py: a course from its creation to its board, with six students.

    course_test.py [--build build]

The folders of the course get this build's objects, so that little is compiled again.
Exit status: 0 as it should be; 1 not, with what is wrong."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "common" / "grader"))
from schema import complaints  # noqa: E402
from exercises import exercises  # noqa: E402
from forms import formed, forms_of  # noqa: E402

CHOSEN = ["online_step", "running_mean", "safe_row"]
WRONG = []


def expect(true, text):
    if not true:
        WRONG.append(text)
        print(text, flush=True)


def make(place, *arguments, status=0):
    environment = {x: y for x, y in os.environ.items() if x not in ("BUILD", "MAKEFLAGS", "MAKELEVEL",
                                                                    "MFLAGS")}
    done = subprocess.run(["make", "-s", "BUILD=build", "NO_INSTALL=1", *arguments], cwd=place,
                          capture_output=True, text=True, env=environment, check=False)
    expect(done.returncode == status, f"make {' '.join(arguments)}: {done.returncode}, not "
           f"{status}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout + done.stderr


def with_objects(repository, build, *more):
    """The objects of this build: the sources are the same, and older."""
    for name in ("config", "judge", "obj/common", *more):
        source, target = ROOT / build / name, repository / "build" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            shutil.copy2(source, target)


def clean(text):
    """A solution without the marks of its regions."""
    text = re.sub(r" */\* skeleton\n.*? *solution end \*/\n", "", text, flags=re.S)
    return re.sub(r" */\* solution begin \*/\n", "", text)


def texts(course, form_of=None):
    """name -> this course's solutions; form_of: name -> another form of the whole file."""
    out = {}
    for x in exercises():
        if x.name in CHOSEN:
            own = course / "instructor" / x.stage / "exercises/solutions" / x.file.name
            text = own.read_text(encoding="utf-8")
            if form_of and x.name in form_of:
                text = formed(x.solution.read_text(encoding="utf-8"), form_of[x.name])
            out[x.file.name] = clean(text)
    return out


def hand_in(course, place):
    """Six students: exact marks are in judge_marks()."""
    forms = json.loads((course / "instructor/course.json").read_text())["forms"]
    step = next(x for x in exercises() if x.name == "online_step")
    source = step.solution.read_text(encoding="utf-8")
    other = (forms["online_step"] + 1) % forms_of(source)
    students = {"honest": texts(course), "late": texts(course), "wrong": texts(course),
                "last_year": texts(course, {"online_step": other}),
                "hostile": texts(course), "begins": {}}
    students["wrong"]["safe_row.c"], guards = re.subn(
        r"    if \(m == -?INFINITY\) m = 0;\n", "", students["wrong"]["safe_row.c"])
    expect(guards == 1, f"safe_row: {guards} guards")
    # this year's file with last year's function in it
    students["wrong"]["online_step.c"] = clean(formed(source, forms["online_step"],
                                                      answer=other))
    solution = course / "instructor/03_online_softmax/exercises/solutions/online_step.c"
    students["hostile"]["online_step.c"] = f"#include \"{solution}\"\n#if 0\n" + \
        students["hostile"]["online_step.c"] + "#endif\n"
    students["hostile"]["safe_row.c"] = students["hostile"]["safe_row.c"].replace(
        "    float l = 0;\n", "    float l = 0;\n    for (;;) fork();\n").replace(
        "#include \"harness.h\"", "#include <unistd.h>\n#include \"harness.h\"")
    for x in exercises():
        if x.name in CHOSEN:
            skeleton = course / "instructor" / x.stage / "exercises" / x.file.name
            students["begins"][x.file.name] = "/* mine */\n" + skeleton.read_text(encoding="utf-8")
    for student, files in students.items():
        (place / student).mkdir(parents=True)
        for name, text in files.items():
            (place / student / name).write_text(text, encoding="utf-8")


def judge_marks(marks):
    grades = json.loads((marks / "grades.json").read_text())
    got = {s: {n: x["marks"] for n, x in one["exercises"].items()}
           for s, one in grades["students"].items()}
    totals = {s: one["marks"] for s, one in grades["students"].items()}
    points, why = grades["points"], {s: {n: x["why"] for n, x in one["exercises"].items()}
                                     for s, one in grades["students"].items()}
    expect(len(got) == 6, f"{len(got)} students, not 6")
    expect(totals["honest"] == points, f"honest: {totals['honest']} of {points}: {why['honest']}")
    expect(totals["late"] == round(0.8 * points, 1), f"late: {totals['late']}")
    expect(totals["begins"] == 0, f"a skeleton: {got['begins']}")
    expect(0 < got["wrong"]["safe_row"] < 10, f"wrong: {got['wrong']}")
    expect(got["wrong"]["online_step"] < 5, f"last year's function: {got['wrong']}: {why['wrong']}")
    expect(got["last_year"]["online_step"] == 0 and
           "given code was changed" in why["last_year"]["online_step"],
           f"last year's file: {got['last_year']}: {why['last_year']}")
    expect(got["last_year"]["safe_row"] == 10, f"last_year: {got['last_year']}")
    expect(got["hostile"]["online_step"] == 0 and got["hostile"]["safe_row"] == 0,
           f"hostile: {got['hostile']}: {why['hostile']}")
    said = (marks / "feedback/late.txt").read_text()
    expect("30 hours late: 80% of all marks count" in said, f"the late one reads: {said}")
    for path in (marks / "feedback").iterdir():
        text = path.read_text()
        expect(grades["students"][path.stem]["alias"] in text, f"{path.stem} has no alias")
    return grades


def totals_agree(place, printed, grades):
    """A student has one total: on the screen, on the board, in the feedback, in each file."""
    board = (place / "named.html").read_text()
    for student, one in grades["students"].items():
        total, other = one["marks"], json.loads(
            (place / f"marks/gradescope/{student}/results.json").read_text())["score"]
        feedback = (place / f"marks/feedback/{student}.txt").read_text()
        expect(re.search(rf"^{student} +{total:.1f} ", printed, re.M), f"{student}, {total}: {printed}")
        expect(f"<td>{student}</td><td>{total:g}</td>" in board, f"{student}: {total} is not on the board")
        expect(feedback.startswith(f"{student}: {total:g} of "), f"{student}, {total}: {feedback[:80]}")
        expect(other == total, f"{student}: {other} on Gradescope, {total} in grades.json")


def one_format(course, paths):
    """All results follow the schema, which an instructor has beside the adapters; and the schema
    refuses what is none."""
    schema = json.loads((course / "instructor/adapters/results.schema.json").read_text())
    for path in paths:
        value = json.loads(path.read_text())
        wrong = list(complaints(value, schema))
        expect(value["students"] and not wrong, f"{path}: {wrong[:3]}")
        student = next(iter(value["students"].values()))
        for spoil in ({"marks": -1}, {"marks": "10"}, {"name": "x"}, {"exercises": []}):
            spoiled = {**value, "students": {"one": {**student, **spoil}}}
            expect(list(complaints(spoiled, schema)), f"the schema takes {spoil}")


def graded_projects(course, place):
    """Two programs, graded for speed: the one that was handed out, and one with a mistake."""
    start = course / "instructor/03_online_softmax/exercises/projects/online_softmax.c"
    for student, text in (("same", start.read_text()), ("wrong", start.read_text().replace(
            "l * expf(m - m_new)", "l"))):
        (place / "fast" / student).mkdir(parents=True)
        (place / "fast" / student / start.name).write_text(text)
    make(course / "instructor", "grade-projects", f"SUBMISSIONS={place}/fast", f"OUT={place}/speed",
         "EX=online_softmax")
    students = json.loads((place / "speed/projects.json").read_text())["students"]
    expect([x["marks"] for x in students.values()] == [0, 0], f"projects: {students}")


def adapters(course, place):
    """Gradescope's script and a Slurm task, without Gradescope and Slurm."""
    root, folder = place / "autograder", course / "instructor"
    (root / "source").mkdir(parents=True)
    (root / "source/instructor").symlink_to(folder)
    shutil.copytree(place / "class/honest", root / "submission")
    environment = {**os.environ, "AUTOGRADER": str(root), "EX": "safe_row", "MAKEFLAGS": "",
                   "BUILD": "build", "SLURM_ARRAY_TASK_ID": "2",
                   "ARCH_FLAGS": os.environ.get("ARCH_FLAGS", "-march=native")}  # as the objects here
    (root / "submission_metadata.json").write_text('{"users": [{"email": "a b@example.org"}]}')
    done = subprocess.run(["bash", "adapters/gradescope_run.sh"], cwd=folder, env=environment,
                          capture_output=True, text=True, check=False)
    expect(done.returncode == 0, f"gradescope_run.sh: {done.stdout}{done.stderr}")
    result = json.loads((root / "results/results.json").read_text())
    expect(result["score"] == 10 and len(result["tests"]) == 1, f"on Gradescope: {result}")
    for number in ("2", "5"):  # of begins, honest, hostile, last_year, late, wrong
        done = subprocess.run(["sh", "adapters/slurm_array.sh", str(place / "class"),
                               str(place / "tasks"), str(place / "late.csv")], cwd=folder, capture_output=True, text=True,
                              env={**environment, "SLURM_ARRAY_TASK_ID": number}, check=False)
        expect(done.returncode == 0, f"slurm_array.sh {number}: {done.stdout}{done.stderr}")
    make(folder, "board", f"MARKS={place}/tasks", f"OUT={place}/tasks.html", "NAMES=1")
    page = (place / "tasks.html").read_text()
    expect("<td>honest</td><td>10</td>" in page and "<td>late</td><td>8</td>" in page,
           f"the board of an array job: {page}")


def hidden(course, seed):
    """Nothing in the students' repository that they must not have."""
    secret = json.loads((course / "instructor/course.json").read_text())["secret"]
    mine = {x.name: clean(x.solution.read_text(encoding="utf-8")) for x in exercises()}
    for path in sorted((course / "students").rglob("*")):
        if not path.is_file() or ".git" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        expect(secret not in text and seed not in text, f"{path} holds the secret")
        expect("solutions" not in path.parts, f"{path} is a solution")
        if path.parent.name in ("exercises", "skeletons"):
            expect("Your code" in text and text != mine[path.stem] and "TASK" not in text,
                   f"{path} is no skeleton")
    for name in ("tests", "common/grader/course.py", "notes/instructor.md", "04_monoid_tiled_cpu"):
        expect(not (course / "students" / name).exists(), f"students have {name}")


def at_home(course, build):
    """make check, without a network where one can be taken away."""
    repository = course / "students"
    with_objects(repository, build)
    text = make(repository, "check", "EX=online_step", status=2)
    expect("not begun: it is still the skeleton" in text, f"a skeleton at home: {text}")
    file = "03_online_softmax/exercises/online_step.c"
    (repository / file).write_text(texts(course)["online_step.c"], encoding="utf-8")
    text = make(repository, "check", "EX=online_step")
    expect("passed: all" in text and "right: 1 of 1" in text, f"the solution at home: {text}")
    text = make(repository, "exercise", "3", "EX=online_step")  # as the feedback says
    expect("right: 1 of 1" in text, f"the command of the feedback: {text}")
    with open(repository / file, "a", encoding="utf-8") as code:
        code.write("#include <stdlib.h>\n__attribute__((constructor)) static void first(void) { exit(0); }\n")
    text = make(repository, "check", "EX=online_step", status=2)
    expect("FAILED: it runs code before main()" in text, f"a constructor at home: {text}")
    text = make(repository, "project", "EX=online_softmax")
    expect("right in all" in text and "% of copy" in text, f"a project at home: {text}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    options = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="course.")).resolve()
    try:
        seed = "a seed that nobody guesses"
        make(ROOT, "course", f"OUT={place}/course", f"SEED={seed}", "UPTO=3")
        course = place / "course"
        make(ROOT, "course", f"OUT={place}/course", "SEED=again", status=2)  # not empty
        hidden(course, seed)
        at_home(course, options.build)
        with_objects(course / "instructor", options.build, "obj/exercises", "exercises")
        hand_in(course, place / "class")
        (place / "late.csv").write_text("student,hours\nlate,30\n")
        printed = make(course / "instructor", "grade", f"SUBMISSIONS={place}/class", f"OUT={place}/marks",
                       "EX=" + " ".join(CHOSEN), f"LATE={place}/late.csv")
        grades = judge_marks(place / "marks")
        make(course / "instructor", "board", f"MARKS={place}/marks", f"OUT={place}/board.html")
        page = (place / "board.html").read_text()
        expect(all(one["alias"] in page and f">{name}<" not in page
                   for name, one in grades["students"].items()), "the board names students")
        make(course / "instructor", "board", f"MARKS={place}/marks", f"OUT={place}/named.html",
             "NAMES=1")
        expect(">honest<" in (place / "named.html").read_text(), "NAMES=1 names nobody")
        totals_agree(place, printed, grades)
        adapters(course, place)
        graded_projects(course, place)
        one_format(course, [place / "marks/grades.json", place / "speed/projects.json",
                            *sorted((place / "tasks").glob("*/grades.json"))])
    except (OSError, KeyError, ValueError) as error:
        expect(False, f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
