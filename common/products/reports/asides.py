#!/usr/bin/env python3
"""asides.py: a library with a kernel for each step inside a rung, and for each aside beside the ladder.

A *step* is a patch from a rung without one of its ideas to the rung (05_flash_cuda/*/steps).  An
*aside* is a patch from rung 13 to rung 13 with one of rung 14's ideas (05_flash_cuda/hopper/asides).
In a copy of the sources under build/asides each becomes a kernel of its own, without_NAME or
with_NAME, which measure.py's parts asides, steps and backward_steps measure in turn with its rung.  What a step
saves may be registers, so its rung without it may spill some.
"""
import os
import pathlib
import re
import shutil
import subprocess

from ladder import ROOT

PATCHES = {path.stem: path for room in ("hopper", "backward") for kind in ("asides", "steps")
           for path in sorted((ROOT / "05_flash_cuda" / room / kind).glob("*.patch"))}
ASIDES = [name for name, path in PATCHES.items() if path.parent.name == "asides"]
STEPS = [name for name in PATCHES if name not in ASIDES]
RUNG, RUNGS_H = "first_block_max", "05_flash_cuda/rungs.h"
TREE = ROOT / "build/asides"
LIBRARY = TREE / "build/libfive_steps.so"


def text_of(name):
    return PATCHES[name].read_text(encoding="utf-8")


def room_of(name):
    """'hopper' or 'backward'."""
    return PATCHES[name].parts[-3]


def rung_of(name):
    """(the file of the rung that the patch changes, the rung's name)."""
    path = re.search(r"^\+\+\+ b/(\S+)$", text_of(name), re.M)[1]
    stem = pathlib.Path(path).stem[3:]
    return path, f"gradient_{stem}" if room_of(name) == "backward" else stem


def kernel_of(name):
    return f"with{'out' * (name in STEPS)}_{name}"


def kernels(names):
    """The rungs that the patches change, and what they make of them."""
    return [*dict.fromkeys(rung_of(name)[1] for name in names), *map(kernel_of, names)]


def write(name, text, *sources):
    """A file of the copy, as old as the newest of its sources, so that make compiles only what has changed."""
    (TREE / name).write_text(text, encoding="utf-8")
    shutil.copystat(max(sources, key=os.path.getmtime), TREE / name)


def main():
    """Makes the copy, plants the kernels and builds the library."""
    for part in [*ROOT.glob("0[1-9]_*"), ROOT / "common"]:
        shutil.rmtree(TREE / part.name, ignore_errors=True)
        shutil.copytree(part, TREE / part.name)
    shutil.copy2(ROOT / "Makefile", TREE)
    beside = "".join(f"BESIDE({kernel_of(name)})\n" for name in PATCHES)
    write(RUNGS_H, (ROOT / RUNGS_H).read_text(encoding="utf-8").replace("BESIDE(general)\n", f"{beside}BESIDE(general)\n"),
          ROOT / RUNGS_H, *PATCHES.values())
    for name, patch in PATCHES.items():
        path, rung = rung_of(name)
        text = subprocess.run(["patch", "-s", "--fuzz=0", *["-R"] * (name in STEPS), "-o", "-", ROOT / path, patch], text=True,
                              check=True, stdout=subprocess.PIPE).stdout
        write(pathlib.Path(path).with_name(f"{kernel_of(name)}.cu"),
              re.sub(rf"\b{rung}(?=_kernel\b|\b)", kernel_of(name), text), ROOT / path, patch)
    subprocess.run(["make", "-j16", "NO_INSTALL=1", "CUDA_ARCH=90a", LIBRARY.relative_to(TREE)], cwd=TREE, check=True,
                   env={**os.environ, "SPILLS": "allowed"})


if __name__ == "__main__":
    main()
