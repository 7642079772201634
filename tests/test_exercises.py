"""The judge of the exercises: right answers get all points, mistakes are seen by the family of cases
that is about them, and mischief gets nothing and stops nobody (tests/students.py)."""
import re
import sys
import time

import numpy as np
import pytest

from helpers import ROOT, SANITIZED, lines_of, run
from students import (ANSWER, DOORS, EXERCISES, HONEST, HOSTILE, MISTAKES, TOOLS, TOP, handed_out, mistaken, solution,
                      tool_words)

import child
from grade import Grader
from judge import Judge, problems_of
from submissions import contents

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer does not fit into the judge's limits")


@pytest.fixture(scope="module")
def judge():
    one = Judge(TOOLS)
    yield one
    one.close()


def verdict(judge, name, data, seed=0):
    return judge.verdict(EXERCISES[name], data if isinstance(data, bytes) else data.encode(), seed)


@pytest.mark.parametrize("name", EXERCISES)
def test_solution_passes_and_the_skeleton_has_each_family_of_the_point_wrong(name):
    grader = Grader(TOOLS)
    try:
        assert len(grader.prepare(EXERCISES[name])) >= 2  # stops unless the solution is right, and so on
        assert EXERCISES[name].hints and EXERCISES[name].time
        for student in ("anna", "ben", "carl"):  # whose cases differ
            assert verdict(grader, name, solution(name), grader.seed(student)).right, student
    finally:
        grader.close()


@pytest.mark.parametrize("student", MISTAKES)
def test_mistake_is_seen_by_the_family_that_is_about_it_and_costs_half(judge, student):
    name, text = mistaken(student)
    found = verdict(judge, name, text)
    assert not found.why, found.log
    failing = [x for x, right in found.families().items() if not right]
    assert MISTAKES[student][3] in failing, failing
    if MISTAKES[student][3] in EXERCISES[name].point:
        judge.counted = {name: list(found.families())}
        assert Grader.weighed(judge, EXERCISES[name], found) <= EXERCISES[name].points / 2


@pytest.mark.parametrize("student", HOSTILE)
def test_hostile_file_earns_nothing_and_is_named(judge, monkeypatch, student):
    monkeypatch.setattr("judge.COMPILE_S", 6)
    for name, seconds in (("CPU_S", 1), ("WALL_S", 3)):
        monkeypatch.setattr(child, name, seconds)
    found = verdict(judge, "online_step", HOSTILE[student][0])
    assert not found.right
    said = "\n".join([found.in_words()[0], *found.log] + [str(x) for _, x in found.failed])
    assert HOSTILE[student][1] in said, said
    assert "nologin" not in said and "solution begin" not in said


def test_child_has_no_door(judge):
    tests = "".join(f"if ({what}) printf(\"open: {name}\\n\");\n" for name, what in DOORS.items())
    found = verdict(judge, "online_step", ANSWER % (tests + "puts(\"tried\");"))
    assert not found.why and "tried" in found.printed and "open" not in found.printed, found.printed


def test_between_calls_the_process_stands_still_and_its_threads_are_limited(judge):
    """Else it could spin while the ceiling is measured, or take all processes of the machine."""
    spins = TOP + """static pthread_t thread;
static void *spin(void *x) { for (volatile int i = 0;; i++) continue; return x; }
void answer(const struct call *c)
{
    pthread_attr_t small;
    pthread_attr_init(&small), pthread_attr_setstacksize(&small, 16384);
    for (int i = 0; i == 0 || c->n[0]; i++) pthread_create(&thread, &small, spin, NULL);
    c->y[0][0] = 1;
}
"""
    folder = judge.place / "still"
    folder.mkdir()
    judge.program(EXERCISES["a4_tiled"], {"a4_tiled.c": spins.encode()}, folder)
    with child.Child(judge.jail, folder / "program", threads=True) as one:
        one.call([0], [], [1])
        begin = one.cpu()
        time.sleep(0.5)
        assert one.cpu() - begin < 0.02
        with pytest.raises(child.Died, match="more than 256 threads"):
            one.call([1], [], [1])


@pytest.mark.parametrize("how", HONEST)
def test_honest_file_is_right_however_it_looks(judge, place, how):
    (place / "x.c").write_bytes(HONEST[how](solution("online_step")))
    data, why = contents("x.c")
    assert not why and verdict(judge, "online_step", data).right


def test_compiler_names_the_line_of_the_student(judge):
    text = solution("online_step").replace("    float m_new = x", "    float m_new = y", 1)
    line = next(i for i, x in enumerate(text.split("\n"), 1) if "float m_new = y" in x)
    assert f"online_step.c:{line}:" in verdict(judge, "online_step", text).why
    found = verdict(judge, "online_step", text.replace("float m_new = y", "arived(1); float m_new = x"))
    assert "implicit declaration of function" in found.why and "arived" in found.why


