"""gallery.py: does the suite see?  Plants each bug, runs the checks, says which case caught it.

    BUILD=DIR python3 tests/planted/gallery.py [--results DIR] [--quick] [BUG ...]

Each tests/planted/*.patch is one real mistake with its story.  It is applied to a copy of the
sources under BUILD/gallery, the program is built and checked, and the patch is taken back.  A bug
must be caught by a case whose name begins with what its line `Caught by:` says (`Cases: quick`: by one
of check --quick; where the CPU takes minutes for one of the others).  Beside it stands
what a naive check would have said: |got - want| > 1e-2 on normal random input, which NaN passes,
without masks and with a causal square.

The copy starts with the objects that BUILD already has.  Each verdict replaces its line of
stories.csv in BUILD/gallery or --results at once.  --quick runs only the case that the committed
stories.csv names, and writes nothing.
Exit status: 0 every bug was caught as meant; 1 one survived, or the sound program failed; 2 a
patch does not apply or does not compile."""
import argparse
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import helpers  # noqa: E402
from helpers import HANG, ROOT  # noqa: E402

COMMITTED = ROOT / "notes/results/planted/stories.csv"
MEANT = "first of those meant for it"
FIELD = re.compile(r"^(Story|Family|Program|Variant|Cases|Caught by): (.*?)(?=^\S|\Z)", re.M | re.S)


class Bug:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        text = path.read_text(encoding="utf-8")
        fields = {key: " ".join(value.split())
                  for key, value in FIELD.findall(text.split("\n--- ", 1)[0] + "\n")}
        self.story, self.family = fields["Story"], fields["Family"]
        self.program, self.variant = fields["Program"], fields["Variant"]
        self.quick = ["--quick"] * (fields.get("Cases") == "quick")  # slow where the CPU executes it
        self.source = re.search(r"^--- a/(\S+)", text, re.M)[1]
        self.by_test = fields["Caught by"].startswith("test ")
        self.meant = fields["Caught by"].removeprefix("test ")
        self.target = "build/tests" if self.by_test else f"build/{self.program}"
        self.sound = None       # what the sound program answers to the naive check


def fail(status, text):
    print(f"gallery: {text}", file=sys.stderr)
    sys.exit(status)


def run(command, tree, **how):
    how = {"stderr": subprocess.STDOUT, "env": os.environ | {"OMP_WAIT_POLICY": "passive"}} | how
    return subprocess.run(command, cwd=tree, text=True, errors="replace",
                          stdout=subprocess.PIPE, check=False, **how)


def make(target, what):
    """Builds in the copy."""
    try:
        helpers.make("CUDA=0", "WERROR=", target)
    except AssertionError as error:
        fail(2, f"{what} does not compile\n{error}")


def patch(tree, bug, *reverse):
    done = run(["patch", "-p1", "-s", "--fuzz=0", *reverse, "-i", bug.path], tree)
    if done.returncode:
        fail(2, f"{bug.path.name} does not apply; write it anew for the present code\n"
                f"{done.stdout}")


def failures(tree, bug, case):
    """The names of the cases, or tests, that fail; `case`: of this one only.  A crash counts as
    the case 'crash'."""
    try:
        if bug.by_test:
            done = run([bug.target, "--filter", f"{bug.meant}/*"], tree, timeout=HANG)
            return re.findall(r"\[FAIL\] (\S+?):", done.stdout)
        only = ["--case", case] if "-" in case else bug.quick
        done = run([bug.target, "check", "--device", "cpu", "--variant", bug.variant, *only], tree,
                   stderr=subprocess.DEVNULL, timeout=HANG)
    except subprocess.TimeoutExpired:
        return ["hang"]
    found = re.findall(r"^FAILED +\S+ +(\S+)", done.stdout, re.M)
    if done.returncode not in (0, 1) or (done.returncode == 1 and not found):
        found.append("crash")
    return found


def naive_outputs(tree, bug):
    """What the variant answers on normal random input: plain and causal."""
    if bug.by_test:
        return []
    files = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]
    words, outputs = files + ["--o", "o.npy"], ["o.npy"]
    if bug.meant.startswith("softmax"):
        words, outputs = ["--x", "x.npy", "--y", "y.npy"], ["y.npy"]
    elif bug.family == "the backward pass":
        outputs = ["dq.npy", "dk.npy", "dv.npy"]
        words = files + ["--do", "x.npy", *(w for name in outputs for w in (f"--{name[:2]}", name))]
    answers = []
    for more in [[]] if "y.npy" in outputs else [[], ["--causal"]]:
        done = run([bug.target, "run", "--device", "cpu", "--variant", bug.variant, *words, *more], tree)
        answers += [None if done.returncode else np.load(tree / name) for name in outputs]
    return answers


