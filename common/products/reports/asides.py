#!/usr/bin/env python3
"""asides.py: what each step inside a rung gains, and each aside beside the ladder.

    python3 common/products/reports/asides.py --results notes/results [--rounds 3]

A *step* is a patch from a rung without one of its ideas to the rung (05_flash_cuda/*/steps).  An
*aside* is a patch from rung 13 to rung 13 with one of rung 14's ideas (05_flash_cuda/hopper/asides).
In a copy of the sources under build/asides each becomes a kernel of its own, without_NAME or
with_NAME, which is measured in turn with its rung: hopper/asides.csv, hopper/steps.csv and
backward/steps.csv.  What a step saves may be registers, so its rung without it may spill some.  Exit
status as of peers.py.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATCHES = {path.stem: path for room in ("hopper", "backward") for kind in ("asides", "steps")
           for path in sorted((ROOT / "05_flash_cuda" / room / kind).glob("*.patch"))}
ASIDES = [name for name, path in PATCHES.items() if path.parent.name == "asides"]
STEPS = [name for name in PATCHES if name not in ASIDES]
RUNG = "first_block_max"
# (head_dim, batch, seqlen, causal) of 2048 columns of heads, where an aside pays or costs
ASIDE_SHAPES = [(64, 4, 4096, 0), (64, 1, 16384, 0), (64, 128, 128, 0), (128, 1, 16384, 0), (128, 16, 1024, 1),
                (128, 32, 512, 1), (128, 128, 128, 0)]
STEP_SHAPES = [(dim, 16384 // keys, keys, causal) for dim in (64, 128) for keys in (512, 4096)
               for causal in (0, 1)]


def text_of(name):
    return PATCHES[name].read_text(encoding="utf-8")


def rung_of(name):
    """(the file of the rung that the patch changes, the rung's name)."""
    path = re.search(r"^\+\+\+ b/(\S+)$", text_of(name), re.M)[1]
    room, stem = pathlib.Path(path).parent.name, pathlib.Path(path).stem[3:]
    return path, f"gradient_{stem}" if room == "backward" else stem


def kernel_of(name):
    return f"with{'out' * (name in STEPS)}_{name}"


def plant(tree):
    """Makes each a kernel of its own in a copy of the sources."""
    rungs = tree / "05_flash_cuda/rungs.h"
    for name, patch in PATCHES.items():
        path, rung = rung_of(name)
        kernel = (tree / path).with_name(f"{kernel_of(name)}.cu")
        subprocess.run(["patch", "-s", "--fuzz=0", *["-R"] * (name in STEPS), "-o", kernel,
                        tree / path, patch], check=True)
        kernel.write_text(re.sub(rf"\b{rung}(?=_kernel\b|\b)", kernel_of(name),
                                 kernel.read_text(encoding="utf-8")), encoding="utf-8")
        rungs.write_text(rungs.read_text(encoding="utf-8").replace(
            "BESIDE(general)\n", f"BESIDE({kernel_of(name)})\nBESIDE(general)\n"), encoding="utf-8")


def measure(op, csv, library, names, shapes, rounds):
    """The exit status of peers.py."""
    shapes = [f"--shape={batch},{2048 // dim},{2048 // dim},{keys},{keys},{dim},{causal}"
              for dim, batch, keys, causal in sorted(shapes)]
    csv.unlink(missing_ok=True)
    return subprocess.run(
        [sys.executable, ROOT / "common/products/reports/peers.py", "--op", op, "--csv", csv, "--library",
         library, "--variants", ",".join(names), "--backends", "", "--regimes", "cold",
         "--seconds", "0.3", *shapes * rounds], check=False).returncode


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--results", required=True, type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    tree = ROOT / "build/asides"
    shutil.rmtree(tree, ignore_errors=True)
    for part in [*ROOT.glob("0[1-9]_*"), ROOT / "common"]:
        shutil.copytree(part, tree / part.name)
    shutil.copy2(ROOT / "Makefile", tree)
    plant(tree)
    library = tree / "build/libfive_steps.so"
    subprocess.run(["make", "-j16", "NO_INSTALL=1", "CUDA_ARCH=90a", "build/libfive_steps.so"],
                   cwd=tree, check=True, env={**os.environ, "SPILLS": "allowed"})

    def kernels(names):
        return [*dict.fromkeys(rung_of(name)[1] for name in names), *map(kernel_of, names)]
    forward = [name for name in STEPS if PATCHES[name].parts[-3] == "hopper"]
    sys.exit(max(measure(op, options.results / csv, library, names, shapes, options.rounds) for op, csv, names, shapes in (
        ("attention", "hopper/asides.csv", [*kernels(ASIDES), "tuned"], ASIDE_SHAPES),
        ("attention", "hopper/steps.csv", kernels(forward), STEP_SHAPES),
        ("backward", "backward/steps.csv", kernels([name for name in STEPS if name not in forward]), STEP_SHAPES))))


if __name__ == "__main__":
    main()
