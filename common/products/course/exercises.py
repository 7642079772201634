"""exercises.py: what `make exercise` does.

    exercises.py list [NN_stage]              one line for each exercise
    exercises.py hint NN_stage --ex NAME      the next hint
    exercises.py run [NN_stage] [--ex NAME] ...       judges the student's files

The student's file, NN_*/exercises/NAME.c (or .cu), is written once, when it is not there; source.py says
from what.  Exit status: 0 all right; 1 something is not; 2 bad usage; 3 this machine cannot judge."""
import argparse
import pathlib

from source import ROOT, chosen, ended_by, exercises, fail, parts_of


def of(stage, name):
    """The exercises of a stage (None: of all), or the one of that name."""
    found = [x for x in exercises() if stage in (None, x.stage)]
    return chosen([name] if name else [], found)


def run(options, found):
    """make exercise: every file is judged; one that fails stops no other."""
    from judge import Judge, judging
    right = 0
    with judging(Judge, options) as judge:
        for x in found:
            x.start()
            print(f"== {x.file.relative_to(ROOT)}: {x.title} ({x.points} points)", flush=True)
            data = x.file.read_bytes()
            if data.decode(errors="replace") == x.skeleton():
                print("   not begun: it is still the skeleton", flush=True)
            verdict = judge.verdict(x, data, 0, parts_of(x, lambda part: part.start() or part.file.read_bytes()))
            why, more = verdict.in_words()
            head = f"passed: all {len(verdict.results)} cases" if verdict.right else f"FAILED: {why}"
            shares = [f"{family}: {share:.1f} % of the ceiling" for family, share in verdict.shares.items()]
            print("   " + "\n       ".join([head, *more, *verdict.notes, *shares]), flush=True)
            right += verdict.right
    print(f"right: {right} of {len(found)}" + ("" if right == len(found) else "; edit what failed and repeat the command"))
    return right != len(found)


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
    for name in ("cc", "cxx", "nvcc"):
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
        for x in of(options.which, ""):
            path = f"{x.stage}/exercises/{x.file.name}"
            print(f"{path:45} {x.points:3} points  {x.time + ':':12} {x.title}")
    elif options.verb == "hint":
        if not options.ex:
            first = of(options.which, "")[0]
            fail(f"hint: which exercise?  make hint {first.number} EX={first.name}")
        hint(options.build, of(options.which, options.ex)[0])
    else:
        return run(options, of(options.which, options.ex))
    return 0


if __name__ == "__main__":
    ended_by(main)
