"""A course: what students get and what they do not; stages added one by one; what the seed decides."""
import hashlib
import json
import re
import shutil
import subprocess
import sys

import pytest

from helpers import ROOT, run
from students import EXERCISES, tool_words

from course import LINK, is_gone

COURSE = [sys.executable, ROOT / "common/products/course/course.py"]


def course(*words, want=0):
    return run(*COURSE, *words, want=want)


def git(folder, *words):
    return run("git", "-C", folder, *words).out


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A course of three stages, which then gets all five."""
    out = tmp_path_factory.mktemp("course") / "out"
    course("--out", out, "--seed", "a seed", "--upto", "3")
    first = git(out / "students", "rev-parse", "HEAD").strip()
    three = {str(x.relative_to(out / "students")): x.read_text(errors="replace") for x in
             (out / "students").rglob("*") if x.is_file() and ".git/" not in str(x)}
    course("--out", out, "--seed", "a seed", "--upto", "5")
    return out, first, three


def test_students_get_no_solution_nor_what_is_hidden(made):
    out, _, three = made
    names = set(three)
    assert not [x for x in names if "solutions" in x or x.startswith(("04_", "05_")) or "instructor" in x
                or x.startswith("tests/") and not x.startswith("tests/fixture/")
                or "checkpoints" in x or x.endswith(("course.py", "course.json"))]
    secret = json.loads((out / "instructor/course.json").read_text(encoding="utf-8"))["secret"]
    for name, text in three.items():
        assert secret not in text and ("/exercises/" not in name or "solution begin" not in text), name
    log = git(out / "students", "log", "-p", "--all", "--", "0*/exercises")
    assert "+    /* solution begin */" not in log
    for name, exercise in EXERCISES.items():
        file = out / "students" / exercise.stage / "exercises" / exercise.file.name
        text = file.read_text(encoding="utf-8")
        assert "Your code" in text and "Hint:" not in text and "Point:" not in text, name


def test_next_stages_are_a_fast_forward_that_touches_no_file_of_the_first(made):
    out, first, three = made
    students = out / "students"
    assert git(students, "rev-list", "--count", "HEAD").strip() == "2"
    git(students, "merge-base", "--is-ancestor", first, "HEAD")
    changed = git(students, "diff", "--name-only", first, "HEAD").split()
    assert any(x.startswith("05_") for x in changed)
    assert not [x for x in changed if x in three and re.match(r"0[123].*\.(c|cu|h)$", x)]


def verbs_of(makefile):
    return re.findall(r"^#   make (\S+)", makefile, re.M)


def test_pages_have_no_dangling_links_and_help_only_what_works(made):
    out, _, three = made
    assert not [(page, link[2]) for page in (out / "students").rglob("*.md")
                for link in LINK.finditer(page.read_text(encoding="utf-8")) if is_gone(page, link[2])]
    verbs = verbs_of(three["Makefile"])
    assert "check" in verbs and "hint" in verbs
    assert not {"course", "grade", "test", "mpi"} & set(verbs)


def test_every_verb_of_the_students_help_works(made):
    students = made[0] / "students"
    makefile = (students / "Makefile").read_text(encoding="utf-8")
    for verb in verbs_of(makefile):
        words = [verb, "3"] if verb in ("stage", "diff", "trace", "bench", "hint", "exercise", "profile") else [verb]
        run("make", "-n", *words, "NO_INSTALL=1", cwd=students, timeout=600)
    assert "this copy has no `make sanitize`" in run("make", "sanitize", cwd=students, want=2).err


def test_a_students_exercise_is_judged_with_what_students_have(made):
    out, _, _ = made
    tool = [sys.executable, "common/products/course/exercises.py"]
    said = run(*tool, "run", "03_online_softmax", "--ex", "online_step", *tool_words(), cwd=out / "students", want=1).out
    assert "not begun" in said and "right: 0 of 1" in said and "wrote" not in said
    assert "hint 1 of" in run(*tool, "hint", "03_online_softmax", "--ex", "online_step", "--build", out / "b",
                              cwd=out / "students").out


def test_seed_decides_the_hidden_cases_and_nothing_that_students_see(tmp_path):
    courses = []
    for name, seed in (("a", "one"), ("b", "one"), ("c", "two")):
        course("--out", tmp_path / name, "--seed", seed, "--assistants", "none")
        courses.append(json.loads((tmp_path / name / "instructor/course.json").read_text(encoding="utf-8")))
    assert courses[0] == courses[1] and courses[0]["secret"] != courses[2]["secret"]
    for other in "bc":
        assert not subprocess.run(["diff", "-r", "-x", ".git", tmp_path / "a/students", tmp_path / other / "students"],
                                  check=False, capture_output=True).stdout
    assert "do not allow" in (tmp_path / "a/students/AGENTS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("words,says", [
    ([], "OUT: where?"), (["--out", "x"], "SEED: give a text"),
    (["--out", "x", "--seed", "s", "--upto", "6"], "UPTO: no stage '6'"),
    (["--out", ROOT / "notes/x", "--seed", "s"], "lies in this repository"),
    (["--out", ".", "--seed", "s"], "exists and is not empty"),
])
def test_bad_requests_are_refused_in_one_line(place, words, says):
    (place / "file").write_text("x")
    done = course(*words, want=2)
    assert says in done.err and done.err.count("\n") == 1


def test_again_repairs_and_keeps_what_an_instructor_changed(made, tmp_path):
    """Also after the last stage, and with an UPTO of long ago."""
    out = tmp_path / "out"
    shutil.copytree(made[0], out, symlinks=True)
    students, instructor = out / "students", out / "instructor"
    (students / "SYLLABUS.md").write_text("Mondays\n")
    (students / "COURSE.md").write_text("Ours\n")
    settings = json.loads((instructor / "course.json").read_text(encoding="utf-8"))
    (instructor / "course.json").write_text(json.dumps({**settings, "late_days": 7}))
    git(students, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qam", "ours")
    typo, gone_one = students / "01_naive/README.md", students / "02_safe_softmax/stage.c"
    right, stage = typo.read_text(encoding="utf-8"), gone_one.read_text(encoding="utf-8")
    known = json.loads((instructor / "course.json").read_text(encoding="utf-8"))
    typo.write_text(right + "a typo that an earlier run wrote\n")
    known["files"]["students"]["01_naive/README.md"] = hashlib.sha256(typo.read_bytes()).hexdigest()
    (instructor / "course.json").write_text(json.dumps(known))
    gone_one.unlink()
    said = course("--out", out, "--seed", "a seed", "--upto", "3").out
    assert "students/COURSE.md was changed here; it stays" in said
    assert typo.read_text(encoding="utf-8") == right and gone_one.read_text(encoding="utf-8") == stage
    assert (students / "COURSE.md").read_text() == "Ours\n" and (students / "05_flash_cuda").is_dir()
    assert json.loads((instructor / "course.json").read_text(encoding="utf-8"))["late_days"] == 7
    assert git(students, "ls-files", "SYLLABUS.md") == "SYLLABUS.md\n"
    head = git(students, "rev-parse", "HEAD^{tree}")
    course("--out", out, "--seed", "a seed", "--upto", "5")
    assert git(students, "rev-parse", "HEAD^{tree}") == head
    assert "another SEED" in course("--out", out, "--seed", "other", want=2).err
