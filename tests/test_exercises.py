"""The judge of the exercises: right answers get all points, mistakes are seen by the family of cases
that is about them, and mischief gets nothing and stops nobody (tests/students.py)."""
import pathlib
import shutil
import sys
import time

import numpy as np
import pytest

from helpers import ROOT, SANITIZED, lines_of, run
from students import (ANSWER, DOORS, EXERCISES, HONEST, HOSTILE, MISTAKES, TOOLS, TOP, handed_out, mistaken, solution,
                      tool_words)

import cases
import child
from grade import Grader
from judge import UNREADABLE, Judge, problems_of
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


class Anything:
    """In the place of a Child: questions and answers that no program of ours would send."""
    share = gpu = None
    EDGES = [*range(40), -1, 2 ** 31 - 1, 2 ** 31, -2 ** 31, 2 ** 63 - 1, -2 ** 63]

    def __init__(self, rng):
        self.rng, self.shared = rng, float(rng.choice([0, 1, np.nan]))

    def floats(self, n):
        return (np.frombuffer(self.rng.bytes(4 * n), "f4"), self.rng.standard_normal(n, "f4"),
                np.full(n, self.rng.choice([np.nan, np.inf, -3e38, 0, 1, 40]), "f4"))[self.rng.integers(3)]

    def ceiling(self, _):
        return 1e9

    def call(self, _numbers, _inputs, lengths, serve=None, **_):
        for _ in range(int(self.rng.integers(6)) if serve else 0):
            letter = self.rng.choice([*"kotf", chr(self.rng.integers(128))])
            a, b = (self.EDGES[i] for i in self.rng.integers(len(self.EDGES), size=2))
            serve(letter, a, b, self.floats(int(self.rng.choice([0, 1, 2, 16, 17, 1000]))))
        return [self.floats(int(n)) for n in lengths]

    def timed(self, _, *words):
        return self.call(*words), float(self.rng.choice([1e-9, 1, 1e9]))


@pytest.mark.parametrize("name", EXERCISES)
def test_whatever_a_process_sends_is_judged(name):
    """Nothing but what Judge.run() catches is raised, and no exercise is passed by chance."""
    rng, wrong = np.random.default_rng(1), 0
    with np.errstate(all="ignore"):
        tried = [x for x in problems_of(EXERCISES[name])(rng) if not x.on_gpu]
        for case in rng.permutation(np.array(tried, object))[:40]:
            try:
                case.judge(Anything(rng))
            except (child.Wrong, *UNREADABLE):
                wrong += 1
    assert wrong > len(tried[:40]) / 2


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


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_nvcc_compiles_kernels_in_the_jail_and_a_gpu_that_fails_is_that_students_alone(judge, monkeypatch):
    monkeypatch.setattr(judge, "nvcc", shutil.which("nvcc"))
    monkeypatch.setattr(judge, "toolchains", {pathlib.Path(judge.nvcc).resolve().parents[1]})
    monkeypatch.setattr("gpu.architecture", lambda: "sm_90")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # also where there is a GPU
    said = {}
    for name, text in (("right", solution("a5_fused")), ("host", solution("a5_fused").replace(
            "merge(struct arguments a)\n{", "merge(struct arguments a)\n{\n    head_of_all();").replace(
                'extern "C" __global__ void merge', "static void head_of_all(void) {}\nextern \"C\" __global__ void merge"))):
        found = verdict(judge, "a5_fused", text)
        said[name] = next(str(wrong) for case, wrong in found.failed if case.on_gpu)
        assert [x for x, right in found.families().items() if not right] == ["gpu", "gpu_speed_5", "gpu_speed_13"]
    assert said["right"].startswith("on the GPU: ") and "does not compile: a5_fused.cu(" in said["host"], said


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
    """name -> definition of the functions of a file."""
    found, lines = {}, text.split("\n")
    for i, line in enumerate(lines):
        if line.startswith("static ") and "(" in line and not line.endswith(";") and "=" not in line:
            end = next((k for k in range(i, len(lines)) if lines[k] == "}"), None)
            if end:
                found[line.split("(")[0].split()[-1].lstrip("*")] = "\n".join(lines[i:end + 1])
    return found


@pytest.mark.parametrize("name", [x for x in EXERCISES if x != "puzzles"])  # whose kernels are their own cases
def test_no_function_of_a_handout_or_lesson_is_an_answer(judge, name):
    """Every function of them, under the name that the exercise asks for."""
    text = handed_out(name)
    asked, old = list(functions_of(text.split("/* The judge's call. */")[0]).items())[-1]
    if EXERCISES[name].cuda:
        own = functions_of(text.split("static __global__")[0])
        asked, old = list(own.items())[-1]
    sources = {x: handed_out(x) for x in EXERCISES}
    sources |= {str(x): x.read_text(encoding="utf-8") for x in [*ROOT.glob("0*/stage.c"), *ROOT.glob("common/products/course/*.h")]}
    arguments = lambda x: x.split("{")[0].count(",")  # noqa: E731
    for where, other in sources.items():
        for theirs, function in functions_of(other).items():
            if arguments(function) == arguments(old) and function != old:
                found = verdict(judge, name, text.replace(old, function.replace(f"{theirs}(", f"{asked}(", 1)))
                assert not found.right, f"{theirs}() of {where} answers {name}"


def test_wrong_names_what_is_wrong():
    want = np.array([[0.5, 0.5]])
    cases.compare("y", np.full(2, 0.5, np.float32), want, 1e-6)
    for value, why in ((0.6, "too large"), (np.nan, "NaN where"), (cases.OF_CHILD.view(np.float32), "not written")):
        with pytest.raises(child.Wrong) as error:
            cases.compare("y", np.array([0.5, value], np.float32), want, 1e-6)
        assert why in str(error.value) and "y[0, 1]" in str(error.value)


def test_allowed_error_scales_with_the_values_and_dead_ones_allow_nothing():
    q, k, v, bias, causal, scale = cases.head("random", np.random.default_rng(1), (9, 40, 16, 12), 0)
    one, small = (cases.head_wants((q, k, x, bias, causal, scale))["o"][1] for x in (v, v * np.float32(2 ** -20)))
    assert np.allclose(small, one * 2.0 ** -20, rtol=1e-6)
    k[0], v[0] = -60 * q[0], 1e6
    assert cases.head_wants((q[:1], k, v, None, causal, scale))["o"][1].max() < 1e-4


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
