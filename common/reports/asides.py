#!/usr/bin/env python3
"""asides.py: what each aside of the Hopper ladder gains over rung 13.

    python3 common/reports/asides.py --csv notes/results/hopper/asides.csv [--rounds 3]

An aside is a patch of rung 13 (05_flash_cuda/hopper/asides).  In a copy of the sources under
build/asides each becomes a kernel of its own beside rung 13, with_NAME.  They are benched in turn,
round after round, at the shapes where each should pay.  Exit status 77 without a GPU.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOPPER = "05_flash_cuda/hopper"
RUNG = "first_block_max"
ASIDES = sorted(path.stem for path in (ROOT / HOPPER / "asides").glob("*.patch"))
# aside: shapes (head_dim, batch, seqlen, causal) of 2048 columns of heads
SHAPES = {
    "few_keys": [(64, 128, 128, 0), (128, 128, 128, 0)],
    "last_waves": [(128, 2, 8192, 0), (64, 1, 16384, 0)],
    "late_turns": [(64, 4, 4096, 0), (64, 1, 16384, 0)],
    "small_tiles": [(128, 32, 512, 1), (128, 16, 1024, 1)],
    "stages": [(128, 8, 2048, 0), (128, 4, 4096, 0)],
    "turns_passed_on": [(64, 32, 512, 1), (128, 8, 2048, 1)],
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
    program = tree / "build/05_flash_cuda"
    subprocess.run(["make", "-j16", "CUDA_ARCH=90a", "build/05_flash_cuda"], cwd=tree, check=True)
    for _ in range(options.rounds):
        for name, shapes in SHAPES.items():
            for head_dim, batch, seqlen, causal in shapes:
                for variant in (RUNG, f"with_{name}", "tuned"):
                    done = subprocess.run(map(str, [
                        program, "bench", "--variant", variant, "--csv", options.csv.resolve(),
                        "--dtype", "bf16", "--batch", batch, "--heads-q", 2048 // head_dim,
                        "--seqlen-q", seqlen, "--seqlen-k", seqlen, "--head-dim", head_dim,
                        *["--causal"] * causal]), check=False)
                    if done.returncode:
                        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
