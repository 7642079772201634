"""test_questions.py: do the questions at the end of the lessons work?

For each question the change that it asks for is made in a copy of the sources, the program is built,
and the commands that the question names are run: each must show what the question says, and the
unchanged program must not.  A question without an entry here is an error, and so is a command in a
lesson that its entry does not have.  Nothing is timed: a question that compares speeds needs a
changed program that is still right, and the variants that it names.  `make sanitize` is represented by
the one check that tells."""
import dataclasses
import os
import re
import shutil

import pytest

from helpers import BUILD, ROOT, SANITIZED, STAGES, copy_sources, make, run

PASSED, FAILED = 0, 1


@dataclasses.dataclass
class Change:
    """In `file`, the pattern `old`, which is there once, becomes `new`."""
    file: str
    old: str
    new: str


@dataclasses.dataclass
class Run:
    """A command of the question (`make stage 3` or `build/...`), the arguments with which it is run
    here, its exit status and what it prints; `same`: also without the change."""
    command: str
    arguments: str
    status: int = PASSED
    has: tuple = ()
    same: bool = False

    def complaint(self, done):
        """What differs from the question, or None."""
        text = done.out + done.err
        lacks = [f"does not print '{x}'" for x in self.has if not re.search(x, text)]
        if done.code != self.status:
            lacks.append(f"exit status {done.code}, not {self.status}")
        return f"{self.command}: {lacks[0]}:\n{text[-1500:]}" if lacks else None


SWAPPED = """    for (size_t d = 0; d < h->head_dim_v; d++) {
        o_i[d] = 0;
        for (size_t j = 0; j < h->seqlen_k; j++)
            if (s_i[j] != -INFINITY) o_i[d] += p_i[j] * v_row(h, j)[d];
    }
}
"""
VERBOSE = "check --quick --verbose --variant "
# (stage, question): (changes, runs)
QUESTIONS = {
    (1, 1): ([Change("variants/overflow.c", r"n \*= 1024", "n *= 256")],
             [Run("make trace 1", "trace --row 3,2,5,1", has=[r"\n +65536 +77\.63"])]),
    (1, 2): ([Change("stage.c", r"\bfloat l = 0;", "double l = 0;")],
             [Run("make stage 1", VERBOSE + "naive", same=True),
              Run("build/01_naive trace --row 88.5,88.5", "trace --row 88.5,88.5",
                  has=[r"\n +0 +88\.5 +0\.5\n"]),
              Run("build/01_naive trace --row 3,2,89,1", "trace --row 3,2,89,1",
                  has=[r"\n +2 +89 +nan\n"], same=True)]),
    (1, 3): ([Change("stage.c", r"(float \*p_i, float \*o_i\)\n\{\n)(.*\n)*?\}\n", r"\1" + SWAPPED)],
             [Run("build/01_naive bench --quick --op attention --variant naive", VERBOSE + "naive", has=["naive"], same=True)]),
    (2, 1): ([Change("stage.c", r"if \(m == -INFINITY\) m = 0;", "m = x[0] + 50;")],
             [Run("make stage 2", VERBOSE + "recompute", FAILED,
                  has=["FAILED .*mask_first", "passed .*random"])]),
    (2, 2): ([Change("stage.c", r"float m = -INFINITY;", "float m = 0;")],
             [Run("make stage 2", VERBOSE + "recompute", FAILED,
                  has=["FAILED .*shift_200"]),
              Run("build/02_safe_softmax trace --row", "trace --row -200", has=[r"-200 +0\n"])]),
    (2, 3): ([], [Run("make bench 2", "list", has=["recompute", "reload"], same=True)]),
    (3, 1): ([Change("stage.c", r"(?s)(float softmax_row.*?)l = l \* correction", r"\1l = l")],
             [Run("build/03_online_softmax check --quick --verbose --variant online | grep softmax",
                  VERBOSE + "online", FAILED,
                  has=["FAILED .*ascending", "passed .*descending", "passed .*equal"])]),
    (3, 2): ([Change("stage.c", r"float m_new = s > m \?", "float m_new = s > m + 8 ?")],
             [Run("make stage 3", VERBOSE + "online", has=["passed .*ascending"], same=True)]),
    (3, 3): ([], [Run("build/03_online_softmax check --verbose --variant online | grep scending",
                      "check --verbose --variant online",
                      has=[r"passed .*ascending\S* +f32 +\d", r"passed .*descending\S* +f32 +\d"],
                      same=True)]),
    (4, 1): ([Change("monoid.h", r"    if \(s == -INFINITY\) return 1;\n", "")],
             [Run("make stage 4", VERBOSE + "fold", FAILED,
                  has=["FAILED .*(nan_v|inf_v)", "FAILED .*mask_row", "FAILED .*mask_first",
                       "passed .*random"])]),
    (4, 2): ([Change("variants/pad.c", r"t >= rest \? -INFINITY", "t >= rest ? -10000.0f")],
             [Run("make stage 4", VERBOSE + "padded", FAILED,
                  has=["FAILED .*low", "FAILED .*mask_row.*\n.*wrong infinity",
                       "passed .*random"])]),
    (4, 3): ([Change("rungs/4_threads.c", r"#define PARTS 16\b",
                     "#include <omp.h>\n#define PARTS ((size_t)omp_get_max_threads())")],
             [Run("make stage 4", VERBOSE + "threads", same=True)]),
    (5, 1): ([Change("portable/01_tiled.cu", r"    __syncwarp\(\);\n", "")],
             [Run("build/05_flash_cuda check --variant tiled", VERBOSE + "tiled --device cpu",
                  FAILED, has=["FAILED .*random"])]),
    (5, 2): ([Change("portable/01_tiled.cu", r"    __syncwarp\(\); /\* the next query.*\n", "")],
             [Run("ONLY=thread make sanitize", VERBOSE + "tiled --device cpu", same=True)]),
    (5, 3): ([Change("portable/02_register_tiled.cu", r"shape<64, 16, 8, 4, 4>",
                     "shape<64, 8, 4, 4, 4>")],
             [Run("build/05_flash_cuda bench --variant register_tiled --dtype f32",
                  VERBOSE + "register_tiled --device cpu", same=True)]),
}


