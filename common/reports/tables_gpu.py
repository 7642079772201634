"""tables_gpu.py: the last rungs beside the libraries, forward and backward; softmax on a GPU."""
import math
import pathlib
import re

from ladder import LAST, RUNGS
from peers_methods import ALL_PEERS, PEERS
from registry import table
from results import NoData, each, need, number_runs, read_lines
from words import (grid, in_brackets, listing, panel_text, provenance, seconds, share_of, si,
                   significant)

BEST_PEERS = {"pytorch-cudnn": "cuDNN", "flash-attention-3": "FlashAttention-3",
              "flash-attention-4": "FlashAttention-4"}
SAFE = "heavy_first"  # the last rung whose reference is the maximum of every block
REGIMES = {"cold": "one call at a time, the L2 cache flushed before it",
           "sustained": "calls back to back"}
BACKWARD, IN_ORDER = ["gradient_overlap", "gradient_wide_heads"], ["gradient_in_order"]
ORDERED_PEERS = [name for name in ALL_PEERS if name not in PEERS]


def is_tuned(rows):
    """Lengths, heads and head_dim are those that the ladder was measured at."""
    return rows.head_dim.isin((64, 128, 256)) & (rows.heads_q == rows.heads_kv) \
        & rows.length.map(lambda n: n > 0 and math.log2(n) % 1 == 0)


def tflops(row):
    """'743 (98 %)', of the ceiling."""
    return significant(row.gflops / 1000) + in_brackets(share_of(row))


def rungs_first(rows):
    """The rows in the order of the ladder, then our other kernels, then the libraries."""
    place = {name: n for n, name in enumerate(RUNGS)}
    return sorted(each(rows), key=lambda row: (row.stage == "peer",
                                               place.get(row.variant, len(place))))


@table("ladder-f32")
def ladder(data):
    """Stage 5 and its peers in float32, TFLOP/s by head_dim and causal, at the longest length."""
    rows = data.rows.query("op == 'attention' and device == 'gpu' and stage in ('5', 'peer') "
                           "and gflops > 0 and dtype == 'f32' and seqlen_q == seqlen_k")
    need(rows, "no measurement of stage 5 on a GPU")
    panels = rows.groupby(["head_dim", "causal"])
    rows = rows[(rows.flops == panels.flops.transform("max"))]
    works = sorted({(row.head_dim, row.causal, row.length) for row in each(rows)})
    cells = {(row.variant, (row.head_dim, row.causal, row.length)): tflops(row)
             for row in rungs_first(rows)}
    return (["TFLOP/s (percent of the ceiling), f32, cold.", ""]
            + grid("variant", cells, columns=works,
                   head=lambda work: f"{panel_text(*work[:2])}, {si(work[2])} keys")
            + provenance(each(rows)))


# --- Ours beside the libraries ---

SHAPE = ["head_dim", "head_dim_v", "causal", "length", "heads_q", "heads_kv"]


