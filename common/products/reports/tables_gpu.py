"""tables_gpu.py: the last rungs beside the libraries, forward and backward; softmax on a GPU."""
import math
import pathlib
import re

import pandas as pd

from ladder import LAST
from peers_methods import FLASH, IN_ORDER as DETERMINISTIC
from registry import table
from results import each, middle_run, need, number_runs, read_lines
from words import (grid, in_brackets, interval, listing, of_runs, panel_text, seconds,
                   shape_text, share_of, si, significant)

BEST_PEERS = {"pytorch-cudnn": "cuDNN", "flash-attention-3": "FlashAttention-3",
              "flash-attention-4": "FlashAttention-4"}
SAFE = "heavy_first"  # the last rung whose reference is the maximum of every block
REGIMES = {"cold": "one call at a time, the L2 cache flushed before it",
           "sustained": "calls back to back"}
BACKWARD = {64: "gradient_narrow_heads", 128: "gradient_overlap", 256: "gradient_wide_heads"}
IN_ORDER = ["gradient_in_order"]
ROOT = pathlib.Path(__file__).resolve().parents[3]
BACKWARD_LAUNCH = ROOT / "05_flash_cuda/backward/hopper_launch.h"
ORDERED_PEERS = [name + DETERMINISTIC for name in FLASH]


def is_tuned(rows):
    """Lengths, heads and head_dim are those that the ladder was measured at."""
    return rows.head_dim.isin((64, 128, 256)) & (rows.heads_q == rows.heads_kv) \
        & rows.length.map(lambda n: n > 0 and math.log2(n) % 1 == 0)


def tflops(row):
    """'743 (98 %)', of the ceiling."""
    return significant(row.gflops / 1000) + in_brackets(share_of(row))


# --- Ours beside the libraries ---

SHAPE = "head_dim head_dim_v causal length heads_q heads_kv batch seqlen_q seqlen_k".split()


def compare(rows, ours, peers):
    """A line a problem that both have computed: TFLOP/s of the fastest of ours (of several runs the
    middle one), its `ratio` to the fastest library as text, that library of the latest run, and
    the number of runs."""
    times = rows.pivot_table(index=[*SHAPE, "run"], columns="variant", values="median_s")
    ours, peers = (times.reindex(columns=[n for n in names if n in times]).dropna(how="all")
                   for names in (ours, peers))
    runs = pd.DataFrame({"took": ours.min(axis=1), "of_peer": peers.min(axis=1)}).dropna()
    runs = need(runs, "no measurement of our kernels beside the libraries").assign(
        name=peers.idxmin(axis=1), ratio=runs.of_peer / runs.took)
    of = runs.groupby(level=SHAPE)
    flops = rows.groupby(SHAPE).flops.first()
    return pd.DataFrame({
        "tflops": flops / of.took.quantile(0.5, interpolation="higher") / 1e12,
        "ratio": of.ratio.agg(interval),
        "library": of.name.first(), "runs": of.size(),
    }).dropna().reset_index()


def text_of(pair, *more):
    """'812 (1.13)'; more ratios behind."""
    return f"{significant(pair.tflops)} ({'; '.join([pair.ratio, *more])})"


def beside_peers(data, regime="cold", layout="bhld", tuned=True, ours=(LAST,)):
    """(the last rung and the fastest of the libraries, the measurements)."""
    names = [*ours, *BEST_PEERS]
    rows = data.beside_peers.query("regime == @regime and layout == @layout and variant in @names")
    rows = rows[is_tuned(rows) == tuned]
    return compare(need(rows, f"no measurement of the last rung beside cuDNN, {regime}, {layout}"),
                   ours, BEST_PEERS), rows


def of_the_libraries(rows, pairs):
    """'cuDNN' or 'the best of cuDNN and FlashAttention-3', whatever was measured; of how many runs."""
    names = [text for name, text in BEST_PEERS.items() if (rows.variant == name).any()]
    best = "the best of " if len(names) > 1 else ""
    return best + " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) \
        + of_runs(pairs.runs, "; the least and the largest ratio of {} runs")


def by_length(pairs, more=None):
    """The grid of pairs by length; more: (name, {panel, length: text}) of a second line for each
    panel."""
    cells = {}
    for pair in each(pairs):
        panel, length = panel_text(pair.head_dim, pair.causal), si(pair.length)
        cells[panel, length] = text_of(pair)
        if more and (panel, length) in more[1]:
            cells[f"{panel}, {more[0]}", length] = more[1][panel, length]
    return grid("bf16", cells, columns=map(si, sorted({*pairs.length})))


@table("(hopper|layouts)(?:-(sustained))?")
def hopper(data, name, regime):
    """The last rung: TFLOP/s and the ratio to the best library by length, cold; hopper-sustained:
    calls back to back; layouts: arrays stored as [batch, length, heads, head_dim], as they lie."""
    regime, layout = regime or "cold", "blhd" if name == "layouts" else "bhld"
    pairs, rows = beside_peers(data, regime, layout)
    return (f"TFLOP/s by queries and keys (times as fast as {of_the_libraries(rows, pairs)}), {regime}: "
            f"{REGIMES[regime]}.", by_length(pairs), rows)


