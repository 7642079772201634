"""source.py: the files of an exercise, from one source: its solution with marked regions.

    /* solution begin */
        what solves it
    /* skeleton
        what stands there in the student's file, behind "Your code."; a line // words becomes a comment
    solution end */                            or, where nothing else stands there:  /* solution end */

The head comment holds lines "Hint: ...", "Time: ..." and "Point: cases a, b.", the families that hold
what the exercise teaches.  Hints and the point are not in the student's file."""
import importlib.util
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
REGION = re.compile(r"( *)/\* solution begin \*/\n(.*?) *(?:/\* skeleton\n(.*?) *|/\* )solution end \*/\n", re.S)
HEAD = re.compile(r"(exercise|assignment|puzzle) of stage (\d), (\d+) points?: (.*)\.")
TEACHERS = re.compile(r"^ \* (Point: cases ([\w, ]+)\.|Hint: (.*(?:\n \*   +.*)*))\n", re.M)
TIME = re.compile(r"^ \* Time: (.*)\.$", re.M)


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


class Exercise:
    """kind, number (of its stage), points, title, time, hints; name, stage ('03_online_softmax'), and its files; point:
    the families that hold what it teaches; uses: the student's earlier files that this one includes, a1_naive of
    a2_safe; threads: may its program start some?"""

    def __init__(self, source):
        self.name, self.stage, self.solved = source.stem, source.parents[2].name, source.parent.name == "solutions"
        self.file, self.cuda = source.parents[1] / source.name, source.suffix == ".cu"
        self.text = text = source.read_text(encoding="utf-8")
        found, marks = HEAD.search(text.split("\n", 1)[0]), len(re.findall("solution begin|solution end", text))
        if not found or int(found[2]) != int(self.stage[:2]):
            fail(f"{source}: line 1 is not 'exercise of stage N, P points: ...'")
        if self.solved and (not marks or marks != 2 * len(REGION.findall(text))):
            fail(f"{source}: a region is not complete: /* solution begin */ ... /* skeleton ... solution end */")
        self.kind, self.number, self.points, self.title = found[1], int(found[2]), int(found[3]), found[4]
        self.time = found[1] if (found := TIME.search(text)) else ""
        self.point = [x for _, families, _ in TEACHERS.findall(text) if families for x in families.split(", ")]
        self.hints = [re.sub(r"\n \* +", " ", hint) for _, _, hint in TEACHERS.findall(text) if hint]
        self.uses = re.findall(r'^#include "(\w+)\.c"', text, re.M)
        self.threads = "#include <pthread.h>" in text

    def skeleton(self):
        """Without solutions, hints and point; a line // words becomes a comment."""
        def handed_out(region):
            text = region[3] or ""
            first = "" if "// Your code" in text else f"{region[1]}// Your code.\n"
            return re.sub(r"^(\s*)// (.*)$", r"\1/* \2 */", first + text, flags=re.M)
        return TEACHERS.sub("", REGION.sub(handed_out, self.text))

    def solution(self):
        """Without the marks of its regions."""
        return REGION.sub(lambda region: region[2], self.text)

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


def chosen(words, found=None):
    """Those whose name, kind, number or stage is one of the words; all without words."""
    found = exercises() if found is None else found
    names = [{x.name, x.kind, f"{x.kind}s", str(x.number), x.stage} for x in found]
    words = [x.removesuffix(".cu").removesuffix(".c") for x in words]
    for word in (x for x in words if x not in set().union(*names)):
        fail(f"EX: no stage or exercise '{word}'; there are " + ", ".join(x.name for x in found))
    return [x for x, its in zip(found, names) if its & set(words) or not words]