def naive_check(good, bad):
    """fabs(a - b) > 1e-2 finds nothing, in Python as in C: NaN > 1e-2 is false."""
    passes = all(b is not None and not (abs(g - b) > 1e-2).any() for g, b in zip(good, bad))
    return "passes" if passes else "fails"


def copy_tree(tree):
    """A copy of the sources, and of the objects that were made from them; we go there."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    os.chdir(tree)
    helpers.copy_sources("common", "tests", *helpers.STAGES)
    draws = np.random.default_rng(1)
    for name in "qkvx":
        np.save(f"{name}.npy", draws.standard_normal((2, 128, 64), "f4"))


def check_sound(tree, bugs, cases):
    """Builds what these bugs will be planted in; it must pass."""
    make(bugs[0].target, "the sound program")
    known = {}
    for bug in bugs:
        case = cases.get(bug.name, "")
        key = (bug.variant, bug.meant if bug.by_test else "", case, bug.meant.startswith("softmax"),
               bool(bug.quick))
        if key not in known:
            if failures(tree, bug, case):
                fail(1, f"{bug.program} {bug.variant} fails without any bug")
            known[key] = [] if cases else naive_outputs(tree, bug)
        bug.sound = known[key]


def plant(tree, bug, cases):
    """Plants, checks, takes back.  Returns the line of the CSV file."""
    patch(tree, bug)
    make(bug.target, bug.path.name)
    caught = failures(tree, bug, cases.get(bug.name, ""))
    naive = "-" if bug.by_test or cases else naive_check(bug.sound, naive_outputs(tree, bug))
    patch(tree, bug, "-R")
    meant = caught if cases else [case for case in caught if case.startswith(bug.meant)]
    verdict = "caught" if meant else "NOT BY ITS CASE" if caught else "SURVIVED"
    print(f"{bug.name:34} {verdict:16} by {len(caught):4} cases; naive check {naive:7} "
          f"{meant[0] if meant else caught[:1]}", flush=True)
    return {"naive check": naive, "failing cases": len(caught), MEANT: meant[0] if meant else ""}


def write_results(path, record, bugs):
    """The table of notes/planted_bugs.md.  record: {name of a bug: its numbers}."""
    rows = [{"bug": bug.name, "what goes wrong, and where it happens": bug.story.replace("|", "/"),
             "planted in": f"{bug.source} ({bug.variant})"}
            | {name: record[bug.name][name] for name in ("naive check", "failing cases", MEANT)}
            for bug in sorted(bugs, key=lambda bug: (bug.family, bug.name)) if bug.name in record]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_record(path):
    with open(path, encoding="utf-8") as file:
        return {row["bug"]: row for row in csv.DictReader(file)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("bug", nargs="*")
    options = parser.parse_args()
    out = (options.results or helpers.BUILD / "gallery").resolve()
    out.mkdir(parents=True, exist_ok=True)
    every = [Bug(path) for path in sorted((ROOT / "tests/planted").glob("*.patch"))]
    bugs = [bug for bug in every if not options.bug or bug.name in options.bug]
    if len(bugs) < len(set(options.bug)):
        fail(2, f"no such bug: {set(options.bug) - {bug.name for bug in bugs}}")
    known = read_record(COMMITTED) if options.quick else {}
    cases = {bug.name: known[bug.name][MEANT] for bug in bugs  # the record may be older than the patch
             if known.get(bug.name, {}).get(MEANT, "").startswith(bug.meant)} if options.quick else {}
    bugs.sort(key=lambda bug: (bug.by_test, bug.program, bug.source, bug.name))
    tree = helpers.BUILD / "gallery/tree"
    copy_tree(tree)
    print(f"gallery: bugs to plant: {len(bugs)}; building the sound programs", flush=True)
    path, new = out / "stories.csv", {}
    record = read_record(path) if path.exists() else {}
    for target in dict.fromkeys(bug.target for bug in bugs):
        here = [bug for bug in bugs if bug.target == target]
        check_sound(tree, here, cases)
        for bug in here:
            new[bug.name] = plant(tree, bug, cases)
            if not options.quick:
                write_results(path, record | new, every)
    survived = [name for name, row in new.items() if not row[MEANT]]
    blind = sum(row["naive check"] == "passes" for row in new.values())
    print(f"caught: {len(bugs) - len(survived)}, not caught: {len(survived)}" +
          ("" if options.quick else f"; {blind} of them pass a naive check"))
    if survived:
        fail(1, "not caught as meant: " + ", ".join(survived))


if __name__ == "__main__":
    main()
