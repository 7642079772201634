"""course.py: a course: a repository for students, and the instructor's folder beside it.

    make course OUT=dir SEED=text [UPTO=3] [ASSISTANTS=explain]

OUT/students     the stages up to UPTO, skeletons, the public cases, `make check`, which needs
                 no network; no solutions and no hidden cases
OUT/instructor   everything, with the solutions of this course, course.json and START.md

The seed decides which form of a task and which tile sizes the students see
(exercises.py), and which hidden numbers and shapes the grader draws.  It is in no file of the
students.  Who knows the seed knows the hidden cases: choose a text that nobody guesses.
ASSISTANTS says what COURSE.md tells the students, and AGENTS.md a language model, about help:
explain (the default), none, or free.

The same OUT and SEED with a later UPTO add the next stages: one commit more in students/, which
students get by `git pull` and which touches no file of the stages that they have.

Exit status: 0 done; 2 bad usage."""
import argparse
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import sys

from exercises import HEAD, HINTS, ROOT, SOLVED, TIME, exercises
from forms import fail, formed, forms_of, skeleton_of
from handout import without_hidden
from marks import write_json, write_text

NOT_COPIED = shutil.ignore_patterns(".git", "build", "__pycache__", "*.pyc", "venv")
DRAWN = 24  # hidden problems for each exercise
LATE_PER_DAY, LATE_DAYS = 0.1, 3
PAGES = ROOT / "common/products/course/pages"

ALLOWED = {
    "explain": "Talk about ideas and about error messages with anybody. Nobody else, no web page and no "
               "language model writes your part; they may explain.",
    "none": "Talk about ideas with your fellow students. Language models may help with tools and the "
            "shell, not with the exercises.",
    "free": "Any help is allowed. You name it in your work log, and you can explain each line.",
}


def later_words(upto):
    """What the handout says about the stages that are still to come."""
    if upto == 5:
        return "Stage 5 on a rented GPU: [three cells of a notebook](notes/rented_gpu.ipynb).\n"
    stages = {4: "Stage 5 comes", 3: "Stages 4 and 5 come"}.get(upto, f"Stages {upto + 1} to 5 come")
    return f"{stages} later. Where a page names one of their files, the file is not here yet.\n"


def secret_of(seed):
    """What a course draws from."""
    return hashlib.sha256(f"five steps course {seed}".encode()).hexdigest()


def drawn(secret, exercise):
    """The text of the solution in this course's form, the form's number, and how many there are."""
    text, source = exercise.solution.read_text(encoding="utf-8"), random.Random(f"{secret} {exercise.name}")
    count = forms_of(text)
    form = source.randrange(count)
    return formed(text, form, source.choice), form, count


