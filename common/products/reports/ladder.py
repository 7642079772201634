"""ladder.py: the rungs of stage 5 in order, from the file that lists them, and the variants of all stages,
from their programs.  Without pandas: the scripts that measure need it too."""
import functools
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
TABLE = ROOT / "05_flash_cuda/rungs.h"
FIELDS = ("variant", "dtype", "expected", "because", "look_at")


def read_rungs(kind, fields):
    """What rungs.h says of each rung, in order: a dict with the fields of its entry.  A course
    that has not come to stage 5 has no rungs."""
    if not TABLE.exists():
        return []
    entry = re.compile(rf'^{kind}\((\w+)' + r',\s*"?([^"]*?)"?' * (len(fields) - 1) + r"\)$", re.M)
    return [dict(zip(fields, found)) for found in entry.findall(TABLE.read_text(encoding="utf-8"))]


STEPS = read_rungs("RUNG", FIELDS)
GRADIENTS = read_rungs("GRADIENT", ("variant", "over", "expected", "because"))
RUNGS = [rung["variant"] for rung in STEPS]
IN_FLOAT = [rung["variant"] for rung in STEPS if rung["dtype"] == "F32"]
ROOF, SPLIT = "no_softmax", "split_kv"
LAST = RUNGS[-1] if RUNGS else None
FIRST_HOPPER = RUNGS.index("tma") if RUNGS else 0
LAST_PORTABLE = RUNGS[FIRST_HOPPER - 1] if RUNGS else None


def number_of(name):
    """'3' for tensor_cores; the name itself for what is no rung."""
    return str(RUNGS.index(name) + 1) if name in RUNGS else name


@functools.cache
def listed(stage):
    """The variants of a stage in the order of its program's list: {name: place}."""
    (folder,) = ROOT.glob(f"0{stage}_*")
    lines = subprocess.run([ROOT / os.environ.get("BUILD", "build") / folder.name, "list"], text=True, check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return {line.split()[0]: place for place, line in enumerate(lines) if line[0] != "#"}