class Pair:
    """Our kernel and the libraries on one problem, by their names; the rows of each run that has
    both."""

    def __init__(self, rows, ours, peers):
        runs = [{row.variant: row for row in each(run)} for _, run in rows.groupby("run")]
        pairs = [[[line[name] for name in names if name in line] for names in (ours, peers)]
                 for line in runs]
        self.runs = [tuple(min(rows, key=lambda row: row.median_s) for rows in pair)
                     for pair in pairs if all(pair)]

    @property
    def ours(self):
        """Our row of the middle run."""
        return sorted((ours for ours, _ in self.runs), key=lambda row: row.median_s)[
            len(self.runs) // 2]

    @property
    def peer(self):
        """The library of the latest run."""
        return self.runs[0][1]

    def ratio(self, to="–"):
        """'1.13', or of several runs '1.10–1.13'."""
        texts = sorted(f"{peer.median_s / ours.median_s:.2f}" for ours, peer in self.runs)
        return to.join(dict.fromkeys((texts[0], texts[-1])))

    def text(self, *more):
        """'812 (1.13)'; more ratios behind."""
        return f"{significant(self.ours.gflops / 1000)} " \
            f"({'; '.join([self.ratio(), *(pair.ratio() for pair in more)])})"


def pairs_of(rows, ours, peers):
    """{SHAPE: Pair} of the rows of one regime and layout."""
    pairs = {key[:-1]: Pair(problem, ours, peers)
             for key, problem in rows.groupby([*SHAPE, "batch"])}
    return {key: pair for key, pair in pairs.items() if pair.runs}


def beside_peers(data, regime="cold", layout="bhld", tuned=True, ours=(LAST,)):
    """The last rung and the fastest of the libraries."""
    rows = data.beside_peers.query("regime == @regime and layout == @layout")
    return need(pairs_of(rows[is_tuned(rows) == tuned], ours, BEST_PEERS),
                f"no measurement of the last rung beside cuDNN, {regime}, {layout}")


def peers_text(pairs):
    """'cuDNN' or 'the better of cuDNN and FlashAttention-3', whatever was measured."""
    names = [text for name, text in BEST_PEERS.items()
             if any(peer.variant == name for pair in pairs for _, peer in pair.runs)]
    if len(names) == 1:
        return names[0]
    best = "better" if len(names) == 2 else "best"
    return f"the {best} of {', '.join(names[:-1])} and {names[-1]}"


def several(pairs):
    """What is said of several runs."""
    runs = max(len(pair.runs) for pair in pairs)
    return f"; the least and the largest ratio of {runs} runs" if runs > 1 else ""


def all_rows(pairs):
    return [row for pair in pairs for run in pair.runs for row in run]


def by_length(known, more=None):
    """The grid of pairs by length; more: (name, {key: text}) of a second line for each panel."""
    cells = {}
    for key, pair in sorted(known.items()):
        cells[panel_text(key[0], key[2]), si(key[3])] = pair.text()
        if more and key in more[1]:
            cells[f"{panel_text(key[0], key[2])}, {more[0]}", si(key[3])] = more[1][key]
    return grid("bf16", cells, columns=map(si, sorted({key[3] for key in known})))


@table("hopper(?:-(sustained))?")
def hopper(data, regime):
    """The last rung: TFLOP/s and the ratio to the best library by length, cold; hopper-sustained:
    calls back to back."""
    regime = regime or "cold"
    known = beside_peers(data, regime)
    return ([f"TFLOP/s (times as fast as {peers_text(known.values())}{several(known.values())}), "
             f"{regime}: {REGIMES[regime]}.", ""] + by_length(known)
            + provenance(all_rows(known.values())))


@table("backward-gpu(?:-(sustained))?")
def backward_gpu(data, regime):
    """The backward pass by length: the last rung beside the best library, and the price of a fixed
    order of additions; backward-gpu-sustained: calls back to back."""
    regime = regime or "cold"
    rows = number_runs(data.file("backward/h200.csv").query("regime == @regime"))
    known = need(pairs_of(rows, BACKWARD, BEST_PEERS), "no measurement of the backward pass")
    others = pairs_of(rows, IN_ORDER, ORDERED_PEERS)
    ordered = {key: pair.text(*(others[of] for of in [key] if of in others))
               for key, pair in pairs_of(rows, IN_ORDER, BACKWARD).items()}
    ours = "` and `".join(dict.fromkeys(pair.ours.variant for pair in known.values()))
    beside = "; as the best library in its deterministic mode" if others else ""
    return ([f"TFLOP/s (times as fast as {peers_text(known.values())}; in order: times as fast as "
             f"`{ours}`{beside}{several(known.values())}), {regime}: {REGIMES[regime]}.", ""]
            + by_length(known, ("in order", ordered)) + provenance(each(rows)))


@table("backward-ladder")
def backward_ladder(data):
    """Each rung of the backward ladder and each library at the longest length."""
    rows = data.file("backward/ladder.csv").sort_values(["head_dim", "causal"], kind="stable")
    cells = {(row.variant, panel_text(row.head_dim, row.causal)): tflops(row)
             for row in each(rows)}
    return ([f"TFLOP/s (percent of the ceiling, a matrix product), {si(rows.seqlen_k.max())} keys.",
             ""] + grid("variant", cells) + provenance(each(rows)))


def untuned_shape(key):
    dim, dim_v, causal, length, heads, heads_kv = key
    return (f"{length:.0f} keys, d = {dim:.0f}" + (f" and {dim_v:.0f}" if dim != dim_v else "")
            + f", {heads:.0f} heads" + (f" on {heads_kv:.0f}" if heads != heads_kv else "")
            + (", causal" if causal else ""))


@table("untuned")
def untuned(data):
    """The same, or `general` where it is faster, at lengths, groups and head dimensions that nothing
    was tuned on."""
    known = {regime: beside_peers(data, regime, tuned=False, ours=(LAST, "general"))
             for regime in REGIMES}
    cells = {(untuned_shape(key), regime): line[key].text() for regime, line in known.items()
             for key in sorted(line)}
    pairs = [pair for line in known.values() for pair in line.values()]
    return ([f"TFLOP/s (times as fast as {peers_text(pairs)}{several(pairs)}), bf16.", ""]
            + grid("shape", cells) + provenance(all_rows(pairs)))


@table("layouts")
def layouts(data):
    """The same with arrays stored as [batch, length, heads, head_dim], used as they lie."""
    known = beside_peers(data, "cold", "blhd")
    return (["TFLOP/s, bf16, cold.", ""] + listing(known.items(), {
        "arrays [batch, length, heads, head_dim]": lambda at:
        f"{panel_text(at[0][0], at[0][2])}, {si(at[0][3])} keys",
        "ours": lambda at: significant(at[1].ours.gflops / 1000),
        peers_text(known.values()): lambda at: significant(at[1].peer.gflops / 1000),
        "ratio": lambda at: at[1].ratio()}) + provenance(all_rows(known.values())))


@table("headline")
def headline(data):
    """One sentence: head_dim 128 without mask, of the lengths from 4k on the one at which
    the medians are nearest to their minima."""
    known = {key: pair for key, pair in beside_peers(data).items()
             if key[:3] == (128, 128, 0) and key[3] >= 4096}
    need(known, "no measurement of the last rung beside cuDNN at d = 128")
    key = min(known, key=lambda key: max(row.median_s / (row.min_s or row.median_s)
                                         for row in all_rows([known[key]])))
    pair = known[key]
    runs = f"; {len(pair.runs)} runs" if len(pair.runs) > 1 else ""
    try:
        before = beside_peers(data, ours=[SAFE]).get(key)
    except NoData:
        before = None
    rests = [f"`{SAFE}`, the same kernel before its last idea, is {before.ratio(' to ')} times as fast "
             f"as {BEST_PEERS[before.peer.variant]}: [what the lead rests on, and on which data it "
             "shrinks](notes/hopper.md#5-a-reference-that-need-not-be-the-maximum)."] if before else []
    return [f"On one {pair.ours.machine} the last kernel reaches "
            f"**{significant(pair.ours.gflops / 1000)} TFLOP/s, "
            f"{pair.ratio(' to ')} times as fast as {BEST_PEERS[pair.peer.variant]}** "
            f"(bf16, head_dim 128, {si(key[3])} keys, no mask; {REGIMES['cold']}{runs}).", *rests]


@table("adversarial")
def adversarial(data):
    """Rows that need the repair: TFLOP/s and error of the last rung and of its peers, no mask."""
    rows = each(data.file("hopper/hard.csv").query("causal == 0"))
    names = [name for name in (SAFE, LAST, *BEST_PEERS) if name in {row.variant for row in rows}]
    cells = {(f"{row.flags.split('; ')[3]}, d = {row.head_dim:.0f}", row.variant):
             f"{row.gflops / 1000:.0f} ({row.max_err:.4f})" for row in rows}
    return (["TFLOP/s (largest error), 4k keys, no mask.", ""]
            + grid("data", cells, columns=names) + provenance(rows))


# --- Softmax ---

def gpu_softmax(data):
    """One line per variant, type and shape."""
    rows = data.rows.query("op == 'softmax' and device == 'gpu' and rows > 1 and median_s > 0 "
                           "and stage in ('1', '2', '3', 'peer')")
    need(rows, "no measurement of softmax on a GPU")
    return rows.drop_duplicates(["variant", "dtype", "cols"], keep="last")


def ours_of(rows):
    """Our softmax that was measured at most row lengths and types, of equals the fastest."""
    done = need(rows[rows.stage.isin([*"123"])],
                "no softmax of ours on a GPU at several row lengths")
    known = done.groupby("variant", sort=False).median_s.agg(["count", "sum"])
    return known.sort_values(["count", "sum"], ascending=[False, True]).index[0]


@table("gpu-rows")
def gpu_rows(data):
    """GPU softmax by row length and type: percent of a copy of the same shape in the same round,
    ours and PyTorch."""
    rows = gpu_softmax(data)
    names = {ours_of(rows): "ours", "pytorch-softmax": "PyTorch"}
    times = rows.pivot(index="cols", columns=["dtype", "variant"], values="median_s")
    dtypes = [dtype for dtype in ("f32", "f16", "bf16") if (dtype, "copy") in times]
    shares = {(si(cols), f"{dtype} {text}"): 100 * times[dtype, "copy"][cols] / took
              for dtype in dtypes for name, text in names.items()
              for cols, took in times[dtype, name].items()}
    ours = rows[rows.variant == [*names][0]]
    return (grid("row length", {at: f"{x:.0f} %" for at, x in shares.items() if x == x},
                 map(si, sorted({*ours.cols}))) + provenance(each(ours)))


# --- Stage 1's two kernels ---

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "01_naive/gpu/rows.cu"


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
    return listing(sorted(lines, key=lambda line: (line.dtype != "f32", line.variant,
                                                   -int(line.rows))), {
        "kernel": lambda line: line.variant, "type": lambda line: line.dtype,
        "shape": lambda line: f"[{si(line.rows)}, {si(line.cols)}]",
        "blocks": lambda line: str(-(-int(line.rows) // threads))
        if line.variant == "gpu_thread_per_row" else line.rows,
        "time": lambda line: seconds(float(line.median_s)),
        "counted": lambda line: f"{float(line.bytes_measured) / bytes_of_a_pass(line):.2f} G",
        "sectors per load": lambda line: line.sectors_per_load,
        "of these from L1": lambda line: f"{line.l1_hit_pct} %",
        "L1 busy": lambda line: f"{line.l1_pct} %",
        "multiprocessors with work": lambda line: f"{line.active_pct} %"}) + provenance(lines)
