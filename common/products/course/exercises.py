"""exercises.py: the exercises of the stages, and what `make exercise` does.

    exercises.py list [NN_stage]              one line for each exercise
    exercises.py hint NN_stage --ex NAME      the next hint
    exercises.py run [NN_stage] [--ex NAME] ...       judges the student's files

The source of an exercise is its solution, NN_*/exercises/solutions/NAME.c (or .cu); a repository for
students has skeletons/ in its place.  forms.py makes the student's file from it:
NN_*/exercises/NAME.c, written once, when it is not there.  Its head comment holds

     * Half of the points: cases nan_v, inf_v.     the families that hold the exercise's point
     * Time: 40 minutes.
     * Hint: ...                                    one at a time; not in the student's file

Exit status: 0 all right; 1 something is not; 2 bad usage; 3 this machine cannot judge."""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

from builder import ROOT, Refused, judging
from forms import fail, formed, skeleton_of

SOLVED = any(ROOT.glob("0*/exercises/solutions"))
HEAD = re.compile(r"(?:exercise|project) of stage (\d), (\d+) points?: (.*)\.")
HALF = re.compile(r"^ \* Half of the points: cases ([\w, ]+)\.$", re.M)
TIME = re.compile(r"^ \* Time: (.*)\.$", re.M)
HINTS = re.compile(r"^ \* Hint: (.*(?:\n \*   +.*)*)\n", re.M)


class Exercise:
    """name, stage ('03_online_softmax'), number, points, title, time, hints, and its files."""
    whole_file, flags = False, []  # of a project the whole file counts
    unchanged = "the skeleton, unchanged"

    def __init__(self, source):
        self.source, self.name, self.stage = source, source.stem, source.parents[2].name
        self.file, self.solution = source.parents[1] / source.name, source if SOLVED else None
        self.text = source.read_text(encoding="utf-8")
        found = HEAD.search(self.text.split("\n", 1)[0])
        if not found or int(found[1]) != int(self.stage[:2]):
            fail(f"{source}: line 1 is not 'exercise of stage N, P points: ...'")
        self.number, self.points, self.title = int(found[1]), int(found[2]), found[3]

    def said(self, pattern):
        """What the head comment says, in brackets of the pattern; or ""."""
        found = pattern.search(self.text)
        return found[1] if found else ""

    @property
    def half(self):
        """Recipes that hold half of the points: nan_v, inf_v."""
        return [x for x in self.said(HALF).split(", ") if x]

    @property
    def hints(self):
        return [re.sub(r"\n \* +", " ", x) for x in HINTS.findall(formed(self.text))]

    @property
    def promises(self):
        """What its variant says of itself: operation, largest score, masked rows, isolates_v."""
        text = self.text.replace("ALL_PROBLEMS", ".max_score = INFINITY, .masked_rows = 1, .isolates_v = 1")
        op = re.findall(r"\{OP_(\w+),", text)[-1].lower()  # the last that it does
        most = re.search(r"\.max_score = ([\w.]+?)f?,", text)
        return (op, float(most[1].replace("INFINITY", "inf")) if most else 0.0,
                ".masked_rows = 1" in text, ".isolates_v = 1" in text)

    def skeleton(self):
        text = formed(self.text)
        return HINTS.sub("", skeleton_of(text, self.source) if SOLVED else text)

    def start(self):
        """The student's file, written if there is none."""
        if not self.file.exists():
            self.file.write_text(self.skeleton(), encoding="utf-8")
            print(f"wrote {self.file.relative_to(ROOT)}: edit it, then `make exercise {self.number} "
                  f"EX={self.name}`", flush=True)


def exercises():
    """All of them, stage by stage, in the order in which the lesson names them."""
    def place(x):
        lesson = (ROOT / x.stage / "README.md").read_text(encoding="utf-8").partition("## Exercises")[2]
        return x.number, lesson.find(f"`{x.name}`")

    folder = "solutions" if SOLVED else "skeletons"
    return sorted((Exercise(path) for path in ROOT.glob(f"0*/exercises/{folder}/*.c*")), key=place)


