"""Projects are marked by their speed: what is right earns by its share, and the known ways of looking
fast earn nothing.  Each cheat is the project online_softmax as it was handed out, with something put in
front of its work where rows are long."""
import json
import pathlib
import signal
import sys
import types

import pytest

from helpers import ROOT, SANITIZED, run
import students
from students import includes, tool_words

import projects
import timing
from projects import ProjectGrader
from builder import Refused, Shortage

FAST = "-O3 -march=native -fno-math-errno -fno-trapping-math -fopenmp -ffp-contract=off"
TOOLS = types.SimpleNamespace(**{**vars(students.TOOLS), "cc": f"cc -std=c11 -D_GNU_SOURCE {FAST}"})
TOOL_WORDS = tool_words(TOOLS)
pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer does not fit into the judge's limits")
START = ROOT / "03_online_softmax/exercises/projects/online_softmax.c"
FUNCTION = "static void softmax(const struct problem *p, const struct arrays *a)\n"
INCLUDES = includes("fcntl pthread sched signal stdio stdlib string sys/ioctl time unistd")
# name: (before the function, at its start where the problem is large, what the judge says).  None: what
# it tries must fail, and it is timed: had it not failed, an answer would be missing or wrong.
CHEATS = {
    "every_other_round": ("static int n;\n", "if (n++ % 2) return;", "y["),
    "knows_inputs_by_their_first_number": (
        "static float first;\n", "if (x[0] == first) return;\n        first = x[0];", "y["),
    "works_later_on_a_thread": (
        "static void *later(void *q) { return q; }\n",
        "pthread_t t; if (!pthread_create(&t, NULL, later, NULL)) return;", None),
    "every_other_row": ("", "struct problem half = *p; half.rows /= 2;\n        slow(&half, a);\n        return;", "y["),
    "no_maximum_for_large_problems": (
        "", "for (size_t i = 0; i < p->rows; i++) {\n            float l = 0;\n"
        "            for (size_t j = 0; j < p->cols; j++) l += y[i * p->cols + j] = expf(x[i * p->cols + j]);\n"
        "            for (size_t j = 0; j < p->cols; j++) y[i * p->cols + j] /= l;\n        }\n        return;", "y["),
    "cheap_exponential": (
        "", "for (size_t i = 0; i < p->rows; i++) {\n            float l = 0, m = x[i * p->cols];\n"
        "            for (size_t j = 0; j < p->cols; j++) m = fmaxf(m, x[i * p->cols + j]);\n"
        "            for (size_t j = 0; j < p->cols; j++) l += y[i * p->cols + j] = "
        "powf(fmaxf(0, 1 + (x[i * p->cols + j] - m) / 64), 64);\n"
        "            for (size_t j = 0; j < p->cols; j++) y[i * p->cols + j] /= l;\n        }\n        return;", "y["),
    "easy_inputs": ("", "for (size_t i = 0; i < p->rows * p->cols; i++) ((float *)x)[i] = 0, "
                    "y[i] = 1.0f / (float)p->cols;\n        return;", "y["),
    "patches_the_timer": ("int clock_gettime(clockid_t c, struct timespec *t) { return (void)c, (void)t, 0; }\n", "", None),
    "another_core": ("", "cpu_set_t all; memset(&all, 255, sizeof all);\n"
                     "        if (!sched_setaffinity(0, sizeof all, &all)) return;", None),
    "counts_the_bytes_of_the_judge": (  # does the next round wait already?
        "", "int n = 0; ioctl(0, FIONREAD, &n);\n        if (n > 0) return;", None),
    "takes_the_judges_bytes": (
        "", "static char bytes[64]; fcntl(0, F_SETFL, O_NONBLOCK);\n        read(0, bytes, 64);\n"
        "        fcntl(0, F_SETFL, 0);", None),
    "answers_for_the_harness": ("", "for (int i = 0; i < 40; i++) write(1, \"\", 1);", "timed"),
    "ends_early": ("static int n;\n", "if (n++ == 5) _exit(0);", ""),
    "stops_the_judge": ("", "if (!kill(getppid(), SIGSTOP) || !kill(-1, SIGSTOP)) return;", None),
    "reads_the_judge": ("", "char path[40]; snprintf(path, 40, \"/proc/%d/mem\", getppid());\n"
                        "        if (open(path, O_RDONLY) >= 0) return;", None),
    "keeps_answers_in_a_file": (
        "", "if (open(\"/tmp/answers\", O_RDWR | O_CREAT, 0600) >= 0 || open(\"/dev/shm/answers\", O_RDWR | "
        "O_CREAT, 0600) >= 0) return;", None),
    "behind_the_output": ("", "slow(p, a);\n        memset(y + p->rows * p->cols, 1, 1 << 22);\n        return;", ""),
    "in_the_place_of_the_harness": (
        "static int answers(int argc, char **argv, const struct stage *stage)\n{\n    char byte;\n    if (argc < 5 || "
        "strcmp(argv[1], \"softmax\")) return stage_main(argc, argv, stage);\n    while (read(0, &byte, 1) == 1) "
        "write(1, &byte, 1), read(0, &byte, 1);\n    return 0;\n}\n#define stage_main answers\n", "", None),
    "without_its_descriptor": ("#define exercise mine\n", "", "timed: crashed"),
    "another_kind_of_descriptor": ("_Thread_local int exercise = 1;\n#define exercise mine\n", "", "PROGRAM(...)"),
}


