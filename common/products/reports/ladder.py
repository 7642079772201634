"""ladder.py: the rungs of stage 5 and the variants of the other stages in order, from the sources
that list them.  Without pandas: the scripts that measure need it too."""
import functools
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[3] / "05_flash_cuda/rungs.h"
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
    """The variants of a stage in the order of its list, which is the order of its ideas:
    {name: place}."""
    here = next(pathlib.Path(".").glob(f"0{stage}_*"), None)
    texts = [path.read_text(encoding="utf-8") for pattern in ("*.[ch]", "*.cu", "*/*.c", "*/*.cu",
             "*/*/*.cu") for path in sorted(here.glob(pattern))] if here else []
    names = dict(re.findall(r'const struct variant (\w+) = \{\s*\.name = "(\w+)"',
                            "\n".join(texts)))
    blocks = (re.search(r"\bvariants\[\] = \{(.*?)\};", text, re.S) for text in texts)
    block = next((block[1] for block in blocks if block), "")
    listing = re.sub(r'#include "(\w+\.h)"', lambda name: re.sub(
        r"^RUNG\((\w+)", r"&\1", (here / name[1]).read_text(encoding="utf-8"), flags=re.M), block)
    symbols = re.findall(r"^\s*&(\w+)", listing, re.M)
    return {names.get(symbol, symbol): place for place, symbol in enumerate(symbols)}