def in_order_up_to():
    """The most keys x head_dim for which `run` and the library take the gradient in a fixed order."""
    text = BACKWARD_LAUNCH.read_text(encoding="utf-8")
    return 1 << int(re.search(r"#define IN_ORDER_UP_TO \(1 << (\d+)\)", text)[1])


@table("backward-gpu(?:-(sustained))?")
def backward_gpu(data, regime):
    """The backward pass by length: the rung that is taken beside the best library, and the price of a
    fixed order of additions; backward-gpu-sustained: calls back to back."""
    regime = regime or "cold"
    rows = number_runs(data.file("backward/h200.csv").query("regime == @regime"))
    taken = rows.variant == rows.head_dim.map(BACKWARD).where(
        rows.seqlen_k * rows.head_dim > in_order_up_to(), IN_ORDER[0])
    if data.machine:  # the H100's lines are older than rung 7 and the choice
        taken = rows.variant.isin([*BACKWARD.values()])
    rows = pd.concat([rows, rows[taken].assign(variant="taken")])
    pairs, price = compare(rows, ["taken"], BEST_PEERS), compare(rows, IN_ORDER, ["taken"])
    others = {pair[:4]: pair.ratio for pair in each(compare(rows, IN_ORDER, ORDERED_PEERS))}
    ordered = {(panel_text(pair.head_dim, pair.causal), si(pair.length)):
               text_of(pair, others.get(pair[:4], "–")) for pair in each(price)}
    return (f"TFLOP/s by queries and keys (times as fast as {of_the_libraries(rows, pairs)}; in order: times as fast as "
            f"the line above; as the best library in its deterministic mode), {regime}: "
            f"{REGIMES[regime]}.", by_length(pairs, ("in order", ordered)), rows)


@table("backward-ladder")
def backward_ladder(data):
    """Each rung of the backward ladder and each library at the longest length."""
    rows = data.file("backward/ladder.csv").sort_values(["head_dim", "causal"], kind="stable")
    what = ["variant", "head_dim", "causal"]
    cells = {(row.variant, panel_text(row.head_dim, row.causal)): tflops(row)
             for row in each(middle_run(rows, what))}
    return (f"TFLOP/s (percent of the ceiling, a matrix product), {si(rows.seqlen_k.max())} keys"
            + of_runs(rows.groupby(what).size(), "; medians of {} runs") + ".",
            grid("variant", cells), rows)


@table("untuned")
def untuned(data):
    """The same, or `general` where it is faster, at lengths, groups and head dimensions that
    nothing was tuned on."""
    known = {regime: beside_peers(data, regime, tuned=False, ours=(LAST, "general"))
             for regime in REGIMES}
    cells = {(shape_text(pair), regime): text_of(pair)
             for regime, (pairs, _) in known.items() for pair in each(pairs)}
    pairs, rows = known["cold"]
    return (f"TFLOP/s (times as fast as {of_the_libraries(rows, pairs)}), bf16.",
            grid("shape", cells), rows)


def compare_each(rows, ours, peers):
    """compare() for each text of the column `what`, which stands in a column of the result, too."""
    return pd.concat(compare(number_runs(some), ours, peers).assign(what=what)
                     for what, some in rows.groupby("what", sort=False))


@table("adversarial")
def adversarial(data):
    """Rows that need the repair: TFLOP/s and error of the last rung and of its peers, no mask."""
    rows = data.file("hopper/hard.csv").query("causal == 0")
    rows["what"] = rows["flags"].str.split("; ").str[3] + rows.head_dim.map(", d = {:.0f}".format)
    names = [name for name in (SAFE, LAST, *BEST_PEERS) if (rows.variant == name).any()]
    cells = {(row.what, row.variant): f"{row.gflops / 1000:.0f} ({row.max_err:.4f})"
             for row in each(middle_run(rows, ["what", "variant"]))}
    pairs = compare_each(rows, [LAST], BEST_PEERS)
    cells |= {(pair.what, "ratio"): pair.ratio for pair in each(pairs)}
    return ("TFLOP/s (largest error), 4k keys, no mask; ratio: times as fast as the fastest library, "
            f"`{LAST}`{of_runs(pairs.runs, ', the least and the largest of {} runs')}.",
            grid("data", cells, columns=[*names, "ratio"]), rows)