@pytest.mark.parametrize("what,fails", [("slow", ["gpu_speed_13"]), ("wrong", ["gpu", "gpu_speed_5", "gpu_speed_13"])])
def test_what_a_gpu_answers_is_compared_and_its_share_counts(judge, monkeypatch, what, fails):
    """A GPU of our own making: the judge hands it inputs, and no answers."""
    def answers(source, q, k, v, causal, splits, shared, scale):
        assert source.name == "a5_fused.cu" and source.exists() and shared <= 20480
        if what == "wrong" and len(q[0]) > 100:
            raise child.Wrong("on the GPU: an illegal memory access was encountered (cuEventSynchronize)")
        found = []
        for one_q, one_k, one_v in zip(q, k, v):
            s = scale * one_q @ one_k.T
            if causal: s[~np.tri(*s.shape, s.shape[1] - s.shape[0], dtype=bool)] = -np.inf
            p = np.exp(s - s.max(axis=1, keepdims=True))
            found.append((p @ one_v / p.sum(axis=1, keepdims=True), s.max(axis=1) + np.log(p.sum(axis=1))))
        if what == "wrong": found[1][0][3, 7] += 2e-4
        return {"o": [x for x, _ in found], "lse": [x for _, x in found], "share": 7}
    monkeypatch.setattr(judge, "nvcc", "nvcc")
    monkeypatch.setattr(judge, "on_gpu", answers)
    found = verdict(judge, "a5_fused", solution("a5_fused"))
    assert [x for x, right in found.families().items() if not right] == fails
    assert what == "wrong" or found.shares == {"gpu_speed_5": 7, "gpu_speed_13": 7}
    monkeypatch.setattr(judge, "nvcc", "")
    found = verdict(judge, "a5_fused", solution("a5_fused"))
    assert found.right and "gpu" not in found.families() and "on the CPU alone" in found.notes[0]


def test_shares_asked_for_lie_between_slow_files_and_solutions_and_pages_say_them():
    asked = {x: problems_of(EXERCISES[x]).__globals__["PERCENT"] for x in ("a4_tiled", "a5_fused")}
    for row in lines_of(ROOT / "notes/results/course/shares.csv"):
        share, most = float(row["percent of the ceiling"]), asked[row["assignment"]][-1]
        assert share >= 1.2 * most if row["file"] == "solution" else share < most, row
    page = (ROOT / "notes/instructor.md").read_text(encoding="utf-8")
    for name, percents in asked.items():
        words = f"{', '.join(map(str, percents[:-1]))} and {percents[-1]} percent"
        assert words in EXERCISES[name].text and words in page


def functions_of(text):
    """The definitions of the functions of a file without comments, white space and their own name."""
    text = re.sub(r"/\*.*?\*/|//.*", "", text, flags=re.S)
    for name, rest in re.findall(r"^(?:static |extern \"C\" )[\w *]*?\b(\w+)(\([^;{]*\)\n?\{\n(?:.*\n)*?\}\n)", text, re.M):
        yield "".join(rest.replace(f"{name}(", "").split())


@pytest.mark.parametrize("name", [x for x in EXERCISES if x != "puzzles"])  # whose kernels are their own cases
def test_no_function_of_a_handout_or_lesson_is_that_of_the_solution(name):
    before = {*functions_of(handed_out(name))}
    own = [x for x in functions_of(solution(name)) if x not in before]
    assert own
    for other in [*map(handed_out, EXERCISES), *(x.read_text(encoding="utf-8") for x in ROOT.glob("0*/stage.c"))]:
        assert not {*own} & {*functions_of(other)}, f"in\n{other[:300]}"


def test_make_exercise_writes_the_file_once_judges_it_and_gives_hints(place):
    run("git", "clone", "-q", ROOT, place / "clone")
    for name in ("common/products/course", "04_monoid_tiled_cpu/exercises"):  # as it is here, committed or not
        run("cp", "-rT", ROOT / name, place / "clone" / name)
    clone, tool, options = place / "clone", [sys.executable, "common/products/course/exercises.py"], tool_words()
    mine = clone / "04_monoid_tiled_cpu/exercises/merge.c"
    mine.unlink(missing_ok=True)
    said = run(*tool, "run", "04_monoid_tiled_cpu", "--ex", "merge", *options, cwd=clone, want=1).out
    assert "wrote 04_monoid_tiled_cpu/exercises/merge.c" in said and "not begun" in said and "right: 0 of 1" in said
    assert "Hint" not in mine.read_text(encoding="utf-8") and mine.read_text(encoding="utf-8") == handed_out("merge")
    assert run("git", "status", "--porcelain", "--", mine, cwd=clone).out == ""  # ignored
    mine.write_text(solution("merge"), encoding="utf-8")
    said = run(*tool, "run", "04_monoid_tiled_cpu", "--ex", "merge", *options, cwd=clone).out
    assert "passed: all" in said and "wrote" not in said
    for step in (1, 2, 3, 3):
        said = run(*tool, "hint", "04_monoid_tiled_cpu", "--ex", "merge", "--build", place / "b", cwd=clone).out
        assert said.startswith(f"merge, hint {step} of 3: ")
    assert "no stage or exercise 'nosuch'" in run(*tool, "run", "--ex", "nosuch", *options, cwd=clone, want=2).err
    assert "minutes: " in run(*tool, "list", "04_monoid_tiled_cpu", cwd=clone).out