def chosen(stage, name):
    """The exercises of a stage (None: of all), or the one of that name."""
    of_stage = [x for x in exercises() if stage in (None, x.stage)]
    if name:
        wanted = name.removesuffix(".c").removesuffix(".cu")
        picked = [x for x in of_stage if x.name == wanted]
        if not picked:
            fail(f"no exercise '{name}'{' in ' + stage if stage else ''}; there are "
                 + ", ".join(x.name for x in of_stage))
        return picked
    return of_stage


def report(judge, verdict, program):
    """Prints what a student wants to know; keeps the files of the smallest case that fails."""
    if verdict.note:
        print(f"   note: {verdict.note}")
    if verdict.right:
        print(f"   passed: all {len(verdict.results)} cases")
        return
    why, lines = verdict.in_words()
    if verdict.failed:
        case, folder = verdict.smallest[0], program.with_suffix(".case")
        judge.write_case(case, folder)
        words = [str(program), *judge.words_of(case, folder)]
        lines += ["to see it again: " + " ".join(x.removeprefix(f"{pathlib.Path.cwd()}/") for x in words),
                  "what the names of cases mean: RECIPES in common/core/verification/cases.h"]
    print("\n       ".join([f"   FAILED: {why}", *lines]))


def kept(judge, folder, program, verdict):
    """Keeps the program there, for the student to try; with nvcc a kernel is checked on the GPU too."""
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(folder / "program", program)
    source = next(folder.glob("*.cu"), None)
    if verdict.right and judge.options.nvcc and source:
        print("   and on the GPU:", flush=True)
        for command in (*judge.gpu_commands(source.name, program), [program, "check"]):
            if subprocess.run([str(x) for x in command], cwd=folder, check=False).returncode:
                raise Refused("is wrong on the GPU")


def run(options, stage, name):
    """make exercise: every file is judged; one that fails stops no other."""
    from judge import Judge
    right, of_stage = 0, chosen(stage, name)
    with judging(Judge, options) as judge:
        for exercise in of_stage:
            exercise.start()
            print(f"== {exercise.file.relative_to(ROOT)}: {exercise.title} "
                  f"({exercise.points} points)", flush=True)
            data = exercise.file.read_bytes()
            if data.decode(errors="replace") == exercise.skeleton():
                print("   not begun: it is still the skeleton", flush=True)
            program = pathlib.Path(options.build).resolve() / "exercises" / exercise.name
            found = judge.write_cases(exercise, 0)
            verdict = judge.verdict(exercise, data, found,
                                    then=lambda folder, verdict: kept(judge, folder, program, verdict))
            report(judge, verdict, program)
            right += verdict.right
            sys.stdout.flush()
    print(f"right: {right} of {len(of_stage)}{' of ' + stage if stage else ''}"
          + ("" if right == len(of_stage) else "; edit what failed and repeat the command"))
    return 0 if right == len(of_stage) else 1


def hint(build, exercise):
    """One hint, the next at each call; the last stays."""
    counter = pathlib.Path(build) / "exercises" / f"{exercise.name}.hints"
    seen = int(counter.read_text()) if counter.exists() else 0
    step = min(seen + 1, len(exercise.hints))
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_text(str(step))
    print(f"{exercise.name}, hint {step} of {len(exercise.hints)}: {exercise.hints[step - 1]}")


def add_tools(parser):
    """How submissions are compiled; the make fragments fill it in."""
    for name in ("cc", "cxx", "link", "libs", "nvcc"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--build", default="build")


def main():
    parser = argparse.ArgumentParser(description="the exercises of the stages")
    parser.add_argument("verb", choices=["list", "hint", "run"])
    parser.add_argument("which", nargs="?")
    parser.add_argument("--ex", default="")
    add_tools(parser)
    options = parser.parse_args()
    if options.verb == "list":
        for x in chosen(options.which, ""):
            path = f"{x.stage}/exercises/{x.file.name}"
            print(f"{path:45} {x.points:3} points  {x.said(TIME) + ':':12} {x.title}")
    elif options.verb == "hint":
        if not options.ex:
            first = chosen(options.which, "")[0]
            fail(f"hint: which exercise?  make hint {first.number} EX={first.name}")
        hint(options.build, chosen(options.which, options.ex)[0])
    else:
        return run(options, options.which, options.ex)
    return 0


if __name__ == "__main__":
    sys.exit(main())