@table("decode-lengths")
def decode_lengths(data):
    """One new query per sequence over caches of different lengths, from hopper/decode.csv."""
    rows = data.file("hopper/decode.csv")
    words = rows["flags"].str.split("; ")
    rows["what"] = words.str[2] + ", " + words.str[1]
    names = [*dict.fromkeys(rows.variant)]
    shape = ["batch", "heads_q", "heads_kv", "seqlen_k"]
    cells = {(f"{shape_text(row)}, {row.what}", row.variant): f"{row.gbps:.0f}"
             for row in each(middle_run(rows, [*shape, "what", "variant"]))}
    pairs = compare_each(rows, names[:1], names[1:])
    cells |= {(f"{shape_text(pair)}, {pair.what}", "ratio"): pair.ratio for pair in each(pairs)}
    return ("GB/s of the keys and values that are visible, bf16, cold; ratio: times as fast as the "
            f"best of the others{of_runs(pairs.runs, ', the least and the largest of {} runs')}.",
            grid("caches", cells, columns=[*names, "ratio"]), rows)


# --- Softmax ---

@table("gpu-traffic")
def gpu_traffic(data):
    """Stages 1 to 3 on a GPU at the shape where most were counted: traffic predicted and counted, and time."""
    rows = data.rows.query("op == 'softmax' and device == 'gpu' and dtype == 'f32' and bytes_measured > 0 and reps > 0")
    need(rows, "no GPU softmax has bytes_measured; `make profile 3` counts them")
    shape = rows.groupby(["rows", "cols"], sort=False).size().idxmax()
    here = rows[(rows.rows == shape[0]) & (rows.cols == shape[1])].sort_values(
        ["stage", "bytes_predicted", "median_s"], ascending=[True, False, True])
    once = 4 * shape[0] * shape[1]
    return f"Softmax of [{si(shape[0])}, {si(shape[1])}] floats; G = {once / 1e9:.2f} GB.", listing(each(here), {
        "stage": lambda row: row.stage, "variant": lambda row: f"`{row.variant}`",
        "predicted": lambda row: f"{row.bytes_predicted / once:.2f} G",
        "counted": lambda row: f"{row.bytes_measured / once:.2f} G",
        "time": lambda row: seconds(row.median_s),
        "a copy of as many bytes": lambda row: seconds(row.bytes_measured / row.ceiling * 1e-9)}), here


@table("gpu-rows")
def gpu_rows(data):
    """GPU softmax by row length and type: percent of a copy of the same shape, ours and PyTorch."""
    # where gpu_one_pass was not timed, it takes one of the others
    names = {"gpu_two_pass": "ours", "gpu_registers": "ours", "gpu_one_pass": "ours", "pytorch-softmax": "PyTorch"}
    rows = data.rows.query("op == 'softmax' and device == 'gpu' and rows > 1 and variant in @names")
    need(rows, "no measurement of softmax on a GPU")
    share = 200e-9 * rows.rows * rows.cols * rows.dtype.map({"f32": 4}).fillna(2) / rows.median_s / rows.ceiling
    rows = rows.assign(share=share, place=rows.variant.map([*names].index)).sort_values("place")
    cells = {(si(row.cols), f"{row.dtype} {names[row.variant]}"): f"{row.share:.0f} %" for row in each(rows)}
    return ("", grid("row length", cells, map(si, sorted({*rows.cols})), [
        f"{dtype} {name}" for dtype in ("f32", "f16", "bf16") for name in ("ours", "PyTorch")]), rows)


# --- Stage 1's two kernels ---

SOURCE = ROOT / "01_naive/gpu/rows.cu"


@table("gpu-blocks")
def gpu_blocks(data):
    """Stage 1's GPU softmax, one launch each: few blocks and scattered accesses, each alone.

    gpu_thread_per_row reads and writes scattered addresses, and it has few blocks where the
    matrix has few rows; the accesses of gpu_block_per_row are coalesced.  Shapes with the same
    number of elements tell the two causes apart."""
    lines = each(data.file("profile_01_naive.csv", read_lines))
    threads = int(re.search(r"#define THREADS (\d+)", SOURCE.read_text(encoding="utf-8"))[1])

    def bytes_of_a_pass(line):
        return int(line.rows) * int(line.cols) * (4 if line.dtype == "f32" else 2)
    lines.sort(key=lambda line: (line.dtype != "f32", line.variant, -int(line.rows)))
    return "", listing(lines, {
        "kernel": lambda line: line.variant, "type": lambda line: line.dtype,
        "shape": lambda line: f"[{si(line.rows)}, {si(line.cols)}]",
        "blocks": lambda line: str(-(-int(line.rows) // threads))
        if line.variant == "gpu_thread_per_row" else line.rows,
        "time": lambda line: seconds(float(line.median_s)),
        "counted": lambda line: f"{float(line.bytes_measured) / bytes_of_a_pass(line):.2f} G",
        "sectors per load": lambda line: line.sectors_per_load,
        "of these from L1": lambda line: f"{line.l1_hit_pct} %",
        "L1 busy": lambda line: f"{line.l1_pct} %",
        "multiprocessors with work": lambda line: f"{line.active_pct} %"}), lines
