"""ladder.py: the rungs of stage 5 in order, which are its numbered files, and the variants of all stages,
from their programs.  Without pandas: the scripts that measure need it too."""
import csv
import functools
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]


@functools.cache
def variants_of(stage):
    """What a stage's program says of its variants, a dict each; none where it is not built."""
    programs = [ROOT / os.environ.get("BUILD", "build") / folder.name for folder in ROOT.glob(f"0{stage}_*")]
    return [row for program in programs if program.exists() for row in csv.DictReader(subprocess.run(
        [program, "list", "--csv", "/dev/stdout"], text=True, check=True, stdout=subprocess.PIPE).stdout.splitlines())]


RUNGS = [path.stem[3:] for room in ("portable", "hopper")
         for path in sorted((ROOT / "05_flash_cuda" / room).glob("[0-9][0-9]_*.cu"))]
ROOF, SPLIT = "no_softmax", "split_kv"
LAST = RUNGS[-1] if RUNGS else None
FIRST_HOPPER = RUNGS.index("tma") if RUNGS else 0
LAST_PORTABLE = RUNGS[FIRST_HOPPER - 1] if RUNGS else None
# the rungs with what was expected of them, forward and backward; the names of those in float32
STEPS = [row for row in variants_of(5) if row["measured_in"]]
GRADIENTS = [row for row in variants_of(5) if row["group"] == "backward"]
IN_FLOAT = [row["variant"] for row in STEPS if row["measured_in"] == "F32"]


def number_of(name):
    """'3' for tensor_cores; the name itself for what is no rung."""
    return str(RUNGS.index(name) + 1) if name in RUNGS else name


def listed(stage):
    """The variants of a stage in the order of its program's list: {name: place}."""
    return {row["variant"]: place for place, row in enumerate(variants_of(stage), 1)}