def copy_tree(target):
    """What is there of an earlier copy goes; what somebody added beside it stays."""
    for path in [target / x.name for x in ROOT.iterdir() if x.name not in (".git", "build")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    shutil.copytree(ROOT, target, ignore=NOT_COPIED, symlinks=True, dirs_exist_ok=True)


def write_exercise(repository, exercise, text, solved):
    """In solutions/ the text, or in skeletons/ what a student's file, beside it, is compared with."""
    folder, skeleton = repository / exercise.stage / "exercises", skeleton_of(text, exercise.solution)
    files = {"solutions": text} if solved else {"skeletons": skeleton, ".": HINTS.sub("", skeleton)}
    for beside, content in files.items():
        path = folder / beside / exercise.file.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")


def write_page(path, **words):
    """A page of PAGES with these words in the place of {names}."""
    text = (PAGES / path.name).read_text(encoding="utf-8")
    path.write_text(text.format(**words), encoding="utf-8")


def commit(repository, message):
    """One commit, if git is there; a student begins with `git clone`."""
    name = ["-c", "user.name=course", "-c", "user.email=course@localhost"]
    begin = [] if (repository / ".git").exists() else [["init", "-q"]]
    try:
        for command in (*begin, ["add", "-A"], [*name, "commit", "-q", "--allow-empty", "-m", message]):
            subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("course: no git; students/ is a folder without a commit")


def before(out, secret, upto):
    """Is there a course already, which this one continues?"""
    path = out / "instructor/course.json"
    if not path.exists():
        return False
    course = json.loads(path.read_text(encoding="utf-8"))
    if course["secret"] != secret:
        fail(f"OUT: '{out}' holds a course of another SEED")
    if len(course["stages"]) >= upto:
        fail(f"OUT: '{out}' holds these stages already; UPTO={len(course['stages']) + 1} adds the next")
    for path in (out / "students").iterdir():  # all but the history is made anew
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return True


def create(out, secret, upto, assistants):
    earlier, students, instructor = before(out, secret, upto), out / "students", out / "instructor"
    stages = sorted(x.name for x in ROOT.glob("0*") if x.is_dir() and int(x.name[:2]) <= upto)
    copy_tree(instructor)
    copy_tree(students)
    without_hidden(students, stages)
    forms, varied, rows = {}, [], []
    for exercise in exercises():
        text, forms[exercise.name], count = drawn(secret, exercise)
        varied += [f"- `{exercise.name}`: form {forms[exercise.name] + 1} of {count}"] * (count > 1)
        write_exercise(instructor, exercise, text, True)
        if exercise.stage in stages:
            write_exercise(students, exercise, text, False)
            rows.append(f"| `{exercise.stage}/exercises/{exercise.file.name}` "
                        f"| {exercise.points} | {exercise.said(TIME)} | {exercise.title} |")
    for file in sorted(students.glob("0*/exercises/projects/*.c*")):
        head = HEAD.search(file.read_text(encoding="utf-8"))
        rows.append(f"| `{file.relative_to(students)}` | {head[2]} | as long as you like | {head[3]} |")
    write_json(instructor / "course.json", {
        "secret": secret, "stages": stages, "draw": DRAWN, "forms": forms, "late_per_day": LATE_PER_DAY,
        "late_days": LATE_DAYS})
    write_page(instructor / "START.md", rows="\n".join(varied))
    write_page(students / "COURSE.md", rows="\n".join(rows), later=later_words(upto),
               allowed=ALLOWED[assistants])
    shutil.copy2(PAGES / f"AGENTS.{assistants}.md", students / "AGENTS.md")
    write_text(students / ".gitignore", "build/\n")
    adapters = ROOT / "common/products/course/adapters"
    shutil.copytree(adapters, instructor / "adapters", dirs_exist_ok=True)
    (students / ".github/workflows").mkdir(parents=True)
    shutil.copy2(adapters / "classroom.yml", students / ".github/workflows/check.yml")
    shutil.copy2(adapters / "Containerfile", students / "Containerfile")
    commit(students, f"Stages up to {upto}" if earlier else "The course")
    print(f"{students}: {len(stages)} stages, {len(rows)} exercises and projects; make check")
    print(f"{instructor}: START.md says how to grade")


def main():
    parser = argparse.ArgumentParser(description="a course")
    parser.add_argument("--out", default="")
    parser.add_argument("--seed", default="")
    parser.add_argument("--upto", default="5")
    parser.add_argument("--assistants", default="explain", choices=list(ALLOWED))
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    if not SOLVED or (ROOT / "course.json").exists():
        fail("a course is made from the repository itself, not from a course")
    if not options.out:
        fail("OUT: where?  make course OUT=../course SEED=\"a text that nobody guesses\"")
    if not options.seed.strip():
        fail("SEED: give a text that nobody guesses: make course OUT=dir SEED=text")
    if options.upto not in ("1", "2", "3", "4", "5"):
        fail(f"UPTO: no stage '{options.upto}'; the last stage of the course, 1 to 5")
    if out.resolve().is_relative_to(ROOT) and not out.resolve().is_relative_to(ROOT / "build"):
        fail(f"OUT: '{out}' lies in this repository; choose a folder beside it")
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and \
            not (out / "instructor/course.json").exists():
        fail(f"OUT: '{out}' exists and is not empty")
    try:
        out.mkdir(parents=True, exist_ok=True)
        create(out, secret_of(options.seed), int(options.upto), options.assistants)
    except OSError as error:
        fail(f"OUT: '{out}' cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
