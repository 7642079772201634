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
import re
import shutil
import subprocess
import sys
import tempfile

from marks import write_json, write_text
from source import ROOT, exercises, fail

HERE = ROOT / "common/products/course"
PAGES = HERE / "pages"
SETTINGS = {"late_per_day": 0.1, "late_days": 3}
NEVER = shutil.ignore_patterns(".git", "build", "__pycache__", "*.pyc", "venv")  # copied
# What students do not get; of tests/ they need the sentence of `make map`.
HIDDEN = {".ci", ".github", *(f"notes/{x}.md" for x in (
    "exam", "instructor", "checkpoints", "grading", "planted_bugs", "contributing", "coverage")),
    *(f"common/products/course/{x}" for x in ("course.py", "pages"))}
# Verbs of `make` (regular expressions) that need what is hidden, or so many stages.
HIDDEN_VERBS = ["course", "grade", "book", "book-test", "tables", "tables-check", "test", "test-long", "sanitize",
                "machines", "fuzz", "differential", "gallery", "eight_bits"]
VERBS_FROM = {3: ["map", "plot"], 4: ["mpi", "library", "install"], 5: [r"diff RUNG=\w+", "cuda", "profile 5"]}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


# --- what students get of the repository ---

def hidden_beyond(stages):
    """For copytree: no solutions, no stage that is still to come."""
    def hidden(folder, names):
        paths = {x: (pathlib.Path(folder) / x).relative_to(ROOT).as_posix() for x in names}
        return NEVER(folder, names) | {x for x, path in paths.items() if path in HIDDEN or x == "solutions" or (
            path.startswith("tests/") and not path.startswith("tests/fixture")) or (path == x and x[0] == "0" and x not in stages)}
    return hidden


def is_gone(page, target):
    """Does a link on this page lead to no file?  Links to other sites and within a page do not."""
    return not re.match(r"[a-z]+:|#", target) and not (page.parent / target.split("#")[0]).exists()


def shortened(page, verbs):
    """The text of a page: a link whose file is gone is plain text, a command that needs what is gone says so."""
    text = re.sub(rf"^make ({verbs})\b.*\n", "", page.read_text(encoding="utf-8"), flags=re.M)
    text = re.sub(rf"(`[^`\n]*\bmake\s+({verbs})(?![\w-])[^`]*`)", r"\1 (not in this copy)", text)
    text = LINK.sub(lambda link: link[1] if is_gone(page, link[2]) else link[0], text)
    return re.sub(r"For teachers: [^.]*\.\s", "", text)


def short_makefile(text, stages, verbs):
    """Names the stages that are there, in its help the verbs that work, and refuses the others."""
    refused = "\n".join((f"ifneq ($(filter {' '.join(x for x in verbs if ' ' not in x)},$(firstword $(MAKECMDGOALS))),)",
                         "$(error this copy has no `make $(firstword $(MAKECMDGOALS))`; `make help` says what it has)",
                         "endif"))
    text = re.sub(r"^STAGES := .*$", f"STAGES := {' '.join(stages)}\n{refused}", text, flags=re.M)
    text = re.sub(rf"^#   make ({'|'.join(verbs)}) [^\n]*\n", "", text, flags=re.M)
    return re.sub(r"^# (Test|Use it)\n#\n", "", text, flags=re.M)  # no verb is left


def write_exercise(repository, exercise):
    """For a student: skeletons/, with hints, and the student's own file beside it."""
    folder = repository / exercise.stage / "exercises"
    hints = "".join(f" * Hint: {x}\n" for x in exercise.hints)
    first, rest = exercise.skeleton().split("\n", 1)
    write_text(folder / "skeletons" / exercise.file.name, f"{first}\n{hints}{rest}")
    write_text(folder / exercise.file.name, exercise.skeleton())


def write_students(tree, stages, assistants):
    """Returns the rows of the table of exercises."""
    verbs = HIDDEN_VERBS + [verb for first, some in VERBS_FROM.items() if len(stages) < first for verb in some]
    shutil.copytree(ROOT, tree, ignore=hidden_beyond(stages), symlinks=True, dirs_exist_ok=True)
    write_text(tree / "Makefile", short_makefile((ROOT / "Makefile").read_text(encoding="utf-8"), stages, verbs))
    for page in sorted(tree.rglob("*.md")):
        write_text(page, shortened(page, "|".join(verbs)))
    found = [x for x in exercises() if x.stage in stages]
    for exercise in found:
        write_exercise(tree, exercise)
    rows = [f"| `{x.stage}/exercises/{x.file.name}` | {x.points} | {x.time} | {x.title} |" for x in found]
    write_text(tree / "COURSE.md", (PAGES / "COURSE.md").read_text(encoding="utf-8").format(
        rows="\n".join(rows), allowed=(PAGES / f"HELP.{assistants}.md").read_text(encoding="utf-8").strip()))
    write_text(tree / ".gitignore", "build/\n")
    for source, name in ((f"AGENTS.{assistants}.md", "AGENTS.md"), ("Containerfile", "Containerfile")):
        write_text(tree / name, (PAGES / source).read_text(encoding="utf-8"))
    return rows


