"""The judge of the exercises: right answers get all points, mistakes are seen by the family of cases
that is about them, and mischief gets nothing and stops nobody (tests/students.py)."""
import sys

import numpy as np
import pytest

from helpers import ROOT, SANITIZED, run
from students import (EXERCISES, HONEST, MISCHIEF, MISTAKES, TOOLS, formed, handed_out, mischievous,
                      mistaken, solution, tool_words)

import cases
from exercises import TIME, Exercise
from forms import forms_of, parts_of
from grade import Grader
from judge import Judge

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer does not fit into the judge's limits")


class Form(Exercise):
    """An exercise in another form of its task."""

    def __init__(self, exercise, task):
        super().__init__(exercise.source)
        self.name, self.form = f"{exercise.name}_{task}", handed_out(exercise.name, task)

    def skeleton(self):
        return self.form


@pytest.fixture(scope="module")
def judge():
    one = Judge(TOOLS)
    one.found = {}
    yield one
    one.close()


def verdict(judge, name, data, exercise=None):
    x = exercise or EXERCISES[name]
    if name not in judge.found:
        judge.found[name] = judge.write_cases(EXERCISES[name], 0)
    return judge.verdict(x, data if isinstance(data, bytes) else data.encode(), judge.found[name])


@pytest.mark.parametrize("name", EXERCISES)
def test_solution_passes_skeleton_fails_and_half_of_the_points_can_be_lost(name):
    grader = Grader(TOOLS)
    try:
        grader.prepare(EXERCISES[name])  # stops unless the solution is right, and so on
        assert len(grader.cases[name]) >= 15
        assert len(grader.counted[name]) >= 3
    finally:
        grader.close()


@pytest.mark.parametrize("student", MISTAKES)
def test_mistake_is_seen_by_the_family_that_is_about_it(judge, student):
    name, text = mistaken(student)
    found = verdict(judge, name, text)
    assert not found.why, found.log
    failing = [x for x, right in found.families().items() if not right]
    assert MISTAKES[student][3] in failing, failing


@pytest.mark.parametrize("student", MISCHIEF)
def test_mischief_earns_nothing_and_is_named(judge, monkeypatch, student):
    if "end" in student:  # others never meet these limits, however busy the machine is
        monkeypatch.setattr("builder.COMPILE_S", 4)
        monkeypatch.setattr("judge.CASE_S", 1)
    found = verdict(judge, "online_step", mischievous(student))
    assert not found.right
    why = found.in_words()[0]
    assert MISCHIEF[student][1] in why, why
    assert "nologin" not in found.log and "solution begin" not in found.log


@pytest.mark.parametrize("how", HONEST)
def test_honest_file_is_right_however_it_looks(judge, how):
    found = verdict(judge, "online_step", HONEST[how](solution("online_step")))
    assert found.right, found.why + found.log
    changed = "given" in how
    assert bool(found.note) == changed, found.note


@pytest.mark.parametrize("task,infinity", [(0, "-INFINITY"), (1, "INFINITY")])
def test_unit_may_be_known_by_its_maximum_as_in_the_lesson(judge, task, infinity):
    """The way of aggregate_merge() in monoid.h, also where scores are NaN."""
    assert "if (y->m == -INFINITY) return;" in (ROOT / "04_monoid_tiled_cpu/monoid.h").read_text(encoding="utf-8")
    text = solution("merge", task)
    lesson = f"""    if (y->m == {infinity}) return;
    if (x->m == {infinity}) {{
        x->m = y->m;
        x->l = y->l;
        for (size_t c = 0; c < h->head_dim_v; c++) x->o[c] = y->o[c];
        return;
    }}"""
    assert text.count("    if (y->l == 0) return; /* the unit */") == 1
    found = verdict(judge, "merge", text.replace("    if (y->l == 0) return; /* the unit */", lesson),
                    Form(EXERCISES["merge"], task))
    assert found.right, [x[0].name for x in found.failed]


def test_compiler_names_the_line_of_the_student(judge):
    text = solution("online_step").replace("    float m_new = x", "    float m_new = y", 1)
    line = text.split("\n").index("    float m_new = y > s.m ? x : s.m;") + 1
    found = verdict(judge, "online_step", text)
    assert f"online_step.c:{line}:" in found.why


