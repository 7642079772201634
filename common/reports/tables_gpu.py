"""tables_gpu.py: softmax on a GPU, and the last rung beside the libraries."""
import math
import pathlib
import re

from ladder import LAST, RUNGS
from registry import table
from results import NoData, each, is_square, need, number_runs, read_lines
from words import (grid, in_brackets, markdown, panel_text, provenance, seconds,
                   share_of, si, significant)

BEST_PEERS = {"pytorch-cudnn": "cuDNN", "flash-attention-3": "FlashAttention-3",
              "flash-attention-4": "FlashAttention-4"}
SAFE = "heavy_first"  # the last rung whose reference is the maximum of every block
REGIMES = {"cold": "one call at a time, the L2 cache flushed before it",
           "sustained": "calls back to back"}


def is_tuned(rows):
    """Lengths, heads and head_dim are those that the ladder was measured at."""
    return rows.head_dim.isin((64, 128, 256)) & (rows.heads_q == rows.heads_kv) \
        & rows.length.map(lambda n: n > 0 and math.log2(n) % 1 == 0)


def rungs_first(rows):
    """The rows in the order of the ladder, then our other kernels, then the libraries."""
    place = {name: n for n, name in enumerate(RUNGS)}
    return sorted(each(rows), key=lambda row: (row.stage == "peer",
                                               place.get(row.variant, len(place))))


@table("ladder(?:-(f32))?")
def ladder(data, f32):
    """Stage 5 and its peers in 16 bits, TFLOP/s by head_dim and causal, at the longest length;
    ladder-f32: in float32."""
    rows = data.rows.query("op == 'attention' and device == 'gpu' and stage in ('5', 'peer') "
                           "and gflops > 0")
    rows = rows[is_square(rows) & ((rows.dtype == "f32") == bool(f32))]
    need(rows, "no measurement of stage 5 on a GPU")
    rows = rows[is_tuned(rows)] if is_tuned(rows).any() else rows
    # the largest work of a type, head_dim and mask stands for the others, at its longest
    size = rows.batch * rows.heads_q * rows.seqlen_q
    rows = rows[size == size.groupby([rows.dtype, rows.head_dim, rows.causal]).transform("max")]
    rows = rows[rows.length == rows.length.groupby(rows.work.map(str)).transform("max")]
    works = sorted({(*row.work, row.length) for row in each(rows)},
                   key=lambda work: (work[5], str(work)))
    cells, names = {}, {}
    for row in rungs_first(rows):
        names[row.variant] = True
        cells[row.variant, (*row.work, row.length)] = \
            significant(row.gflops / 1000) + in_brackets(share_of(row))
    header = [f"{panel_text(work[5], work[7])}, {si(work[9])} keys" for work in works]
    return ([f"TFLOP/s (percent of the ceiling), {', '.join(sorted({*rows.dtype}))}, cold.", ""]
            + grid(["variant", *header], cells, names, works) + provenance(each(rows)))


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

    def text(self):
        """'812 (1.13)'."""
        return f"{significant(self.ours.gflops / 1000)} ({self.ratio()})"


def pairs_of(rows, ours, peers):
    """{SHAPE: Pair} of the rows of one regime and layout."""
    pairs = {key[:-1]: Pair(problem, ours, peers)
             for key, problem in rows.groupby([*SHAPE, "batch"])}
    return {key: pair for key, pair in pairs.items() if pair.runs}


