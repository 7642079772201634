"""gallery.py: does the suite see?  Plants each bug, runs the checks, draws which case caught it.

    python3 tests/planted/gallery.py [--build DIR] [BUG ...]

Each tests/planted/*.patch is one real mistake with its story.  It is applied to a copy of the
sources under DIR/gallery, the stage's program is built and checked, and the patch is taken
back.  A bug must be caught, by a case whose name begins with what its line `Caught by:` says.
Beside it stands what a naive check would have said: |got - want| > 1e-2 on normal random
input, which NaN passes, without masks and with a causal square.

Writes DIR/gallery/gallery.csv and gallery.png.  Exit status: 0 every bug was caught as meant;
1 one survived, or the sound program failed; 2 a patch does not apply or does not compile."""
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ["Makefile", "common", "01_naive", "02_safe_softmax", "03_online_softmax",
         "04_monoid_tiled_cpu", "05_flash_cuda", "tests"]
FIELD = re.compile(r"^(Story|Program|Variant|Caught by): (.*?)(?=^\S|\Z)", re.M | re.S)


class Bug:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        head = path.read_text().split("\n--- ", 1)[0] + "\n"
        fields = {key: " ".join(text.split()) for key, text in FIELD.findall(head)}
        self.story, self.program = fields["Story"], fields["Program"]
        self.variant, self.meant = fields["Variant"], fields["Caught by"]
        self.tests = self.meant.startswith("test ")


def run(command, tree, **more):
    return subprocess.run(command, cwd=tree, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def make(tree, targets):
    """Builds in the copy; the private flags of the outer make stay outside."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "BUILD")}
    done = run(["make", "-s", "-j2", "CUDA=0"] + targets, tree, env=environment)
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
            done = run(["build/tests", "--filter", "compare/*"], tree, timeout=120)
            return re.findall(r"\[FAIL\] (\S+?):", done.stdout)
        done = run([f"build/{bug.program}", "check", "--variant", bug.variant], tree,
                   timeout=300)
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
        done = run([f"build/{bug.program}", "run", "--variant", bug.variant] + call, tree)
        answers.append(read_npy(tree / "out.npy") if done.returncode == 0 else None)
    return answers


def naive_check_passes(good, bad):
    """fabs(a - b) > 1e-2 finds nothing, in Python as in C: NaN > 1e-2 is false."""
    return all(b is not None and not any(abs(x - y) > 1e-2 for x, y in zip(g, b))
               for g, b in zip(good, bad))


def family(case):
    """attention-shift_20-113x203-d64 -> attention-shift_20"""
    return re.sub(r"@\d+", "", "-".join(case.split("-")[:2]))


def draw(path, bugs, caught):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    columns = sorted({family(case) for cases in caught.values() for case in cases})
    height = 1.6 + 0.24 * len(bugs)
    figure, axis = plt.subplots(figsize=(2.6 + 0.23 * len(columns), height + 1.2), dpi=150)
    for y, bug in enumerate(bugs):
        seen = [family(case) for case in caught[bug.name]]
        for x, column in enumerate(columns):
            if column in seen:
                meant = column.startswith(bug.meant.replace("test ", "")) or \
                    bug.meant.startswith(column)
                axis.add_patch(plt.Rectangle((x - 0.45, y - 0.45), 0.9, 0.9,
                                             color="#d55e00" if meant else "#0072b2"))
    axis.set_xlim(-0.5, len(columns) - 0.5)
    axis.set_ylim(len(bugs) - 0.5, -0.5)
    axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axis.set_yticks(range(len(bugs)), [bug.name for bug in bugs], fontsize=8)
    axis.grid(color="#dddddd", linewidth=0.4)
    axis.set_axisbelow(True)
    axis.set_title("Which family of cases catches which planted bug\n"
                   "(orange: the one meant for it)", fontsize=10, loc="left")
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("bug", nargs="*")
    options = parser.parse_args()
    bugs = [Bug(path) for path in sorted((ROOT / "tests/planted").glob("*.patch"))
            if not options.bug or path.stem in options.bug]
    tree = pathlib.Path(options.build).resolve() / "gallery" / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tree / part)
        else:
            shutil.copy2(source, tree / part)
    targets = sorted({f"build/{bug.program}" for bug in bugs})
    if any(bug.tests for bug in bugs):
        targets.append("build/tests")
    print(f"gallery: {len(bugs)} bugs; building the sound programs", flush=True)
    ok, log = make(tree, targets)
    if not ok:
        fail(2, "the sound sources do not build\n" + log[-2000:])
    naive_inputs(tree)
    caught, survived, rows = {}, [], []
    for bug in bugs:
        if failures(tree, bug):
            fail(1, f"{bug.program} {bug.variant} fails without any bug")
        good = naive_outputs(tree, bug)
        patch(tree, bug)
        ok, log = make(tree, ["build/tests" if bug.tests else f"build/{bug.program}"])
        if not ok:
            fail(2, f"{bug.path.name} does not compile\n{log[-2000:]}")
        caught[bug.name] = failures(tree, bug)
        naive = "passes" if naive_check_passes(good, naive_outputs(tree, bug)) else "fails"
        naive = "-" if bug.tests else naive
        patch(tree, bug, reverse=True)
        make(tree, ["build/tests" if bug.tests else f"build/{bug.program}"])
        meant = [case for case in caught[bug.name]
                 if case.startswith(bug.meant.replace("test ", ""))]
        verdict = "caught" if meant else "NOT BY ITS CASE" if caught[bug.name] else "SURVIVED"
        if not meant:
            survived.append(bug.name)
        rows.append([bug.name, bug.program, bug.variant, len(caught[bug.name]),
                     meant[0] if meant else "", naive, verdict])
        print(f"{bug.name:34} {verdict:16} by {len(caught[bug.name]):4} cases; naive check "
              f"{naive:7} {meant[0] if meant else caught[bug.name][:1]}", flush=True)
    out = tree.parent
    with open(out / "gallery.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["bug", "program", "variant", "failing_cases", "meant_case",
                         "naive_check", "verdict"])
        writer.writerows(rows)
    try:
        draw(out / "gallery.png", bugs, caught)
        print(f"gallery: {out}/gallery.png")
    except ImportError:
        print("gallery: no matplotlib, no picture")
    blind = sum(row[5] == "passes" for row in rows)
    print(f"{len(bugs) - len(survived)} bugs caught, {len(survived)} not; {blind} of them pass "
          "a naive check")
    if survived:
        fail(1, "not caught as meant: " + ", ".join(survived))


if __name__ == "__main__":
    main()
