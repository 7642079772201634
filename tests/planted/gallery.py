"""gallery.py: does the suite see?  Plants each bug, runs the checks, draws which case caught it.

    python3 tests/planted/gallery.py [--build DIR] [--results DIR] [--draw] [BUG ...]

Each tests/planted/*.patch is one real mistake with its story.  It is applied to a copy of the
sources under DIR/gallery, the stage's program is built and checked, and the patch is taken
back.  A bug must be caught, by a case whose name begins with what its line `Caught by:` says.
Beside it stands what a naive check would have said: |got - want| > 1e-2 on normal random
input, which NaN passes, without masks and with a causal square.

The copy starts with the objects that DIR already has, so `make` or `make test` saves most of
the time.  Writes gallery.csv, gallery.png and stories.csv into DIR/gallery, or into --results
where all bugs were planted; --draw only makes the last two again.  Exit status: 0 every bug was caught
as meant; 1 one survived, or the sound program failed; 2 a patch does not apply or does not
compile."""
import argparse
import array
import csv
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

from gallery_figure import draw

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ["Makefile", "common", "01_naive", "02_safe_softmax", "03_online_softmax",
         "04_monoid_tiled_cpu", "05_flash_cuda", "tests"]
FIELD = re.compile(r"^(Story|Family|Program|Variant|Caught by): (.*?)(?=^\S|\Z)", re.M | re.S)


class Bug:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        head = path.read_text().split("\n--- ", 1)[0] + "\n"
        fields = {key: " ".join(text.split()) for key, text in FIELD.findall(head)}
        self.story, self.program = fields["Story"], fields["Program"]
        self.family = fields["Family"]
        self.source = re.search(r"^--- a/(\S+)", path.read_text(), re.M)[1]
        self.variant, self.meant = fields["Variant"], fields["Caught by"]
        self.tests = self.meant[5:] if self.meant.startswith("test ") else ""


def run(command, tree, **more):
    more.setdefault("env", dict(os.environ, OMP_WAIT_POLICY="passive"))
    more.setdefault("stderr", subprocess.STDOUT)
    return subprocess.run(command, cwd=tree, text=True, errors="replace",
                          stdout=subprocess.PIPE, **more)


def make(tree, targets):
    """Builds in the copy; the private flags of the outer make stay outside."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "BUILD")}
    done = run(["make", "-s", "-j2", "CUDA=0", "WERROR="] + targets, tree, env=environment)
    return done.returncode == 0, done.stdout


def patch(tree, bug, reverse=False):
    done = run(["patch", "-p1", "-s", "--fuzz=0"] + (["-R"] if reverse else []) +
               ["-i", str(bug.path)], tree)
    if done.returncode:
        sys.exit(f"gallery: {bug.path.name} does not apply; write it anew for the present "
                 f"code\n{done.stdout}") if reverse else fail(2, f"{bug.path.name} does not "
                                                              f"apply\n{done.stdout}")


def fail(status, text):
    print(f"gallery: {text}", file=sys.stderr)
    sys.exit(status)


def failures(tree, bug):
    """The names of the cases, or tests, that fail; a crash counts as the case 'crash'."""
    try:
        if bug.tests:
            done = run(["build/tests", "--filter", bug.tests + "/*"], tree,
                       timeout=120)
            return re.findall(r"\[FAIL\] (\S+?):", done.stdout)
        done = run([f"build/{bug.program}", "check", "--device", "cpu", "--variant",
                    bug.variant], tree, stderr=subprocess.DEVNULL, timeout=300)
    except subprocess.TimeoutExpired:
        return ["hang"]
    found = re.findall(r"^FAILED +\S+ +(\S+)", done.stdout, re.M)
    if done.returncode not in (0, 1) or (done.returncode == 1 and not found):
        found.append("crash")
    return found


def write_npy(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                     + array.array("f", values).tobytes())


def read_npy(path):
    data = path.read_bytes()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return array.array("f", data[start:])


def naive_inputs(tree):
    draw = random.Random(1)
    shape = (2, 128, 64)
    for name in "qkvx":
        write_npy(tree / f"{name}.npy", shape, [draw.gauss(0, 1) for _ in range(2 * 128 * 64)])


def naive_outputs(tree, bug):
    """What the variant answers on normal random input: plain and causal."""
    if bug.tests:
        return []
    if bug.meant.startswith("softmax"):
        calls = [["--x", "x.npy", "--y", "out.npy"]]
    else:
        attention = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", "out.npy"]
        calls = [attention, attention + ["--causal"]]
    answers = []
    for call in calls:
        done = run([f"build/{bug.program}", "run", "--device", "cpu", "--variant",
                    bug.variant] + call, tree)
        answers.append(read_npy(tree / "out.npy") if done.returncode == 0 else None)
    return answers


def naive_check_passes(good, bad):
    """fabs(a - b) > 1e-2 finds nothing, in Python as in C: NaN > 1e-2 is false."""
    return all(b is not None and not any(abs(x - y) > 1e-2 for x, y in zip(g, b))
               for g, b in zip(good, bad))


def recipe(case):
    """attention-shift_20-113x203-d64 -> shift_20; compare::rejects_nan -> test"""
    if "::" in case:
        return "test"
    return re.sub(r"@\d+", "", case.split("-")[1]) if "-" in case else case


COLUMNS = ["bug", "family", "program", "variant", "failing_cases", "meant_case",
           "meant_recipes", "recipes", "naive_check", "verdict"]


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_stories(path, rows, bugs):
    """The table of notes/planted_bugs.md."""
    by_name = {row["bug"]: row for row in rows}
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["bug", "what goes wrong, and where it happens", "planted in",
                         "naive check", "failing cases", "first of those meant for it"])
        for bug in sorted(bugs, key=lambda bug: (bug.family, bug.name)):
            row = by_name.get(bug.name)
            if row:
                writer.writerow([bug.name, bug.story.replace("|", "/"),
                                 f"{bug.source} ({bug.variant})", row["naive_check"],
                                 row["failing_cases"], row["meant_case"]])


def copy_tree(build, tree):
    """A copy of the sources, and of the objects that were made from them."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tree / part)
        else:
            shutil.copy2(source, tree / part)
    if (build / "obj").is_dir():
        shutil.copytree(build / "obj", tree / "build/obj",
                        ignore=shutil.ignore_patterns("*.cuda.*"))
        if (build / "libparts.a").exists():
            shutil.copy2(build / "libparts.a", tree / "build")
        for old in build.glob("config*"):
            config = tree / "build" / old.name  # as old as it was: nothing is to be remade
            config.write_text(old.read_text().replace(" -Werror", ""))
            shutil.copystat(old, config)