def test_what_it_said_is_of_the_failing_case(judge):
    text = solution("online_step").replace("    s.m = m_new;", "    s.m = m_new;\n    printf(\"x is %g\\n\", x);\n"
                                           "    if (x > 1e29f) s.l = 7;").replace(
        "added here */\n", "added here */\n#include <stdio.h>\n")
    case, _, said = verdict(judge, "online_step", text).smallest
    assert case.family == "softmax-vast"
    assert "x is " in said and "e+3" in said


VARIED = [(name, now, last) for name in EXERCISES for now in range(forms_of(
    EXERCISES[name].source.read_text(encoding="utf-8"))) for last in range(forms_of(
        EXERCISES[name].source.read_text(encoding="utf-8"))) if forms_of(
            EXERCISES[name].source.read_text(encoding="utf-8")) > 1]


@pytest.mark.parametrize("name,now,last", VARIED)
def test_last_years_answer_is_wrong_in_this_years_form(judge, name, now, last):
    form = Form(EXERCISES[name], now)
    theirs = parts_of(solution(name, last))[1]
    before, _, behind = parts_of(form.skeleton())
    found = verdict(judge, name, "\n".join([*before, *theirs, *behind]), form)
    assert found.right == (now == last), found.why + str([x[0].name for x in found.failed][:3])


def functions_of(text):
    """name -> definition of the functions of a file."""
    found, lines = {}, text.split("\n")
    for i, line in enumerate(lines):
        if line.startswith("static ") and "(" in line and not line.endswith(";") and "=" not in line:
            end = next((k for k in range(i, len(lines)) if lines[k] == "}"), None)
            if end:
                found[line.split("(")[0].split()[-1].lstrip("*")] = "\n".join(lines[i:end + 1])
    return found


@pytest.mark.parametrize("name", EXERCISES)
def test_no_answer_is_in_another_handout_or_lesson(judge, name):
    """The student's function, taken from anywhere else where a function has its name."""
    before, part, behind = parts_of(handed_out(name))
    wanted = list(functions_of("\n".join(part)))[-1]
    sources = {x: handed_out(x) for x in EXERCISES if x != name}
    sources |= {str(x): x.read_text(encoding="utf-8") for x in ROOT.glob("0*/stage.c")}
    for where, text in sources.items():
        other = functions_of(text).get(wanted)
        if other:
            given = "extern void watch(const char *, size_t, double);\n" if "watch" in other else ""
            found = verdict(judge, name, "\n".join([*before, given + other, *behind]))
            assert not found.right, f"{wanted}() of {where} answers {name}"


NAIVE = """static void naive(const struct head *h, size_t i, float *o, float *m, float *l)
{
    *m = -INFINITY, *l = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = 0, b = bias_of(h, i, j), before = *m;
        if (b == -INFINITY) continue;
        for (size_t d = 0; d < h->head_dim; d++) s += q_row(h, i)[d] * k_row(h, j)[d];
        s = h->scale * s + b;
        *m = *m > s ? *m : s;
        float c = before == *m ? 1 : expf(before - *m), w = expf(s - *m);
        *l = *l * c + w;
        for (size_t d = 0; d < h->head_dim_v; d++) o[d] = o[d] * c + w * v_row(h, j)[d];
    }
}
"""
WHOLE = "float m, l, *o = %s;\n naive(h, i, o, &m, &l);\n for (size_t d = 0; d < h->head_dim_v; d++) " \
    "o[d] = l == 0 ? 0 : o[d] / l;\n"
FOUND = "size_t i = (size_t)(%s - h->o) / h->head_dim_v;\n"


@pytest.mark.parametrize("name,body", [
    ("weighted_sum", FOUND % "o_i" + WHOLE % "o_i" + "return l * expf(m);"),
    ("masked_sum", WHOLE % "o_i"),
    ("merge", FOUND % "x->o" + WHOLE % "x->o" + "x->m = m, x->l = l;"),
    ("combine", FOUND % "o_i" + WHOLE % "o_i" + "return m + logf(l);"),
    ("ragged_tiles", "naive(h, i, x->o, &x->m, &x->l);"),
    ("tile", "for (size_t i = 0; i < h->seqlen_q; i++) {" + WHOLE % "o_row(h, i)" + "h->lse[i] = m + logf(l);}"),
])
def test_one_attention_does_not_answer_for_all(judge, name, body):
    """Each of these is right attention, written where a step of it is asked for."""
    text = handed_out(name)
    asked = list(functions_of("\n".join(parts_of(text)[1])).values())[-1]
    found = verdict(judge, name, text.replace(asked, NAIVE + asked[:asked.index("{\n") + 2] + body + "}"))
    assert not found.why, found.why + found.log
    assert not found.right


