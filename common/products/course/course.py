"""course.py: a course: a repository for students, and the instructor's folder beside it.

    make course OUT=dir SEED=text [UPTO=3] [ASSISTANTS=explain]

OUT/students     the stages up to UPTO, skeletons, the public cases, `make check`, which needs
                 no network; no solutions and no hidden cases
OUT/instructor   everything, with the solutions of this course, course.json and START.md

The seed decides the hidden numbers, for each student others.  It is in no file of the students.  Who
knows the seed knows the hidden cases: choose a text that nobody guesses.
ASSISTANTS says what COURSE.md tells the students, and AGENTS.md a language model, about help:
explain (the default), none, or free.

The same OUT and SEED with a later UPTO add the next stages: one commit more in students/, which
students get by `git pull`.  With the same UPTO they repair: what was fixed in the repository
reaches the course.  A file that the instructor changed or added stays.

Exit status: 0 done; 2 bad usage."""
import argparse
import hashlib
import json
import pathlib
import tempfile
import shutil
import subprocess
import sys

from handout import without_hidden
from marks import write_json, write_text
from source import ROOT, exercises, fail

NOT_COPIED = shutil.ignore_patterns(".git", "build", "__pycache__", "*.pyc", "venv")
LATE_PER_DAY, LATE_DAYS = 0.1, 3
PAGES = ROOT / "common/products/course/pages"

ASSISTANTS = "explain", "none", "free"


def later_words(upto):
    """What the handout says about the stages that are still to come."""
    if upto == 5:
        return "Stage 5 on a rented GPU: [three cells of a notebook](notes/rented_gpu.ipynb).\n"
    stages = "Stage 5 comes" if upto == 4 else f"Stages {upto + 1} to 5 come"
    return f"{stages} later. Where a page names one of their files, the file is not here yet.\n"


def secret_of(seed):
    """What a course draws from."""
    return hashlib.sha256(f"five steps course {seed}".encode()).hexdigest()


def write_exercise(repository, exercise):
    """For a student: skeletons/, with hints, and the student's own file beside it."""
    folder = repository / exercise.stage / "exercises"
    hints = "".join(f" * Hint: {x}\n" for x in exercise.hints)
    first, rest = exercise.skeleton().split("\n", 1)
    write_text(folder / "skeletons" / exercise.file.name, f"{first}\n{hints}{rest}")
    write_text(folder / exercise.file.name, exercise.skeleton())


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def synchronise(made, target, known):
    """Files of a new tree replace those of an earlier run.  A file that somebody has changed or added
    stays as it is.  known: what the earlier run wrote, name -> digest.  Returns what this one did."""
    files = {str(x.relative_to(made)): x for x in made.rglob("*") if x.is_file()}
    kept, wrote = [], {}
    for name, digest_then in known.items():
        if name not in files and (target / name).is_file() and digest(target / name) == digest_then:
            (target / name).unlink()
    for name, path in sorted(files.items()):
        there = target / name
        wrote[name] = digest(path)
        if there.is_file() and digest(there) not in (wrote[name], known.get(name)):
            kept.append(name)
            wrote[name] = known.get(name, wrote[name])
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there)
    for name in kept:
        print(f"course: {target.name}/{name} was changed here; it stays as it is")
    return wrote


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


def before(out, secret):
    """course.json of the course that this one continues, or {}."""
    path = out / "instructor/course.json"
    course = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if course and course["secret"] != secret:
        fail(f"OUT: '{out}' holds a course of another SEED")
    return course


def fill(students, instructor, upto, assistants):
    """Both trees; returns the rows of the students' table of exercises."""
    stages = sorted(x.name for x in ROOT.glob("0*") if x.is_dir() and int(x.name[:2]) <= upto)
    for tree in (instructor, students):
        shutil.copytree(ROOT, tree, ignore=NOT_COPIED, symlinks=True, dirs_exist_ok=True)
    without_hidden(students, stages)
    rows = []
    for exercise in (x for x in exercises() if x.stage in stages):
        write_exercise(students, exercise)
        rows.append(f"| `{exercise.stage}/exercises/{exercise.file.name}` "
                    f"| {exercise.points} | {exercise.time} | {exercise.title} |")
    write_page(instructor / "START.md")
    write_page(students / "COURSE.md", rows="\n".join(rows), later=later_words(upto), 
               allowed=(PAGES / f"HELP.{assistants}.md").read_text(encoding="utf-8").strip())
    shutil.copy2(PAGES / f"AGENTS.{assistants}.md", students / "AGENTS.md")
    write_text(students / ".gitignore", "build/\n")
    adapters = ROOT / "common/products/course/adapters"
    shutil.copytree(adapters, instructor / "adapters", dirs_exist_ok=True)
    (students / ".github/workflows").mkdir(parents=True)
    shutil.copy2(adapters / "classroom.yml", students / ".github/workflows/check.yml")
    shutil.copy2(adapters / "Containerfile", students / "Containerfile")
    return stages, rows


def create(out, secret, upto, assistants):
    course = before(out, secret)
    upto = max(upto, len(course.get("stages", [])))
    with tempfile.TemporaryDirectory() as place:
        made = {x: pathlib.Path(place) / x for x in ("students", "instructor")}
        stages, rows = fill(*made.values(), upto, assistants)
        files = {}
        for name, tree in made.items():
            (out / name).mkdir(parents=True, exist_ok=True)
            files[name] = synchronise(tree, out / name, course.get("files", {}).get(name, {}))
    settings = {"late_per_day": LATE_PER_DAY, "late_days": LATE_DAYS, **course}
    write_json(out / "instructor/course.json", {**settings, "secret": secret, "stages": stages, "files": files})
    commit(out / "students", f"Stages up to {upto}" if course else "The course")
    print(f"{out}/students: {len(stages)} stages, {len(rows)} exercises; make check")
    print(f"{out}/instructor: START.md says how to grade")


def main():
    parser = argparse.ArgumentParser(description="a course")
    parser.add_argument("--out", default="")
    parser.add_argument("--seed", default="")
    parser.add_argument("--upto", default="5")
    parser.add_argument("--assistants", default="explain", choices=ASSISTANTS)
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    if not any(ROOT.glob("0*/exercises/solutions")) or (ROOT / "course.json").exists():
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