def target(bug):
    return "build/tests" if bug.tests else f"build/{bug.program}"


def key_of(bug):
    return bug.program, bug.variant, bug.tests, bug.meant.startswith("softmax")


def check_sound(tree, bugs):
    """Builds what these bugs will be planted in; it must pass.  Returns its naive outputs."""
    ok, log = make(tree, [target(bugs[0])])
    if not ok:
        fail(2, "the sound sources do not build\n" + log[-2000:])
    naive_inputs(tree)
    sound = {}
    for bug in bugs:
        if key_of(bug) in sound:
            continue
        if failures(tree, bug):
            fail(1, f"{bug.program} {bug.variant} fails without any bug")
        sound[key_of(bug)] = naive_outputs(tree, bug)
    return sound


def plant(tree, bug, good):
    """Plants, checks, takes back.  Returns the line of the CSV file."""
    patch(tree, bug)
    ok, log = make(tree, [target(bug)])
    if not ok:
        fail(2, f"{bug.path.name} does not compile\n{log[-2000:]}")
    caught = failures(tree, bug)
    naive = "passes" if naive_check_passes(good, naive_outputs(tree, bug)) else "fails"
    patch(tree, bug, reverse=True)
    meant = [case for case in caught if case.startswith(bug.meant.replace("test ", ""))]
    verdict = "caught" if meant else "NOT BY ITS CASE" if caught else "SURVIVED"
    print(f"{bug.name:34} {verdict:16} by {len(caught):4} cases; naive check "
          f"{'-' if bug.tests else naive:7} {meant[0] if meant else caught[:1]}", flush=True)
    return {"bug": bug.name, "family": bug.family, "program": bug.program,
            "variant": bug.variant, "failing_cases": len(caught),
            "meant_case": meant[0] if meant else "",
            "meant_recipes": " ".join(sorted({recipe(case) for case in meant})),
            "recipes": " ".join(sorted({recipe(case) for case in caught})),
            "naive_check": "-" if bug.tests else naive, "verdict": verdict}


def draw_or_say(path, rows):
    try:
        draw(path, rows)
        print(f"gallery: {path}")
    except ImportError:
        print("gallery: no matplotlib, no picture")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--results")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("bug", nargs="*")
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    out = pathlib.Path(options.results) if options.results and not options.bug \
        else build / "gallery"
    out.mkdir(parents=True, exist_ok=True)
    bugs = [Bug(path) for path in sorted((ROOT / "tests/planted").glob("*.patch"))
            if not options.bug or path.stem in options.bug]
    if options.draw:
        with open(out / "gallery.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        write_stories(out / "stories.csv", rows, bugs)
        return draw_or_say(out / "gallery.png", rows)
    bugs.sort(key=lambda bug: (bug.tests, bug.program, bug.source, bug.name))
    tree = build / "gallery" / "tree"
    copy_tree(build, tree)
    print(f"gallery: {len(bugs)} bugs; building the sound programs", flush=True)
    rows = []
    for goal in dict.fromkeys(target(bug) for bug in bugs):
        here = [bug for bug in bugs if target(bug) == goal]
        sound = check_sound(tree, here)
        rows += [plant(tree, bug, sound[key_of(bug)]) for bug in here]
    rows.sort(key=lambda row: row["bug"])
    write_csv(out / "gallery.csv", rows)
    write_stories(out / "stories.csv", rows, bugs)
    draw_or_say(out / "gallery.png", rows)
    survived = [row["bug"] for row in rows if row["verdict"] != "caught"]
    blind = sum(row["naive_check"] == "passes" for row in rows)
    print(f"{len(bugs) - len(survived)} bugs caught, {len(survived)} not; {blind} of them pass "
          "a naive check")
    if survived:
        fail(1, "not caught as meant: " + ", ".join(survived))


if __name__ == "__main__":
    main()
