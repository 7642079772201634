"""exercises.py: the exercises of the stages, their skeletons, and the verdict on a file.

    exercises.py list [NN_stage]             one line an exercise
    exercises.py write                       skeletons from solutions
    exercises.py check                       are the committed skeletons those?
    exercises.py skeleton NAME               one skeleton on stdout
    exercises.py run [NN_stage] [--ex NAME] [--gpu]  what `make exercise` does

In a repository for students, which has no solutions, NN_*/exercises/skeletons/ takes their
place.  Each exercise has one source, NN_*/exercises/solutions/NAME.c (or .cu), from which forms.py
makes the student's file.

The head comment may name the families of cases (below) that hold the exercise's point, for
which half of the marks are given:

     * Half of the points: cases nan_v, inf_v.

Exit status: 0 all right; 1 something is not; 2 bad usage or a malformed source."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import processes
from forms import fail, formed, skeleton_of
from objects import refused

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOLVED = any(ROOT.glob("0*/exercises/solutions"))
HEAD = re.compile(r"exercise of stage (\d), (\d+) points?: (.*)\.")
JUDGE_S = 900  # for one exercise, at home
HALF = re.compile(r"^ \* Half of the points: cases ([\w, ]+)\.$", re.M)


class Exercise:
    """name, stage ('03_online_softmax'), number, points, title, and its two files."""
    fixed_form = True  # the code that it gives must be used

    def __init__(self, solution):
        self.solution, self.name = solution, solution.stem
        self.stage = solution.parents[2].name
        self.file = solution.parents[1] / solution.name
        text = solution.read_text(encoding="utf-8")
        found, half = HEAD.search(text.split("\n", 1)[0]), HALF.search(text)
        if not found or int(found[1]) != int(self.stage[:2]):
            fail(f"{solution}: line 1 is not 'exercise of stage N, P points: ...'")
        self.number, self.points, self.title = int(found[1]), int(found[2]), found[3]
        self.half = half[1].split(", ") if half else []  # recipes: nan_v, inf_v

    def is_skeleton(self):
        return self.file.exists() and \
            self.file.read_text(encoding="utf-8", errors="replace") == self.skeleton()

    def skeleton(self):
        text = formed(self.solution.read_text(encoding="utf-8"))
        return skeleton_of(text, self.solution) if SOLVED else text


def exercises():
    folder = "solutions" if SOLVED else "skeletons"
    found = [Exercise(path) for path in sorted(ROOT.glob(f"0*/exercises/{folder}/*.c*"))]
    names = [exercise.name for exercise in found]
    for name in names:
        if names.count(name) > 1:
            fail(f"two exercises are called '{name}'")
    return found


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


class Case:
    """A line `case` of the judge."""

    def __init__(self, fields):
        (self.name, self.dtype, elements, self.why, self.where, self.got, self.want,
         self.err, self.allowed) = fields
        self.elements, self.ok = int(elements), self.why == "ok"
        self.arrays = []  # of a small one: (name, "is" or "expected", numbers)
        self.skipped = self.why.startswith("not run")

    @property
    def family(self):
        """attention-outlier@16-33x300-d64 -> attention-outlier"""
        return re.sub(r"@\d+$", "", "-".join(self.name.split("-")[:2]))


class Verdict:
    """What the judge said of one worker."""

    def __init__(self, output):
        self.cases, self.said, self.speed, self.jailed = [], [], None, 0
        self.timed, self.untimed = None, "it was not timed"
        self.complete = False
        # Not splitlines(): what a submission says may hold stranger ends of a line.
        for line in output.split("\n"):
            kind, *fields = line.split("\t")
            if kind == "case":
                self.cases.append(Case(fields))
            elif kind == "array" and self.cases and fields[0] == self.cases[-1].name:
                self.cases[-1].arrays.append(fields[1:])
            elif kind == "said":
                self.said.append("\t".join(fields))
            elif kind == "speed":
                self.speed = float(fields[1]) / float(fields[0])
            elif kind == "timed":
                self.timed = dict(zip(
                    ("median", "least", "solution", "ratio", "share", "name", "ceiling",
                     "mhz_before", "mhz_after", "runs"),
                    (float(x) if x[0].isdigit() else x for x in fields)))
            elif kind == "untimed":
                self.untimed = fields[0]
            elif kind == "jail":
                self.jailed = int(fields[0])
            elif kind == "done":
                self.complete = True

    @property
    def failed(self):
        return [case for case in self.cases if not case.ok]

    @property
    def smallest(self):
        """The failing case with the fewest elements, of those that were run; of several
        the first."""
        return min(self.failed, key=lambda case: (case.skipped, case.elements))

    def families(self):
        """Family -> did all its cases pass?"""
        passed = {}
        for case in self.cases:
            passed[case.family] = passed.get(case.family, True) and case.ok
        return passed


def judge(build, solution, worker, *options, timeout=JUDGE_S):
    """Runs the judge; its exit status (or LATE), its verdict, what went wrong."""
    environment = {"PATH": os.environ.get("PATH", ""), "OMP_WAIT_POLICY": "passive",
                   "OMP_NUM_THREADS": "2"}
    status, out, err = processes.run([f"{build}/judge", solution, worker, *options], timeout,
                                     env=environment)
    return status, Verdict(out), err.strip()


def numbers_of(case):
    """The inputs and the right answer of a small case, a line an array."""
    return [f"{name} {'=' if kind == 'is' else 'should be'} {numbers}"
            for name, kind, numbers in case.arrays]


def verdict_line(verdict):
    """The smallest case that fails, in a line."""
    case = verdict.smallest
    return f"{case.name}: {case.where + ': ' if case.where else ''}{case.why}"


def report(exercise, verdict):
    """Prints what a student wants to know; returns whether all is right."""
    total, failed = len(verdict.cases), verdict.failed
    if not failed:
        print(f"   passed: all {total} cases")
        if verdict.speed:
            print(f"   speed: {verdict.speed:.2f} times that of the reference solution, "
                  f"on one shape{', executed on the CPU' if exercise.number == 5 else ''} "
                  "(for information)")
        return True
    families = verdict.families()
    wrong = [name for name, passed in families.items() if not passed]
    case = verdict.smallest
    print(f"   FAILED: {len(failed)} of {total} cases, {len(wrong)} of {len(families)} "
          f"families: {', '.join(wrong[:4])}{', ...' if len(wrong) > 4 else ''}")
    print(f"   the smallest: {case.name} ({case.elements} elements)")
    print(f"       {case.where + ': ' if case.where else ''}{case.why}")
    if case.where:
        print(f"       got {case.got}  want {case.want}  error {case.err}  "
              f"allowed {case.allowed}")
    for line in numbers_of(case):
        print(f"       {line}")
    for line in verdict.said[:4]:
        print(f"       it said: {line}")
    print(f"       to see it again: build/exercises/{exercise.name} check "
          f"--case {case.name}")
    print("       what the names of cases mean: enum recipe in common/verification/cases.h")
    return False


def sub_make(make, targets):
    """Builds with all cores.  What the outer make was told (CC=clang) holds here too, but
    its jobs are its own.  Returns whether all could be built."""
    environment = dict(os.environ)
    environment["MAKEFLAGS"] = re.sub(r"(^| )(-j\d*|--jobserver-\S+)", "",
                                      environment.get("MAKEFLAGS", ""))
    command = [make, "--no-print-directory", "-s", f"-j{os.cpu_count() or 1}", *targets]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL,
                          check=False).returncode == 0


def run(build, stage, name, make, gpu):
    """make exercise: every file is built and judged; one that fails stops no other."""
    right, of_stage = 0, chosen(stage, name)
    for exercise in of_stage:
        print(f"== {exercise.file.relative_to(ROOT)}: {exercise.title} "
              f"({exercise.points} points)", flush=True)
        if exercise.is_skeleton():
            print("   not begun: it is still the skeleton", flush=True)
        folder = f"{build}/exercises"
        judged = [f"{build}/judge", f"{folder}/solution/{exercise.name}.worker",
                  f"{folder}/{exercise.name}.worker"]
        # one after the other: the compiler's complaints come once
        if not sub_make(make, [f"{folder}/{exercise.name}"]) or not sub_make(make, judged):
            print("   FAILED: it does not compile", flush=True)
            continue
        why = refused(pathlib.Path(build) / "obj/exercises" / f"{exercise.name}.o")
        if why:
            print(f"   FAILED: it {why}", flush=True)
            continue
        status, verdict, error = judge(build, f"{folder}/solution/{exercise.name}.worker",
                                       f"{folder}/{exercise.name}.worker", "--speed",
                                       "--cpu", "5", *([] if SOLVED else ["--skeleton"]))
        if status == processes.LATE:
            print(f"   FAILED: took longer than {JUDGE_S} s in all")
            continue
        if status or not verdict.complete:
            print(f"   FAILED: the judge could not work: {error or status}")
            continue
        ok = report(exercise, verdict)
        if ok and gpu and exercise.number == 5:
            print("   and on the GPU:", flush=True)
            ok = subprocess.run([f"{build}/exercises/{exercise.name}", "check"], cwd=ROOT,
                                check=False).returncode == 0
        right += ok
        sys.stdout.flush()
    print(f"right: {right} of {len(of_stage)}{' of ' + stage if stage else ''}")
    return 0 if right == len(of_stage) else 1


def differing():
    return [x for x in exercises() if not x.is_skeleton()]


def main():
    parser = argparse.ArgumentParser(description="the exercises of the stages")
    parser.add_argument("verb", choices=["list", "write", "check", "skeleton", "run"])
    parser.add_argument("which", nargs="?")
    parser.add_argument("--ex", default="")
    parser.add_argument("--build", default="build")
    parser.add_argument("--make", default="make")
    parser.add_argument("--gpu", action="store_true", help="stage 5 on the GPU as well")
    options = parser.parse_args()
    if options.verb == "list":
        for x in exercises():
            if options.which in (None, x.stage):
                path = f"{x.stage}/exercises/{x.file.name}"
                print(f"{path:45} {x.points:3} points  {x.title}")
    elif options.verb == "write":
        for x in differing():
            x.file.write_text(x.skeleton(), encoding="utf-8")
            print(f"wrote {x.file.relative_to(ROOT)}")
    elif options.verb == "check":
        for x in differing():
            print(f"{x.file.relative_to(ROOT)} is not what its source generates: edited? "
                  "(exercises.py write brings the skeleton back)")
        return 1 if differing() else 0
    elif options.verb == "skeleton":
        x = [x for x in exercises() if x.name == options.which]
        if not x:
            fail(f"no exercise '{options.which}'")
        sys.stdout.write(x[0].skeleton())
    else:
        return run(options.build, options.which, options.ex, options.make, options.gpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
