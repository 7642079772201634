"""Grading a class: marks, feedback and the other files; clumsy hand-ins; what a machine lacks; a run that
was stopped; an appeal; the compiler's jail."""
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from helpers import BUILD, HANG, ROOT, SANITIZED, run, wait_for
from students import ANSWER, EXERCISES, HOSTILE, MISTAKES, handed_out, solution, tool_words, write_class

from source import parts_of

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer does not fit into the judge's limits")
TOOL_WORDS = tool_words()
GRADE = [sys.executable, str(ROOT / "common/products/course/grade.py")]


def grade(folder, *words, ex="online_step", want=0, env=None, **how):
    return run(*GRADE, "--submissions", folder, "--out", "marks", "--ex", ex, *TOOL_WORDS, *words,
               want=want, env=env, **how)


def grades():
    return json.loads(pathlib.Path("marks/grades.json").read_text(encoding="utf-8"))


def hand_in(student, name="online_step.c", text=None):
    path = pathlib.Path("class") / student / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = solution("online_step") if text is None else text
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def table(name):
    with open(f"marks/{name}", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def why(student, exercise="online_step"):
    mark = grades()["students"][student]["exercises"][exercise]
    return mark["marks"], mark["why"]


def test_class_has_its_marks_and_every_file_says_the_same(place):
    hand_in("right")
    hand_in("late")
    hand_in("too_late")
    hand_in("skeleton", text=handed_out("online_step"))
    hand_in("commented", text=handed_out("online_step") + "/* mine */\n")
    hand_in("half", text=solution("online_step").replace("if (x == -INFINITY && z == -INFINITY) return s;", ""))
    hand_in("bad", text=HOSTILE["crashes"][0])
    hand_in("none", name="other.c")
    pathlib.Path("late.csv").write_text("student,hours\nlate,25\ntoo_late,73\n")
    said = grade("class", "--late", "late.csv").out
    assert "7 of" not in said and "8 students, 1 exercise: " in said
    assert [why(x)[0] for x in ("right", "late", "skeleton", "commented", "bad", "none")] == [10, 10, 0, 0, 0, 0]
    assert 0 < why("half")[0] < 10 and "mask_row" in grades()["students"]["half"]["exercises"][
        "online_step"]["failing_families"]
    assert why("skeleton")[1] == "the skeleton, unchanged" and why("none")[1] == "not handed in"
    totals = {x: y["marks"] for x, y in grades()["students"].items()}
    assert (totals["right"], totals["late"], totals["too_late"]) == (10, 8, 0)
    for name in ("gradebook", "week_online_step"):
        assert {x["Username"]: float(x["total"]) for x in table(f"{name}.csv")} == totals
        assert {x["SIS Login ID"]: x["online_step"] for x in table(f"{name}.canvas.csv")}["late"] == "8.0"
    for student, one in grades()["students"].items():
        said = pathlib.Path(f"marks/feedback/{student}.txt").read_text(encoding="utf-8")
        assert all(x["why"] in said for x in one["exercises"].values())
    feedback = pathlib.Path("marks/feedback/commented.txt").read_text(encoding="utf-8")
    assert "  want " in feedback and "see it at home: make exercise 3 EX=online_step" in feedback


def test_clumsy_hand_ins_are_read_or_named(place):
    hand_in("-rf")
    hand_in("on Windows $x ü", text=b"\xef\xbb\xbf" + solution("online_step").replace("\n", "\r\n").encode())
    hand_in("deep", name="a/b/online_step.c")
    hand_in(".hidden")
    hand_in("=1+1", text=ANSWER % "puts(\"x;=1+1\"); fflush(stdout); _exit(3);")
    hand_in("empty", text="\n")
    hand_in("utf16", text=solution("online_step").encode("utf-16"))
    hand_in("large", text="/*" + " " * (70 << 10) + "*/")
    hand_in("renamed", name="Online-Step (1).c")
    hand_in("twice")
    hand_in("twice", name="older/online_step.c", text="int main(void) { return 0; }\n")
    hand_in("pipe").unlink()
    os.mkfifo("class/pipe/online_step.c")
    hand_in("link").unlink()
    os.symlink(place / "class/deep/a/b/online_step.c", "class/link/online_step.c")
    os.symlink(place / "class/deep", "class/linked")
    for unseen in ("a\u200bb", "a\u202eb"):
        hand_in(unseen, text="\n")
    (place / "class/bob-online_step.c").write_text(solution("online_step"))
    (place / "class/notes.txt").write_text("x")
    said = grade("class").out
    for student in ("-rf", "on Windows $x ü", "deep", "twice", "bob"):
        assert why(student) == (10, "right"), student
    for student, words in (("empty", "the file is empty"), ("utf16", "UTF-16"), ("large", "larger than 64 KiB"),
                           ("renamed", "'Online-Step (1).c' is not called online_step.c"), ("pipe", "is no file"),
                           ("link", "is a link"), ("linked", "not handed in")):
        assert why(student)[0] == 0 and words in why(student)[1], why(student)
    assert "'.hidden' is hidden: ignored" in said
    line = next(x for x in pathlib.Path("marks/gradebook.csv").read_text("utf-8").splitlines() if "=1+1" in x)
    assert line.startswith("\"'=1+1\",0") and ",\"online_step: " in line and line.endswith("x;=1+1\""), line  # no cell begins with =
    assert "'notes.txt' is neither a student's folder" in said and "linked: the folder is a link" in said
    assert {"a?b", "a?b~"} <= set(grades()["students"])
    assert "2 files are called online_step.c" in pathlib.Path("marks/feedback/twice.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("words,says", [
    (["--ex", "nosuch"], "EX: no stage or exercise 'nosuch'"),
    (["--submissions", ""], "SUBMISSIONS: make grade SUBMISSIONS=dir"),
    (["--submissions", "nowhere"], "SUBMISSIONS: 'nowhere'"),
    (["--submissions", "marks"], "SUBMISSIONS: nothing in"),
    (["--out", "class/out"], "OUT: 'class/out' lies in the folder"),
    (["--out", "late.csv"], "OUT: nothing can be written"),
    (["--late", "late.csv"], "line 1: 'x' is not 'student,hours'"),
])
def test_bad_requests_are_refused_in_one_line_before_the_work(place, words, says):
    hand_in("a")
    (place / "marks").mkdir()
    (place / "late.csv").write_text("x\n")
    done = grade("class", *words, want=2)
    assert says in done.err and done.err.count("\n") == 1 and not done.out


