"""questions.py: do the questions at the end of the lessons work?

    questions.py [--build build] [--static] [STAGE ...]

For each question the change that it asks for is made in a copy of the sources, the program
is built, and the commands that the question names are run: each must show what the question
says, and the unchanged program must not.  A question without an entry here is an error, and
so is a command in a lesson that its entry does not have.  --static looks no further than that:
are the commands the same, and is what a change replaces still there?

Nothing is timed: a question that compares speeds needs a changed program that is still
right, and the variants that it names.  `make test` and `make sanitize` are represented by
the one check of theirs that tells.  Exit status: 0 all work; 1 one does not."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSED, FAILED = 0, 1


class Change:
    """In `file`, the pattern `old` becomes `new`; it must be there `times` times."""

    def __init__(self, file, old, new, times=1):
        self.file, self.old, self.new, self.times = file, old, new, times


class Run:
    """A command of the question (`make stage 3` or `build/...`), the arguments with which it
    is run here, its exit status and what it prints; `same`: also without the change."""

    def __init__(self, command, arguments, status=PASSED, has=(), hasnt=(), same=False):
        self.command, self.arguments, self.status = command, arguments, status
        self.has, self.hasnt, self.same = has, hasnt, same

    def complaint(self, status, text):
        if status != self.status:
            return f"exit status {status}, not {self.status}"
        for pattern in self.has:
            if not re.search(pattern, text):
                return f"does not print '{pattern}'"
        for pattern in self.hasnt:
            if re.search(pattern, text):
                return f"prints '{pattern}'"
        return None


STAGES = {1: "01_naive", 2: "02_safe_softmax", 3: "03_online_softmax",
          4: "04_monoid_tiled_cpu", 5: "05_flash_cuda"}
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
                  has=[r"\n +2 +89 +nan\n"])]),
    (1, 3): ([Change("stage.c", r"(float \*p_i, float \*o_i\)\n\{\n)(.*\n)*?\}\n", r"\1" + SWAPPED)],
             [Run("make bench 1", VERBOSE + "naive", has=["naive"], same=True)]),
    (2, 1): ([Change("stage.c", r"if \(m == -INFINITY\) m = 0;", "m = x[0] + 50;")],
             [Run("make stage 2", VERBOSE + "recompute", FAILED,
                  has=["FAILED .*mask_first", "passed .*random"])]),
    (2, 2): ([Change("stage.c", r"float m = -INFINITY;", "float m = 0;")],
             [Run("make stage 2", VERBOSE + "recompute", FAILED,
                  has=["FAILED .*shift_200"])]),
    (2, 3): ([], [Run("make bench 2", "list", has=["recompute", "reload"], same=True)]),
    (3, 1): ([Change("stage.c", r"l = l \* correction", "l = l")],
             [Run("make stage 3", VERBOSE + "online", FAILED,
                  has=["FAILED .*ascending", "passed .*descending", "passed .*equal"])]),
    (3, 2): ([Change("stage.c", r"float m_new = s > m \?", "float m_new = s > m + 8 ?")],
             [Run("make stage 3", VERBOSE + "online", has=["passed .*ascending"], same=True)]),
    (3, 3): ([], [Run("build/03_online_softmax check --verbose --variant online | grep scending",
                      "check --verbose --variant online",
                      has=[r"passed .*ascending\S* +f32 +\d", r"passed .*descending\S* +f32 +\d"],
                      same=True)]),
    (4, 1): ([Change("monoid.h", r"(aggregate_merge\((?:.*\n)*?\{\n)(?:.*\n)*?(    float m_new)",
                     r"\1\2"),
              Change("monoid.h", r"(    if \(score == -INFINITY\) return 1\.0f;\n)(?:.*\n)*?"
                     r"(    float m_new)", r"\2")],
             [Run("make stage 4", VERBOSE + "fold", FAILED,
                  has=["FAILED .*(nan_v|inf_v)", "passed .*mask_row"],
                  hasnt=["FAILED .*mask_row", "FAILED .*random"])]),
    (4, 2): ([Change("pad.c", r"t >= rest \? -INFINITY", "t >= rest ? -10000.0f")],
             [Run("make stage 4", VERBOSE + "padded", FAILED,
                  has=["FAILED .*low", "FAILED .*mask_row.*\n.*wrong infinity",
                       "passed .*random"])]),
    # which test then sees other bits: forms/threads_do_not_change_a_bit
    (4, 3): ([Change("threads.c", r"#define PARTS 16\b",
                     "#include <omp.h>\n#define PARTS ((size_t)omp_get_max_threads())")],
             [Run("make test", VERBOSE + "threads", same=True)]),
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


def questions(stage):
    """number -> the commands that the lesson's questions name."""
    text = (ROOT / STAGES[stage] / "README.md").read_text(encoding="utf-8")
    text = text.partition("\n## Exercises")[2]
    found = re.findall(r"^(\d)\. ((?:.*\n)(?:   .*\n)*)", text, re.M)
    commands = re.compile(r"`((?:\w+=\w+ )?(?:make|build/)[^`]*)`")
    return {int(number): [re.sub(r"\s+", " ", x) for x in commands.findall(words)]
            for number, words in found}


