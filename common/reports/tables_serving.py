"""tables_serving.py: what the features of a serving system cost, from
notes/results/hopper/serving.csv (serving.py)."""
import re

from results import NoData, read_file, si
from tables_text import table

BASELINES = {"layout": "arrays [B, H, L, D]", "packed": "a batch of equal lengths",
             "window": "the share of the pairs in the time of all keys",
             "paged": "the same keys in a row"}


def number_in(row, name):
    """baseline_s, ideal_s or bound of the row's flags; None where it is not there."""
    found = re.search(rf"{name} ([0-9.e+-]+)", row.flags)
    return float(found[1]) if found else None


def shape_text(row):
    """Heads, lengths, d and mask in words."""
    heads = f"{row.heads_q:.0f}" + ("" if row.heads_q == row.heads_kv else f"/{row.heads_kv:.0f}")
    lengths = f"{si(row.seqlen_k)} keys" if row.seqlen_q == 1 \
        else f"{si(row.seqlen_q)} x {si(row.seqlen_k)}"
    return f"{row.batch:.0f} x {heads} heads, {lengths}, d = {row.head_dim:.0f}" \
        + (", causal" if row.causal else "")


def serving_table(directory):
    """A line for each feature and shape; then the host's time of a call."""
    path = directory / "hopper" / "serving.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    rows, cells, calls = read_file(path), [], []
    for row in rows:
        feature, _, name = row.variant.partition(": ")
        ideal, bound = number_in(row, "ideal_s"), number_in(row, "bound")
        if feature == "call":
            calls.append(f"{1e6 * row.median_s:.1f} µs of the host from Python, "
                         f"{1e6 * ideal:.1f} µs from C ({shape_text(row)})")
            continue
        speed = f"{row.gbps:.0f} GB/s" if feature == "paged" else \
            f"{row.gflops / 1000:.0f} TFLOP/s"
        cells.append([feature, name.replace(";", ","), shape_text(row),
                      f"{1e3 * row.median_s:.3f} ms", speed, f"{ideal / row.median_s:.2f}",
                      f"{bound:.2f}" if bound else ""])
    row = rows[0]
    return ["bf16, calls back to back, through the Python package. Ratio: the time of "
            + "; ".join(f"{text} ({name})" for name, text in BASELINES.items())
            + " over the measured time. Bound: the ratio of a kernel whose only loss is that it "
            "computes whole blocks of keys.", ""] + \
        table(["feature", "", "shape", "time", "speed", "ratio", "bound"], cells) + \
        ["", "One call takes " + "; ".join(calls) + ".", "",
         f"*{row.machine}; {row.compiler}; commit {row.commit}; {row.date[:10]}.*"]