def beside_peers(data, regime="cold", layout="bhld", tuned=None, ours=(LAST,)):
    """The last rung and the fastest of the libraries on 16-bit problems of many queries."""
    rows = data.beside_peers.query(
        "op == 'attention' and dtype == 'bf16' and gflops > 0 and regime == @regime "
        "and layout == @layout and seqlen_q == seqlen_k")
    if tuned is not None:
        rows = rows[is_tuned(rows) == tuned]
    return need(pairs_of(rows, ours, BEST_PEERS),
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


def by_length(known, more=()):
    """The grid of pairs by length, and the lines `more`, (name, {(panel, length): text})."""
    cells = {(panel_text(key[0], key[2]), key[3]): pair.text() for key, pair in known.items()}
    names = dict.fromkeys(panel_text(key[0], key[2]) for key in sorted(known))
    lengths = sorted({key[3] for key in known})
    for text, others in more:
        cells |= {(f"{name}, {text}", length): cell for (name, length), cell in others.items()}
        names = {line: True for name in names for line in (name, f"{name}, {text}")}
    return grid(["bf16", *map(si, lengths)], cells, names, lengths)


@table("hopper(?:-(sustained))?")
def hopper(data, regime):
    """The last rung: TFLOP/s and the ratio to the best library by length, cold; hopper-sustained:
    calls back to back."""
    regime = regime or "cold"
    known = beside_peers(data, regime, tuned=True)
    return ([f"TFLOP/s (times as fast as {peers_text(known.values())}{several(known.values())}), "
             f"{regime}: {REGIMES[regime]}.", ""] + by_length(known)
            + provenance(all_rows(known.values())))


@table("untuned")
def untuned(data):
    """The same, or `general` where it is faster, at lengths, groups and head dimensions that nothing
    was tuned on."""
    known = {}
    for regime in REGIMES:
        try:
            known[regime] = beside_peers(data, regime, tuned=False, ours=(LAST, "general"))
        except NoData:
            pass
    need(known, "no measurement of the untuned shapes; peers_gpu.py --parts untuned")
    names, cells = {}, {}
    for key in sorted({key for line in known.values() for key in line}):
        for regime, line in known.items():
            if key in line:
                dim, dim_v, causal, length, heads, heads_kv = key
                names[key] = (f"{length:.0f} keys, d = {dim:.0f}"
                              + (f" and {dim_v:.0f}" if dim != dim_v else "")
                              + f", {heads:.0f} heads"
                              + (f" on {heads_kv:.0f}" if heads != heads_kv else "")
                              + (", causal" if causal else ""))
                cells[names[key], regime] = line[key].text()
    pairs = [pair for line in known.values() for pair in line.values()]
    return ([f"TFLOP/s (times as fast as {peers_text(pairs)}{several(pairs)}), bf16.", ""]
            + grid(["shape", *REGIMES], cells, names.values(), REGIMES)
            + provenance(all_rows(pairs)))


@table("layouts")
def layouts(data):
    """The same with arrays stored as [batch, length, heads, head_dim], used as they lie."""
    known = beside_peers(data, "cold", "blhd")
    cells = [[f"{panel_text(key[0], key[2])}, {si(key[3])} keys",
              significant(pair.ours.gflops / 1000), significant(pair.peer.gflops / 1000),
              pair.ratio()] for key, pair in known.items()]
    return (["TFLOP/s, bf16, cold.", ""]
            + markdown(["arrays [batch, length, heads, head_dim]", "ours",
                        peers_text(known.values()), "ratio"], cells)
            + provenance(all_rows(known.values())))


@table("headline")
def headline(data):
    """One sentence: head_dim 128 without mask, of the lengths from 4k on the one at which
    the medians are nearest to their minima."""
    known = {key: pair for key, pair in beside_peers(data, tuned=True).items()
             if key[:3] == (128, 128, 0) and key[3] >= 4096}
    need(known, "no measurement of the last rung beside cuDNN at d = 128")
    key = min(known, key=lambda key: max(row.median_s / (row.min_s or row.median_s)
                                         for row in all_rows([known[key]])))
    pair = known[key]
    runs = f"; {len(pair.runs)} runs" if len(pair.runs) > 1 else ""
    before = next((found[key] for found in (
        pairs_of(rows.query("op == 'attention' and dtype == 'bf16' and regime == 'cold' and "
                            "layout == 'bhld' and seqlen_q == seqlen_k"), [SAFE], BEST_PEERS)
        for rows in (data.beside_peers, number_runs(data.rows))) if key in found), None)
    rests = [f"`{SAFE}`, the same kernel before its last idea, is {before.ratio(' to ')} times as fast "
             f"as {BEST_PEERS[before.peer.variant]}: [what the lead rests on, and on which data it "
             "shrinks](notes/hopper.md#5-a-reference-that-need-not-be-the-maximum)."] if before else []
    return [f"On one {pair.ours.machine} the last kernel reaches "
            f"**{significant(pair.ours.gflops / 1000)} TFLOP/s, "
            f"{pair.ratio(' to ')} times as fast as {BEST_PEERS[pair.peer.variant]}** "
            f"(bf16, head_dim 128, {si(key[3])} keys, no mask; {REGIMES['cold']}{runs}).", *rests]


@table("adversarial")
def adversarial(data):
    """Rows that need the repair: TFLOP/s and error of the last rung and of its peers, no mask; from
    hopper/hard.csv, where that is not there from an earlier run."""
    try:
        rows = each(data.file("hopper/hard.csv").query("causal == 0"))
        lines = [(row.flags.split("; ")[3], f"{row.head_dim:.0f}", row.variant,
                  f"{row.gflops / 1000:.0f}", row.max_err) for row in rows]
    except NoData:
        rows = []
        lines = [(line.data, line.head_dim, line.variant, line.tflops, float(line.error)) for line in
                 each(data.file("hopper/adversarial.csv", read_lines).query("causal == '0'"))]
    names = [name for name in (SAFE, LAST, *BEST_PEERS) if name in {line[2] for line in lines}]
    columns = [(dim, name) for dim in dict.fromkeys(line[1] for line in lines) for name in names]
    cells = {(what, (dim, name)): f"{speed} ({error:.4f})" for what, dim, name, speed, error in lines}
    return (["TFLOP/s (largest error), 4k keys, no mask.", ""]
            + grid(["data", *(f"{name}, d = {dim}" for dim, name in columns)], cells,
                   dict.fromkeys(line[0] for line in lines), columns)
            + (provenance(rows) if rows else []))


# --- Softmax ---

def gpu_softmax(data):
    rows = data.rows.query("op == 'softmax' and device == 'gpu' and cols > 0 and median_s > 0 "
                           "and stage in ('1', '2', '3', 'peer')")
    return need(rows, "no measurement of softmax on a GPU")


def ours_of(rows):
    """Our softmax that was measured at most row lengths and types, of equals the fastest."""
    done = need(rows[rows.stage.isin([*"123"])],
                "no softmax of ours on a GPU at several row lengths")
    done = done.drop_duplicates(["variant", "dtype", "cols"], keep="last")
    known = done.groupby("variant", sort=False).median_s.agg(["count", "sum"])
    return known.sort_values(["count", "sum"], ascending=[False, True]).index[0]


@table("gpu-rows")
def gpu_rows(data):
    """GPU softmax by row length and type: percent of a copy of the same shape in the same round,
    ours and PyTorch."""
    rows = gpu_softmax(data).query("rows > 1")
    ours = ours_of(rows)
    times = rows.drop_duplicates(["variant", "dtype", "cols"], keep="last").set_index(
        ["variant", "dtype", "cols"]).median_s
    names = {ours: "ours", "pytorch-softmax": "PyTorch"}
    dtypes = [t for t in ("f32", "f16", "bf16") if ((rows.variant == "copy")
                                                    & (rows.dtype == t)).any()]
    cells = {}
    for name in names:
        for dtype, cols in times[name].index if name in times else ():
            copy = times.get(("copy", dtype, cols))
            if copy:
                cells[si(cols), (dtype, name)] = f"{100 * copy / times[name, dtype, cols]:.0f} %"
    lengths = sorted({*rows.cols[rows.variant == ours]})
    columns = [(dtype, name) for dtype in dtypes for name in names]
    return (grid(["row length", *(f"{dtype} {names[name]}" for dtype, name in columns)], cells,
                 map(si, lengths), columns)
            + provenance(each(rows[rows.variant == ours])))


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
    cells = []
    for line in sorted(lines, key=lambda line: (line.dtype != "f32", line.variant, -int(line.rows))):
        rows, cols = int(line.rows), int(line.cols)
        blocks = -(-rows // threads) if line.variant == "gpu_thread_per_row" else rows
        one = rows * cols * (4 if line.dtype == "f32" else 2)  # bytes of one pass
        cells.append([line.variant, line.dtype, f"[{si(rows)}, {si(cols)}]", f"{blocks}",
                      seconds(float(line.median_s)), f"{float(line.bytes_measured) / one:.2f} G",
                      line.sectors_per_load, f"{line.l1_hit_pct} %", f"{line.l1_pct} %",
                      f"{line.active_pct} %"])
    return markdown(["kernel", "type", "shape", "blocks", "time", "counted", "sectors per load",
                     "of these from L1", "L1 busy", "multiprocessors with work"], cells) \
        + provenance(lines)
