"""source.py: the files of an exercise, from one source: its solution with marked regions.

    /* solution begin */
        what solves it
    /* skeleton
        what stands there in the student's file; a line // words becomes a comment
    solution end */

The head comment holds lines "Hint: ...", "Time: ..." and "Point: cases a, b.", the families that hold
what the exercise teaches.  Hints and the point are not in the student's file."""
import importlib.util
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
BEGIN, MIDDLE, END = "/* solution begin */", "/* skeleton", "solution end */"
HEAD = re.compile(r"(exercise|assignment|puzzle) of stage (\d), (\d+) points?: (.*)\.")
POINT = re.compile(r"^ \* Point: cases ([\w, ]+)\.\n", re.M)
TIME = re.compile(r"^ \* Time: (.*)\.$", re.M)
HINTS = re.compile(r"^ \* Hint: (.*(?:\n \*   +.*)*)\n", re.M)


def fail(text, status=2):
    print(f"{sys.argv[0].rpartition('/')[2].removesuffix('.py')}: {text}", file=sys.stderr)
    sys.exit(status)


def ended_by(main):
    """Ends the program with main()'s status; a reader who has seen enough (`| head`) is no fault."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)


def skeleton_of(text, path="it"):
    """The text without its solutions, hints and point."""
    lines, region = [], None
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word in (BEGIN, MIDDLE, END):
            order = {None: BEGIN, BEGIN: MIDDLE, MIDDLE: END}
            if order[region] != word:
                fail(f"{path}:{number}: '{word}' where '{order[region]}' belongs")
            region = None if word == END else word
        elif region is None:
            lines.append(line)
        elif region == MIDDLE:
            lines.append(re.sub(r"^(\s*)// (.*)$", r"\1/* \2 */", line))
    if region or BEGIN not in text:
        fail(f"{path}: no complete region '{BEGIN} ... {MIDDLE} ... {END}'")
    return HINTS.sub("", POINT.sub("", "\n".join(lines) + "\n"))


def solution_of(text):
    """The text without the marks of its regions."""
    text = re.sub(r" */\* skeleton\n.*?solution end \*/\n", "", text, flags=re.S)
    return re.sub(r" */\* solution begin \*/\n", "", text)


class Exercise:
    """kind, number (of its stage), points, title; name, stage ('03_online_softmax'), and its files."""

    def __init__(self, source):
        self.source, self.name, self.stage = source, source.stem, source.parents[2].name
        self.file, self.solved = source.parents[1] / source.name, source.parent.name == "solutions"
        self.text = source.read_text(encoding="utf-8")
        found = HEAD.search(self.text.split("\n", 1)[0])
        if not found or int(found[2]) != int(self.stage[:2]):
            fail(f"{source}: line 1 is not 'exercise of stage N, P points: ...'")
        self.kind, self.number, self.points, self.title = found[1], int(found[2]), int(found[3]), found[4]

    @property
    def cuda(self):
        return self.source.suffix == ".cu"

    @property
    def time(self):
        return found[1] if (found := TIME.search(self.text)) else ""

    @property
    def point(self):
        found = POINT.search(self.text)
        return found[1].split(", ") if found else []

    @property
    def hints(self):
        return [re.sub(r"\n \* +", " ", x) for x in HINTS.findall(self.text)]

    @property
    def uses(self):
        """The student's earlier files that this one includes: a1_naive of a2_safe."""
        return re.findall(r'^#include "(\w+)\.c"', self.text, re.M)

    @property
    def threads(self):
        """May its program start threads?"""
        return "#include <pthread.h>" in self.text

    def skeleton(self):
        return skeleton_of(self.text, self.source) if self.solved else HINTS.sub("", POINT.sub("", self.text))

    def solution(self):
        return solution_of(self.text)

    def start(self):
        """The student's file, written if there is none."""
        if not self.file.exists():
            self.file.write_text(self.skeleton(), encoding="utf-8")
            print(f"wrote {self.file.relative_to(ROOT)}: edit it, then `make exercise {self.number} "
                  f"EX={self.name}`", flush=True)


def exercises(root=ROOT):
    """All of them, stage by stage: puzzles, exercises in the order of the lesson, the assignment."""
    def place(x):
        lesson = (root / x.stage / "README.md").read_text(encoding="utf-8").partition("## Exercises")[2]
        return x.number, ("puzzle", "exercise", "assignment").index(x.kind), \
            lesson.find(f"`{x.name}`"), x.name

    folder = "solutions" if any(root.glob("0*/exercises/solutions")) else "skeletons"
    return sorted((Exercise(x) for x in root.glob(f"0*/exercises/{folder}/*.c*")), key=place)


def parts_of(exercise, read):
    """What this exercise includes, directly or not: file name -> read(its exercise), where that is not None."""
    found = {}
    for x in (x for x in exercises() if x.name in exercise.uses):
        found |= {x.file.name: data for data in [read(x)] if data is not None} | parts_of(x, read)
    return found


def problems_of(exercise):
    """cases(rng) of this exercise, from exercises/problems.py of its stage."""
    path = exercise.file.parent / "problems.py"
    spec = importlib.util.spec_from_file_location(f"problems_{exercise.number}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROBLEMS[exercise.name]


def chosen(words, found=None, kinds=None):
    """Those whose name, kind, number or stage is one of the words; all of these kinds without words."""
    found = exercises() if found is None else found
    names = [{x.name, x.kind, f"{x.kind}s", str(x.number), x.stage} for x in found]
    words = [x.removesuffix(".cu").removesuffix(".c") for x in words]
    for word in (x for x in words if x not in set().union(*names)):
        fail(f"EX: no stage or exercise '{word}'; there are " + ", ".join(x.name for x in found))
    return [x for x, its in zip(found, names) if (its & set(words) if words else not kinds or x.kind in kinds)]