def write_instructors(tree):
    shutil.copytree(ROOT, tree, ignore=NEVER, symlinks=True, dirs_exist_ok=True)
    shutil.copy2(PAGES / "START.md", tree)


# --- a course that there may be already ---

def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def synchronise(made, target, known):
    """Files of a new tree replace those of an earlier run.  A file that somebody has changed or added
    stays as it is.  known: what the earlier run wrote, name -> digest.  Returns what this one did."""
    files, wrote = {str(x.relative_to(made)): x for x in made.rglob("*") if x.is_file()}, {}
    for name in known.keys() - files.keys():
        if (target / name).is_file() and digest(target / name) == known[name]:
            (target / name).unlink()
    for name, path in sorted(files.items()):
        there, wrote[name] = target / name, digest(path)
        if there.is_file() and digest(there) not in (wrote[name], known.get(name)):
            print(f"course: {target.name}/{name} was changed here; it stays as it is")
            wrote[name] = known.get(name, wrote[name])
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, there)
    return wrote


def commit(repository, message):
    """One commit of what is new, if git is there; a student begins with `git clone`."""
    def git(*words):
        return subprocess.run(["git", "-c", "user.name=course", "-c", "user.email=course@localhost", *words],
                              cwd=repository, check=True, capture_output=True).stdout
    try:
        if not (repository / ".git").exists():
            git("init", "-q")
        git("add", "-A")
        if git("status", "--porcelain"):
            git("commit", "-q", "-m", message)
    except (OSError, subprocess.CalledProcessError):
        print("course: no git; students/ is a folder without a commit")


def create(out, secret, upto, assistants):
    path = out / "instructor/course.json"
    course = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if course and course["secret"] != secret:
        fail(f"OUT: '{out}' holds a course of another SEED")
    upto = max(upto, len(course.get("stages", [])))
    stages = sorted(x.name for x in ROOT.glob("0*") if x.is_dir() and int(x.name[:2]) <= upto)
    with tempfile.TemporaryDirectory() as place:
        made = {x: pathlib.Path(place) / x for x in ("students", "instructor")}
        rows = write_students(made["students"], stages, assistants)
        write_instructors(made["instructor"])
        files = {x: synchronise(tree, out / x, course.get("files", {}).get(x, {})) for x, tree in made.items()}
    write_json(path, {**SETTINGS, **course, "secret": secret, "stages": stages, "files": files})
    commit(out / "students", f"Stages up to {upto}" if course else "The course")
    print(f"{out}/students: {len(stages)} stages, {len(rows)} exercises; make check")
    print(f"{out}/instructor: START.md says how to grade")


def main():
    parser = argparse.ArgumentParser(description="a course")
    for name, value in (("out", ""), ("seed", ""), ("upto", "5")):
        parser.add_argument(f"--{name}", default=value)
    parser.add_argument("--assistants", default="explain", choices=["explain", "none", "free"])
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    for is_wrong, words in (
            (not any(ROOT.glob("0*/exercises/solutions")) or (ROOT / "course.json").exists(),
             "a course is made from the repository itself, not from a course"),
            (not options.out, "OUT: where?  make course OUT=../course SEED=\"a text that nobody guesses\""),
            (not options.seed.strip(), "SEED: give a text that nobody guesses: make course OUT=dir SEED=text"),
            (options.upto not in ("1", "2", "3", "4", "5"),
             f"UPTO: no stage '{options.upto}'; the last stage of the course, 1 to 5"),
            (out.resolve().is_relative_to(ROOT) and not out.resolve().is_relative_to(ROOT / "build"),
             f"OUT: '{out}' lies in this repository; choose a folder beside it"),
            (out.exists() and not (out / "instructor/course.json").exists() and (not out.is_dir() or any(out.iterdir())),
             f"OUT: '{out}' exists and is not empty")):
        if is_wrong:
            fail(words)
    try:
        out.mkdir(parents=True, exist_ok=True)
        secret = hashlib.sha256(f"five steps course {options.seed}".encode()).hexdigest()
        create(out, secret, int(options.upto), options.assistants)
    except OSError as error:
        fail(f"OUT: '{out}' cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