def test_strict_grades_in_a_complete_jail_only(place):
    hand_in("a")
    fake = place / "build"
    fake.mkdir()
    for made in ("libharness.a", "child.o", "ceiling"):
        (fake / made).symlink_to(BUILD / made)
    def kernel_with(answer):
        (fake / "jail").write_text(f'#!/bin/sh\n[ "$1" = -k ] && exit {answer}\nexec {BUILD}/jail "$@"\n')
        (fake / "jail").chmod(0o755)

    kernel_with(2)
    done = grade("class", "--strict", "--build", str(fake), want=3)
    assert "STRICT: memory and two descriptors; the compiler sees all files" in done.err and not pathlib.Path("marks/grades.json").exists()
    assert "isolation on this machine: memory and two" in grade("class", "--build", str(fake)).out
    kernel_with(0)
    assert "isolation" not in grade("class", "--strict", "--build", str(fake)).out
    assert grades()["isolation"].endswith("sees no solutions")


def test_term_ends_all_and_leaves_nothing(place):
    for student in "abcdef":  # more than run at once
        hand_in(student, text=HOSTILE["macros_without_end"][0])
    (place / "tmp").mkdir()
    words = [*GRADE, "--submissions", "class", "--out", "marks", "--ex", "online_step", *TOOL_WORDS]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env={**os.environ, "TMPDIR": str(place / "tmp")}) as grader:
        at_work = "grep -rlq A_16 tmp"  # behind the solution and the skeleton, which come first
        wait_for(lambda: not subprocess.run(at_work, shell=True, check=False, stderr=subprocess.DEVNULL).returncode)
        grader.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        said = grader.communicate(timeout=HANG)[1].decode()
    assert time.monotonic() - begin < 30  # a compiler would take that long for each of them
    assert grader.returncode == 128 + signal.SIGTERM and "Traceback" not in said
    assert not list((place / "tmp").iterdir())


def test_a_run_that_was_stopped_goes_on_and_a_second_week_adds(place):
    hand_in("anna")
    hand_in("anna", name="merge.c", text=solution("merge"))
    hand_in("ben", text=HOSTILE["crashes"][0])
    grade("class")
    first = pathlib.Path("marks/progress.jsonl").read_text(encoding="utf-8")
    pathlib.Path("marks/progress.jsonl").write_text(first.replace('"right"', '"kept"') + '["half a li')
    grade("class")
    assert why("anna") == (10, "kept")
    hand_in("anna", text=solution("online_step") + "\n")
    grade("class", ex="online_step merge")
    assert why("anna") == (10, "right") and why("anna", "merge") == (15, "right")
    pathlib.Path("class/anna/online_step.c").unlink()
    pathlib.Path("late.csv").write_text("anna,1\n")
    grade("class", "--late", "late.csv", ex="merge")
    assert grades()["students"]["anna"]["marks"] == 10 + 13.5
    anna = next(x for x in table("gradebook.csv") if x["Username"] == "anna")
    assert (anna["online_step"], anna["merge"], anna["total"], anna["late hours"]) == ("10.0", "13.5", "23.5", "1.0")
    assert "online_step" not in table("week_merge.csv")[0] and "Points Possible" in table("week_merge.canvas.csv")[0]["Student"]


