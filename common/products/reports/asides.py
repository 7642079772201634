#!/usr/bin/env python3
"""asides.py: what each aside of the Hopper ladder gains over rung 13.

    python3 common/products/reports/asides.py --csv notes/results/hopper/asides.csv [--rounds 3]

An aside is a patch of rung 13 (05_flash_cuda/hopper/asides).  In a copy of the sources under
build/asides each becomes a kernel of its own beside rung 13, with_NAME.  peers_gpu.py measures all
of them in turn, round after round, at the shapes where each should pay.  With 128 keys `tuned` is
few_keys and nothing else.  Exit status as there.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOPPER = "05_flash_cuda/hopper"
RUNG = "first_block_max"
ASIDES = sorted(path.stem for path in (ROOT / HOPPER / "asides").glob("*.patch"))
FEW_KEYS = "few_keys"
# aside: shapes (head_dim, batch, seqlen, causal) of 2048 columns of heads, where it pays or costs
SHAPES = {
    FEW_KEYS: [(64, 128, 128, 0), (128, 128, 128, 0), (256, 128, 128, 0)],
    "last_waves": [(128, 1, 16384, 0), (64, 1, 16384, 0), (128, 16, 1024, 1)],
    "late_turns": [(64, 4, 4096, 0), (64, 1, 16384, 0)],
    "small_tiles": [(128, 32, 512, 1), (128, 16, 1024, 1)],
}


def text_of(name):
    return (ROOT / HOPPER / f"asides/{name}.patch").read_text(encoding="utf-8")


def plant(tree):
    """Makes each aside a kernel of its own in a copy of the sources."""
    rungs = tree / "05_flash_cuda/rungs.h"
    for name in ASIDES:
        kernel = tree / HOPPER / f"with_{name}.cu"
        subprocess.run(["patch", "-s", "--fuzz=0", "-o", kernel, tree / HOPPER / f"13_{RUNG}.cu",
                        ROOT / HOPPER / f"asides/{name}.patch"], check=True)
        text = kernel.read_text(encoding="utf-8")
        for form in (f"{RUNG}_kernel", f"({RUNG})", f'"{RUNG}"'):
            text = text.replace(form, form.replace(RUNG, f"with_{name}"))
        kernel.write_text(text, encoding="utf-8")
        rungs.write_text(rungs.read_text(encoding="utf-8").replace(
            "BESIDE(general)\n", f"BESIDE(with_{name})\nBESIDE(general)\n"), encoding="utf-8")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--csv", required=True, type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    tree = ROOT / "build/asides"
    shutil.rmtree(tree, ignore_errors=True)
    for part in [*ROOT.glob("0[1-9]_*"), ROOT / "common"]:
        shutil.copytree(part, tree / part.name)
    shutil.copy2(ROOT / "Makefile", tree)
    plant(tree)
    library = tree / "build/libfive_steps.so"
    subprocess.run(["make", "-j16", "CUDA_ARCH=90a", "build/libfive_steps.so"], cwd=tree,
                   check=True)
    shapes = [f"--shape={batch},{2048 // dim},{2048 // dim},{keys},{keys},{dim},{causal}"
              for dim, batch, keys, causal in sorted({x for at in SHAPES.values() for x in at})]
    names = [RUNG, *(f"with_{name}" for name in ASIDES), "tuned"]
    sys.exit(subprocess.run(
        [sys.executable, ROOT / "common/products/reports/peers_gpu.py", "--csv", options.csv, "--library",
         library, "--variants", ",".join(names), "--backends", "", "--regimes", "cold", "--seconds", "0.3",
         *shapes * options.rounds], check=False).returncode)


if __name__ == "__main__":
    main()