# --- the cases themselves ---

def test_wrong_names_what_is_wrong():
    case = cases.rows_case("random", "softmax", np.zeros((1, 2), np.float32))
    half = np.full((1, 2), 0.5, np.float32)
    assert case.wrong({"y": half}) is None
    for value, why in ((0.6, "too large"), (np.nan, "NaN where"), (cases.UNWRITTEN.view(np.float32), "not written")):
        bad = half.copy()
        bad[0, 1] = value
        assert why in case.wrong({"y": bad}).why and case.wrong({"y": bad}).where == "y[0, 1]"
    assert "shape" in str(case.wrong({"y": half[0]}))
    assert "shape" in str(case.wrong({"y": half.astype(np.float64)}))


def test_seed_changes_the_numbers_and_draw_adds_hidden_shapes():
    one, same, other = (cases.cases_of("softmax", np.inf, True, False, seed, 3) for seed in (1, 1, 2))
    assert [x.name for x in one] == [x.name for x in same]
    assert all((x.inputs["x"] == y.inputs["x"]).all() or np.isnan(x.inputs["x"]).any()
               for x, y in zip(one, same))
    assert not (one[1].inputs["x"] == other[1].inputs["x"]).all()
    assert sum("hidden" in x.name for x in one) == 3


# --- make exercise, in a clone of its own folder ---

def test_make_exercise_writes_the_file_once_judges_it_and_gives_hints(place):
    run("git", "clone", "-q", ROOT, place / "clone")
    for name in ("common/products/course", "04_monoid_tiled_cpu/exercises", "05_flash_cuda/exercises"):  # as it is here, committed or not
        run("cp", "-rT", ROOT / name, place / "clone" / name)
    clone, tool, options = place / "clone", [sys.executable, "common/products/course/exercises.py"], tool_words()
    mine = clone / "04_monoid_tiled_cpu/exercises/merge.c"
    mine.unlink(missing_ok=True)
    said = run(*tool, "run", "04_monoid_tiled_cpu", "--ex", "merge", *options, cwd=clone, want=1).out
    assert "wrote 04_monoid_tiled_cpu/exercises/merge.c" in said and "not begun" in said and "right: 0 of 1" in said
    assert "to see it again:" in said and " run --scale" in said
    assert "Hint" not in mine.read_text(encoding="utf-8") and mine.read_text(encoding="utf-8") == EXERCISES["merge"].skeleton()
    assert run("git", "status", "--porcelain", "--", mine, cwd=clone).out == ""  # ignored
    mine.write_text(solution("merge"), encoding="utf-8")
    said = run(*tool, "run", "04_monoid_tiled_cpu", "--ex", "merge", *options, cwd=clone).out
    assert "passed: all" in said and "wrote" not in said
    for step in (1, 2, 3, 3):
        said = run(*tool, "hint", "04_monoid_tiled_cpu", "--ex", "merge", "--build", place / "b", cwd=clone).out
        assert said.startswith(f"merge, hint {step} of 3: ")
    kernel = clone / "05_flash_cuda/exercises/push_tile.cu"
    kernel.write_text(solution("push_tile"), encoding="utf-8")
    (place / "nvcc").write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec cc -x c -c /dev/null -o "$1"\n')
    (place / "nvcc").chmod(0o755)  # of a GPU that is not here: the CPU's kernel is linked with nothing
    said = run(*tool, "run", "05_flash_cuda", "--ex", "push_tile", *options, "--nvcc", place / "nvcc", cwd=clone).out
    assert "and on the GPU:" in said and " 0 failed" in said
    assert "no exercise 'nosuch'" in run(*tool, "run", "--ex", "nosuch", *options, cwd=clone, want=2).err
    assert "minutes: " in run(*tool, "list", "04_monoid_tiled_cpu", cwd=clone).out


def test_every_exercise_says_its_time_and_has_hints():
    for name, x in EXERCISES.items():
        assert x.said(TIME) and len(x.hints) >= 1, name
        assert "Hint:" not in x.skeleton() and "solution" not in parts_of(x.skeleton())[1], name
        assert formed(x.skeleton()) == x.skeleton(), name