def cheating(name):
    before, start, _ = CHEATS[name]
    head, body = START.read_text(encoding="utf-8").split(FUNCTION)
    slow = body[:body.index("\n}\n") + 3]
    large = "    if (p->rows * p->cols > 100000) {\n        %s\n    }\n" % start if start else ""
    opening = "    float *y = a->y;\n"
    return INCLUDES + head + FUNCTION.replace("softmax(", "slow(") + slow + "\n" + before + FUNCTION + \
        body.replace(opening, opening + large, 1)


@pytest.fixture(scope="module")
def grader():
    one = ProjectGrader(TOOLS)
    yield one
    one.close()


@pytest.fixture(scope="module")
def project():
    return next(x for x in projects.projects() if x.name == "online_softmax")


@pytest.fixture
def clock(grader, project, monkeypatch):
    """Programs run and their results are compared, but the seconds are `given`: a number, or one for
    each run.  passed: what each really took; run: what runs a program."""
    one = types.SimpleNamespace(run=grader.seconds, passed={}, given={
        "nothing": 1.0, "copy": 2.0, "solution": 3.0, "it": 11.0})

    def seconds(project, folder, what, inputs, rounds):
        taken, got, why = one.run(project, folder, what, inputs, rounds)
        who = "solution" if folder == grader.others.get(project.name) else what
        one.passed.setdefault(who, []).append(taken)
        now = one.given[who]
        work = len(rounds) * next(iter(inputs.values())).size * (8 if "x" in inputs else 4 * inputs["q"].shape[2])
        return work * (now if isinstance(now, float) else now[min(len(one.passed[who]), len(now)) - 1]), got, why

    monkeypatch.setattr(timing, "RUNS", 2)
    monkeypatch.setattr(timing, "MOST_RUNS", 4)
    monkeypatch.setattr(timing, "LEAST_ROUNDS", 8)  # the sixth is where one ends early
    monkeypatch.setattr(grader, "seconds", seconds)
    monkeypatch.setattr(grader, "fma", lambda: 1e-9)  # GFLOP/s: a flop takes a second
    return one


@pytest.mark.parametrize("name", CHEATS)
def test_looking_fast_earns_nothing(grader, project, clock, name):
    found = grader.judged(project, cheating(name).encode(), 0)
    words = CHEATS[name][2]
    if words is None:  # right in all rounds of both runs, and the time is the kernel's
        assert found["timed"] and found["timed"]["share"] == 10, found
        assert found["marks"] == project.marks(10, 0) > 0, found
        assert len(clock.passed["it"]) == 2
        assert min(clock.passed["it"]) > 0
    else:
        assert not found["timed"] and words in found["why"] and found["marks"] == 0, found
    assert not pathlib.Path("/tmp/answers").exists()


@pytest.mark.parametrize("name", ["flash_attention", "gpu_softmax", "gpu_attention"])
def test_project_is_right_as_handed_out_and_with_its_solution(grader, clock, name):
    x = next(x for x in projects.projects() if x.name == name)
    for path in filter(None, (x.file, x.solution)):
        found = grader.judged(x, path.read_bytes(), 0)
        assert found["why"].startswith("right in all"), found
        assert bool(found["timed"]) != x.on_gpu and (found["marks"] == 0) == x.on_gpu
        assert x.on_gpu or found["timed"]["share"] == 10
    wrong = x.file.read_text(encoding="utf-8").replace("l == 0", "l > 0", 1)
    assert "the speed does not count" in grader.judged(x, wrong.encode(), 0)["why"]