def test_assignment_is_judged_with_the_students_own_earlier_files(place):
    for who, old, new in (("right", "", ""), ("wrong", "sum += a[d] * b[d]", "sum += a[d]"), ("none", "", "")):
        hand_in(who, name="a2_safe.c", text=solution("a2_safe"))
        if who != "none":
            hand_in(who, name="a1_naive.c", text=solution("a1_naive").replace(old, new))
    grade("class", ex="a2_safe")
    assert why("right", "a2_safe") == (40, "right") and why("wrong", "a2_safe")[0] <= 20
    assert "it includes a1_naive.c" in pathlib.Path("marks/feedback/wrong.txt").read_text(encoding="utf-8")
    assert why("none", "a2_safe")[0] == 0 and "a1_naive.c: No such file" in why("none", "a2_safe")[1]


def test_appeal_shows_every_case_of_the_students_own_seed(place):
    hand_in("anna", text=solution("online_step").replace("s.l *= expf(s.m - m_new);", ""))
    hand_in("ben", text=solution("online_step").replace("s.l *= expf(s.m - m_new);", ""))
    grade("class")
    said = {x: grade("class", "--appeal", x).out for x in ("anna", "ben")}
    assert said["anna"] != said["ben"]
    assert "the error is too large  got" in said["anna"] and " right\n" in said["anna"]
    assert pathlib.Path("marks/feedback/anna.txt").read_text(encoding="utf-8").split("    ")[1].split(":")[0] in said["anna"]
    assert "nobody is called 'carl'" in grade("class", "--appeal", "carl", want=2).err


# --- the jail of the compiler; that of the student's program: tests/test_exercises.py ---

OPEN = """#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) { (void)argc; printf("%d%d%d\\n", open(argv[1], O_RDONLY) >= 0,
    open(argv[1], O_WRONLY) >= 0, open("mine", O_CREAT | O_WRONLY, 0600) >= 0); }
"""


def test_compiler_sees_no_solutions_and_writes_its_own_folder_only(place):
    if run(BUILD / "jail", "-k", want=None).code:
        pytest.skip("this kernel has no complete jail")
    for name in ("tool", "work", "secret"):
        (place / name).mkdir()
    (place / "tool/open.c").write_text(OPEN)
    (place / "secret/x").write_text("x")
    run("cc", place / "tool/open.c", "-o", place / "tool/open")
    words = ["-r", place / "tool", "-w", place / "work", place / "tool/open"]
    said = run(BUILD / "jail", "-c", *words, place / "secret/x", cwd=place / "work").out
    assert said == "001\n", said
    assert run(BUILD / "jail", "-c", *words, place / "tool/open.c", cwd=place / "work").out == "101\n"
    assert run(BUILD / "jail", "-w", place, want=2).err.startswith("usage")

@pytest.mark.long
def test_a_hundred_students_have_the_same_marks_in_other_company_and_what_they_deserve(place):
    """Every fifth is hostile; then the hostile ones and the others apart.  What includes a file that is wrong may
    be wrong too."""
    def marks(folder):
        run(*GRADE, "--submissions", folder, "--out", f"{folder}.out", *TOOL_WORDS, timeout=None)
        students = json.loads((place / f"{folder}.out/grades.json").read_text(encoding="utf-8"))["students"]
        return {(who, x): y["marks"] for who, one in students.items() for x, y in one["exercises"].items()}

    spoiled = write_class(place / "class", 100)
    first = marks("class")
    (place / "apart").mkdir()
    for who in spoiled:
        if who.rsplit("_", 1)[0] in HOSTILE:
            (place / "class" / who).rename(place / "apart" / who)
    assert marks("class") | marks("apart") == first
    for (who, x), got in first.items():
        name, points = who.rsplit("_", 1)[0], EXERCISES[x].points
        if x == spoiled[who] and name in HOSTILE | MISTAKES:
            assert got == 0 if name in HOSTILE else got < points, (who, x, got)
        elif f"{spoiled[who]}.c" not in parts_of(EXERCISES[x], lambda _: b""):
            assert got == points, (who, x, got)