def named_by_lesson():
    """(stage, number): the commands that the questions of the lessons name."""
    commands = re.compile(r"`((?:\w+=\w+ )?(?:make|build/)[^`]*)`")
    found = {}
    for stage, name in enumerate(STAGES, 1):
        text = (ROOT / name / "README.md").read_text(encoding="utf-8").partition("\n## Exercises")[2]
        for number, words in re.findall(r"^(\d)\. ((?:.*\n)(?:   .*\n)*)", text, re.M):
            found[stage, int(number)] = sorted(re.sub(r"\s+", " ", x) for x in commands.findall(words))
    return found


def test_every_question_has_its_entry_and_its_commands():
    entries = {which: sorted(x.command for x in runs) for which, (_, runs) in QUESTIONS.items()}
    assert named_by_lesson() == entries


def executed(one):
    return run("./program", *one.arguments.split(), want=None)


@pytest.mark.skipif(SANITIZED, reason="the questions are about the build without sanitizers")
@pytest.mark.parametrize("number, question", QUESTIONS)
def test_question_works_as_its_lesson_says(place, number, question):
    """In a copy of the sources and the objects, which keep their times: nothing else is built."""
    stage = STAGES[number - 1]
    changes, runs = QUESTIONS[number, question]
    copy_sources(*{"common", stage, STAGES[3]})
    shutil.copy2(BUILD / stage, "build")
    os.symlink(f"build/{stage}", "program")
    for one in runs:
        complaint = one.complaint(executed(one))
        assert bool(complaint) != one.same, f"without the change: {complaint}"
    for change in changes:
        path = place / stage / change.file
        new, times = re.subn(change.old, change.new, path.read_text(encoding="utf-8"))
        assert times == 1, f"{change.file} has {times} of '{change.old}'"
        path.write_text(new, encoding="utf-8")
    if changes:
        make(f"build/{stage}")
        for one in runs:
            assert not (why := one.complaint(executed(one))), f"with the change: {why}"