@pytest.mark.parametrize("given,runs,says", [
    ({}, 2, ""),
    ({"nothing": [2.0, 2.0, 1.0]}, 3, ""),  # the third run is quiet
    ({"solution": [51.0, 51.0, 3.0]}, 3, ""),
    ({"it": 1.5}, 4, "faster than possible"),
    ({"it": 0.5}, 4, "faster than possible"),
    ({"copy": 1.0}, 4, "too busy"),         # the machine is to blame, not the program
    ({"copy": 0.5, "it": 0.4}, 4, "too busy"),
    ({"solution": 51.0}, 4, "reaches 2 % of copy .* too busy"),
    ({"solution": 1.5}, 4, "too busy"),
])
def test_noise_is_measured_again_and_never_blamed_on_a_program(
        grader, project, clock, monkeypatch, given, runs, says):
    clock.run = lambda *_: (0, {}, "")
    clock.given.update(given)
    monkeypatch.setattr(grader, "make_timeable", lambda folder: None)
    monkeypatch.setattr(timing, "wrong_with", lambda *_: None)
    monkeypatch.setitem(grader.others, project.name, pathlib.Path("solution"))
    if says:
        with pytest.raises(Shortage if "busy" in says else Refused, match=says):
            grader.timed(project, pathlib.Path("its"))
    else:
        assert grader.timed(project, pathlib.Path("its"))["share"] == 10
    assert len(clock.passed["it"]) == runs


def test_a_project_is_tried_at_home():
    said = run(sys.executable, ROOT / "common/products/course/projects.py", "run", "--ex", "gpu_softmax", *TOOL_WORDS).out
    assert "right in all" in said and "no GPU was found" in said


def test_marks_follow_the_share(project):
    half, all_ = project.half_at, project.all_at
    assert [project.marks(x, 1) for x in (1, 1.2, half, all_, 2 * all_)] == [0, 0, 20, 40, 40]
    assert 0 < project.marks((1 + half) / 2, 1) < 20 < project.marks((half + all_) / 2, 1) < 40


def test_targets_name_a_share_for_every_gpu():
    assert projects.targets("gpu_softmax", "NVIDIA H200")[1] > projects.targets("gpu_softmax", "NVIDIA T4")[1]
    assert projects.targets("gpu_attention", "something new")[0] > 0


def test_rounds_change_what_the_judge_changes(grader, project):
    inputs, folder = timing.fresh(project.op, project.shape), grader.folder()
    rounds = timing.secret_rounds(inputs, 3)
    grader.built(project, project.solution.read_text(encoding="utf-8"), folder)
    grader.make_timeable(folder)
    _, got, why = grader.seconds(project, folder, "it", inputs, rounds)
    assert not why and timing.wrong_with(inputs, rounds, dict(got)) is None
    assert timing.wrong_with(inputs, rounds[:2], dict(got)) is not None
    assert timing.wrong_with(inputs, [rounds[0], (rounds[1][0], rounds[1][1] ^ 1), rounds[2]], dict(got)) is not None


def write_class(place):
    for name, path in (("fast", project_file("solutions")), ("slow", START), ("same", START)):
        (place / "class" / name).mkdir(parents=True)
        text = path.read_text(encoding="utf-8") + "/* mine */\n" * (name != "same")
        (place / "class" / name / "online_softmax.c").write_text(text, encoding="utf-8")


def project_file(folder):
    return START.parent / folder / START.name


def test_grade_projects_writes_marks_and_late_days(place, monkeypatch):
    """In this process, with seconds that depend on what a program is."""
    write_class(place)
    (place / "late.csv").write_text("fast,20\n")
    fast, real = project_file("solutions").read_text(encoding="utf-8"), ProjectGrader.seconds

    def seconds(self, project, folder, what, inputs, rounds):
        _, got, why = real(self, project, folder, what, inputs, rounds)
        is_fast = what == "it" and (folder / START.name).read_text(encoding="utf-8").startswith(fast)
        taken = {"nothing": 1, "copy": 2, "it": 4 if is_fast else 51}[what]
        return taken * len(rounds) * 8.0 * inputs["x"].size, got, why

    monkeypatch.setattr(timing, "RUNS", 1)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest keeps its own
    monkeypatch.setattr(ProjectGrader, "seconds", seconds)
    monkeypatch.setattr(sys, "argv", ["projects.py", "grade", "--submissions", "class", "--out", "marks", "--ex",
                                      "online_softmax", "--late", "late.csv", *TOOL_WORDS])
    assert projects.main() == 0
    students = json.loads((place / "marks/projects.json").read_text(encoding="utf-8"))["students"]
    assert [students[x]["marks"] for x in ("fast", "slow", "same")] == [36, 0, 0]
    assert students["fast"]["exercises"]["online_softmax"]["timed"]["share"] == 33.333
    assert "as it was handed out" in (place / "marks/feedback/same-projects.txt").read_text(encoding="utf-8")