class Copy:
    """The sources and the objects of this build, where they may be changed."""

    def __init__(self, build, stage):
        self.stage = STAGES[stage]
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="questions."))
        for name in ("Makefile", "common", "04_monoid_tiled_cpu", self.stage):
            source, target = ROOT / name, self.place / name
            if target.exists():
                continue
            if source.is_dir():
                shutil.copytree(source, target)  # keeps the times: nothing else is rebuilt
            else:
                shutil.copy2(source, target)
        for name in ("common", self.stage, "04_monoid_tiled_cpu"):
            if (ROOT / build / "obj" / name).is_dir():
                shutil.copytree(ROOT / build / "obj" / name, self.place / "build/obj" / name,
                                dirs_exist_ok=True)
        for made in [ROOT / build / self.stage, *(ROOT / build).glob("config*")]:
            shutil.copy2(made, self.place / "build" / made.name)

    def run(self, arguments):
        done = subprocess.run([f"build/{self.stage}", *arguments.split()], cwd=self.place,
                              capture_output=True, text=True, errors="replace", check=False,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        return done.returncode, done.stdout + done.stderr

    def make(self):
        environment = {x: y for x, y in os.environ.items() if not x.startswith("MAKE")}
        done = subprocess.run(["make", "-s", "-j2", f"build/{self.stage}"], cwd=self.place,
                              capture_output=True, text=True, env=environment, check=False)
        return "" if done.returncode == 0 else done.stderr

    def change(self, change):
        """Returns the old text, or None when the pattern is not there."""
        path = self.place / self.stage / change.file
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new, times = re.subn(change.old, change.new, old)
        if times != change.times:
            return None
        path.write_text(new, encoding="utf-8")
        return old

    def restore(self, change, text):
        (self.place / self.stage / change.file).write_text(text, encoding="utf-8")


def judge(copy, unchanged, entry):
    """What is wrong with a question, a line each."""
    changes, runs = entry
    for run in runs:  # before the change
        if run.arguments not in unchanged:
            unchanged[run.arguments] = copy.run(run.arguments)
        why = run.complaint(*unchanged[run.arguments])
        if run.same and why:
            yield f"`{run.command}` without the change: {why}"
        if not run.same and not why:
            yield f"`{run.command}` shows the same without the change"
    kept = []
    for change in changes:
        kept.append(copy.change(change))
        if kept[-1] is None:
            yield f"{change.file} has no '{change.old}' (it should be there {change.times} times)"
    if changes and None not in kept:
        why = copy.make()
        if why:
            yield f"with the change it does not compile: {why[:1000]}"
        for run in () if why else runs:
            status, text = copy.run(run.arguments)
            why = run.complaint(status, text)
            if why:
                yield f"`{run.command}` with the change: {why}:\n{text[-1500:]}"
    for change, text in reversed(list(zip(changes, kept))):
        if text is not None:
            copy.restore(change, text)


def still_there(stage, changes):
    """The patterns that a change no longer finds."""
    for change in changes:
        path = ROOT / STAGES[stage] / change.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if len(re.findall(change.old, text)) != change.times:
            yield f"{change.file} has no '{change.old}' ({change.times} times)"


def check_statically(stage):
    wrong, named = 0, questions(stage)
    for number, commands in named.items():
        entry = QUESTIONS.get((stage, number))
        mine = sorted(run.command for run in entry[1]) if entry else []
        problems = [] if sorted(commands) == mine else [f"commands {commands}, not {mine}"]
        for text in problems + list(still_there(stage, entry[0] if entry else [])):
            wrong += 1
            print(f"stage {stage}, question {number}: {text}")
    print(f"stage {stage}: {len(named)} questions, {wrong} complaints")
    return wrong + (not named)


def check(build, stage):
    wrong, copy, unchanged = 0, Copy(build, stage), {}
    try:
        named = questions(stage)
        if not named:
            print(f"{STAGES[stage]}/README.md: no questions found")
            wrong += 1
        for number, commands in named.items():
            entry = QUESTIONS.get((stage, number))
            mine = sorted(run.command for run in entry[1]) if entry else []
            problems = [] if sorted(commands) == mine else \
                [f"the lesson names the commands {commands}, questions.py {mine}"]
            if entry:
                problems += judge(copy, unchanged, entry)
            for text in problems:
                wrong += 1
                print(f"stage {stage}, question {number}: {text}")
    finally:
        shutil.rmtree(copy.place, ignore_errors=True)
    print(f"stage {stage}: {len(named)} questions, {wrong} complaints")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", nargs="*", type=int)
    parser.add_argument("--build", default="build")
    parser.add_argument("--static", action="store_true")
    options = parser.parse_args()
    return 1 if sum(check_statically(x) if options.static else check(options.build, x)
                    for x in options.stage or STAGES) else 0


if __name__ == "__main__":
    sys.exit(main())
