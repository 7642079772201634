"""ladder.py: the rungs of stage 5 in order, and what the CSV files say of their steps.

For tables_ladder.py and ladder_figures.py.  Attention of 16k tokens and 2048 columns over all
heads, as peers_gpu.py measures it: rungs 1 and 2 in float32, the others in bfloat16.
"""
import collections
import csv
import pathlib
import re

from results import Malformed, NoData, si

TABLE = pathlib.Path(__file__).resolve().parents[2] / "05_flash_cuda/rungs.h"


def read_rungs():
    """What rungs.h says of each rung, in order: a dict with the fields of its entry.  A course
    that has not come to stage 5 has no rungs."""
    if not TABLE.exists():
        return []
    entry = re.compile(r'^RUNG\((\w+), (\w+), "(.*?)",\s*"(.*?)",\s*"(.*?)"\)', re.M | re.S)
    fields = ("variant", "dtype", "expected", "because", "look_at")
    return [dict(zip(fields, found))
            for found in entry.findall(TABLE.read_text(encoding="utf-8"))]


RUNGS = [rung["variant"] for rung in read_rungs()]
IN_FLOAT = [rung["variant"] for rung in read_rungs() if rung["dtype"] == "F32"]
ROOF, SPLIT = "no_softmax", "split_kv"
LAST = RUNGS[-1] if RUNGS else None
LAST_PORTABLE = RUNGS[RUNGS.index("wgmma") - 1] if RUNGS else None
NOISE = 1.02  # a difference below this is none
PROFILE = "profile_05_flash_cuda.csv"


def number_of(name):
    """'3' for tensor_cores; the name itself for what is no rung."""
    return str(RUNGS.index(name) + 1) if name in RUNGS else name


def timed(rows):
    """Rungs, roof and peers on a GPU in the type that they compute in."""
    return [row for row in rows if row.op == "attention" and row.device == "gpu" and row.reps
            and row.stage in ("5", "roof", "peer") and row.head_dim == row.head_dim_v
            and (row.dtype == "f32") == (row.variant in IN_FLOAT)]


def by_length(rows):
    """{(head_dim, causal): {variant: {length: row}}} of square attention, of the amount of
    work that was measured most often."""
    square = [row for row in timed(rows) if row.seqlen_q == row.seqlen_k]
    if not square:
        raise NoData("no measurement of stage 5 on a GPU")

    def work(row):
        return row.batch * row.heads_q * row.seqlen_q * row.head_dim
    usual = collections.Counter(work(row) for row in square).most_common(1)[0][0]
    out = collections.defaultdict(lambda: collections.defaultdict(dict))
    for row in square:
        if work(row) == usual:
            out[row.head_dim, row.causal or 0][row.variant][row.length] = row
    return out


def work_text(row):
    """'16k tokens, 2048 columns of heads'."""
    return (f"{si(row.batch * row.seqlen_q)} tokens, "
            f"{row.heads_q * row.head_dim:.0f} columns of heads")


def one_query(rows):
    """{variant: {keys: row}} of one query in 16 bits, batch 1, of the head_dim measured
    most often."""
    chosen = [row for row in timed(rows) if row.seqlen_q == 1 and row.batch == 1
              and row.heads_q == row.heads_kv and row.dtype != "f32"]
    if not chosen:
        raise NoData("no measurement of one query")
    usual = collections.Counter((row.heads_q, row.head_dim) for row in chosen)
    out = collections.defaultdict(dict)
    for row in chosen:
        if (row.heads_q, row.head_dim) == usual.most_common(1)[0][0]:
            out[row.variant][row.length] = row
    return out


def overtakes(before, after):
    """Where `after` is faster than `before`, both {length: row}, in words."""
    lengths = sorted(set(before) & set(after))
    if not lengths:
        return ""
    faster = [n for n in lengths
              if before[n].median_s > NOISE * after[n].median_s]
    if len(faster) == len(lengths):
        return "always"
    if not faster:
        return "never"
    tail = [n for n in lengths if all(m in faster for m in lengths if m >= n)]
    if tail:
        return f"from {si(tail[0])}"
    if faster == [n for n in lengths if n <= faster[-1]]:
        return f"up to {si(faster[-1])}"
    return "at " + ", ".join(si(n) for n in faster)


def read_profile(directory):
    """{(variant, head_dim): {column: text}} of what `make profile 5` counted."""
    path = directory / PROFILE
    if not path.exists():
        raise NoData(f"no file {path}; `make profile 5` writes it")
    with path.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    if not lines or "tensor_pct" not in lines[0]:
        raise Malformed(f"{path}: is not what `make profile 5` writes")
    return {(line["variant"], float(line["head_dim"])): line for line in lines}


def read_predictions():
    """The expected gain of each rung over the one before, written down with its reason."""
    return [dict(rung, over=before["variant"])
            for before, rung in zip(read_rungs(), read_rungs()[1:])]
