"""ladder.py: the rungs of stage 5 in order, from the table that lists them.  Without pandas:
the scripts that measure need it too."""
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[2] / "05_flash_cuda/rungs.h"
FIELDS = ("variant", "dtype", "expected", "because", "look_at")


def read_rungs():
    """What rungs.h says of each rung, in order: a dict with the fields of its entry.  A course
    that has not come to stage 5 has no rungs."""
    if not TABLE.exists():
        return []
    entry = re.compile(r'^RUNG\((\w+), (\w+), "(.*?)",\s*"(.*?)",\s*"(.*?)"\)', re.M | re.S)
    return [dict(zip(FIELDS, found)) for found in entry.findall(TABLE.read_text(encoding="utf-8"))]


STEPS = read_rungs()
RUNGS = [rung["variant"] for rung in STEPS]
IN_FLOAT = [rung["variant"] for rung in STEPS if rung["dtype"] == "F32"]
ROOF, SPLIT = "no_softmax", "split_kv"
LAST = RUNGS[-1] if RUNGS else None
FIRST_HOPPER = RUNGS.index("wgmma") if RUNGS else 0
LAST_PORTABLE = RUNGS[FIRST_HOPPER - 1] if RUNGS else None


def number_of(name):
    """'3' for tensor_cores; the name itself for what is no rung."""
    return str(RUNGS.index(name) + 1) if name in RUNGS else name
