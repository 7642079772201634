"""figures_machines.py: several GPUs and several processes, from notes/results/multi_gpu, and a
model of time over ranks, fitted on what was measured with one and two GPUs.

    one GPU       T(1)  = t0 + flops / f                 f, t0: a line through the lengths
    ring          T(R)  = t0 + sum over R steps of max(compute, copy)
                  compute = t1 + t2 n / R + flops / (R R f)
                  t1, t2: what a step of two GPUs took more, a line through the lengths n
                  copy    = a + bytes of a rank / b      b: the copy of the 64k ring, a: below
    tree          T(R)  = keys / (R m) + a log2 R        m, a: one and two GPUs, one query

Between any two ranks the link is assumed to be as fast as the one that was measured, for a
ring of neighbours; the latency of a gather to grow with log2 of the ranks.
"""
import math

import numpy as np

from registry import figure
from results import NoData, each, is_square, need, read_lines
from style import (COLOURS, GREY, caption, label_ends, log2_axis, new_figure, plain, stacked)
from words import si

HEADS, DIM = 16, 128
KEY_BYTES = 2 * 2 * HEADS * DIM  # of k and v, bf16
COMPUTE, COPY = COLOURS["4"], COLOURS["2"]
RANKS = [2**i for i in range(11)]


def read_timeline(data):
    """Spans of one call, with `long` in milliseconds."""
    lines = data.file("multi_gpu/timeline.csv", read_lines)
    for column in ("causal", "gpus", "rank", "step", "begin_ms", "end_ms"):
        lines[column] = lines[column].astype(float)
    return lines.assign(long=lines.end_ms - lines.begin_ms)


@figure("ring_in_time.png", "machines")
def ring_in_time(data):
    """What each GPU computes and copies in each step of a real run, a panel for each way to cut a
    causal problem."""
    lines = read_timeline(data).query("causal == 1")
    titles = {"ring": "zigzag chunks", "ring-unbalanced": "contiguous chunks"}
    kinds = need([name for name in titles if (lines.strategy == name).any()],
                 "timeline.csv has no causal ring")
    drawn, axes = stacked(len(kinds), 1.5, right=0.97, left=0.13, gap=0.55)
    end = lines.end_ms.max()
    for axis, kind in zip(axes, kinds):
        here = lines[lines.strategy == kind].drop_duplicates(["rank", "step", "what"], keep="last")
        ranks = 1 + int(here["rank"].max())
        for x in each(here):
            copies = x.what == "copy"
            y = 2.4 * (ranks - 1 - x.rank) + (0 if copies else 1)
            axis.barh(y, x.long, left=x.begin_ms, height=0.8,
                      color=COPY if copies else COMPUTE, edgecolor="white")
            if not copies and x.long > end / 20:
                axis.text(x.begin_ms + x.long / 2, y, f"step {x.step + 1:.0f}: {x.long:.1f} ms",
                          color="white", fontsize=8, ha="center", va="center")
            elif copies:
                axis.text(x.end_ms + end / 100, y, f"keys and values travel: {x.long:.1f} ms",
                          fontsize=8, color=COPY, va="center")
        axis.set_yticks([2.4 * (ranks - 1 - r) + 0.5 for r in range(ranks)])
        axis.set_yticklabels([f"GPU {r}" for r in range(ranks)])
        axis.set_xlim(0, 1.02 * end)
        axis.set_title(titles[kind], fontsize=9, loc="left")
        plain(axis, "x")
    axes[-1].set_xlabel("milliseconds from the begin of the call")
    caption(drawn, each(data.file("multi_gpu/times.csv")),
            "The ring in time: causal, 64k x 64k, 16 heads, d = 128, bf16",
            "One call, by the events of the GPUs. Copies run under the kernels.")
    return drawn


def flops_of(queries, keys, causal):
    """As the tables count them: half of a square when causal."""
    return 4.0 * HEADS * DIM * queries * keys * (0.5 if causal else 1.0)


def line_through(x, y):
    """Least squares y = a + b x with relative weights: (a, b)."""
    slope, start = np.polyfit(x, y, 1, w=1 / np.abs(np.asarray(y)))
    return start, slope


class Model:
    """The parameters, and times in seconds."""

    def __init__(self, rows, timeline):
        self.rows = rows.assign(work=[flops_of(*of) for of in
                                      zip(rows.seqlen_q, rows.seqlen_k, rows.causal)])
        squares = self.rows[is_square(rows)]
        single, ring = (squares[squares.variant == name] for name in ("tuned", "ring-2"))
        decode = rows.query("seqlen_q == 1 and seqlen_k == 2**20").groupby("variant").median_s
        decode, copies = decode.median(), timeline.long[timeline.what == "copy"]
        if len(single) < 2 or copies.empty or not {"split_kv", "tree-2"} <= {*decode.index}:
            raise NoData("times.csv lacks the lengths, the copies or decoding")
        self.t0, slope = line_through(single.work, single.median_s)
        self.t0, self.rate = max(self.t0, 0.0), 1 / slope
        self.memory = KEY_BYTES * (1 << 20) / decode["split_kv"]
        self.latency = max(decode["tree-2"] - decode["split_kv"] / 2, 1e-6)
        self.link = KEY_BYTES * 32768 / (1e-3 * copies.median() - self.latency)
        each_ring, self.row = line_through(
            ring.seqlen_q, ring.median_s - self.t0 - ring.work / (2 * self.rate))
        self.step = max(each_ring / 2, 0.0)

    def ring(self, length, ranks, causal):
        """Queries and keys of one length, cut between the ranks."""
        work = flops_of(length, length, causal) / self.rate
        compute = self.step + self.row * length / ranks + work / ranks**2
        copy = self.latency + KEY_BYTES * length / (ranks * self.link)
        return self.t0 + (work if ranks == 1 else compute + (ranks - 1) * max(compute, copy))

    def ring_decode(self, keys, ranks):
        """One query whose keys travel: every rank's keys pass through the link."""
        read = KEY_BYTES * keys / (ranks * self.memory)
        copy = self.latency + KEY_BYTES * keys / (ranks * self.link)
        return read + (ranks - 1) * max(read, copy)

    def tree(self, queries, keys, ranks):
        """Few queries: each rank reads its keys, then a gather."""
        return queries * KEY_BYTES * keys / (ranks * self.memory) + \
            self.latency * math.log2(ranks)

    def measured(self, causal, queries, keys):
        """(ranks, seconds) of the measurements of this shape."""
        names = {"tuned": 1, "split_kv": 1, "ring-2": 2, "tree-2": 2}
        return [(names[row.variant], row.median_s) for row in each(self.rows)
                if row.variant in names
                and (row.causal, row.seqlen_q, row.seqlen_k) == (causal, queries, keys)]

    def assumptions(self):
        """What a reader must know of the lines."""
        return (f"Fitted: {1e-12 * self.rate:.0f} TFLOP/s a GPU, {1e-9 * self.link:.0f} GB/s a "
                f"link, {1e-12 * self.memory:.2f} TB/s of memory, {1e6 * self.latency:.0f} us a "
                f"gather, {1e6 * self.step:.0f} us and {1e9 * self.row:.0f} ns a row more a step."
                "\nAssumed, not measured: every neighbour is linked as these two GPUs are, "
                "nobody shares a link, and a gather takes log2(ranks) times\nas long as between "
                "two. Between hosts links are slower: the ring then stops scaling sooner. 16 "
                "heads, d = 128, bf16.")


@figure("ranks_model.png", "machines")
def ranks_model(data):
    """Time over ranks: measured points, and the model as lines, to 1024 ranks."""
    rows = data.file("multi_gpu/times.csv")
    model = Model(rows, read_timeline(data))
    drawn, axis = new_figure(4.6, right=0.72, bottom=0.27)
    ends = []
    for name, colour, seconds, shape in (
            ("ring, causal 64k", "4", lambda r: model.ring(65536, r, True), (1, 65536, 65536)),
            ("ring, causal 1M", "5", lambda r: model.ring(1 << 20, r, True), None),
            ("tree, 1 query, 1M keys", "3", lambda r: model.tree(1, 1 << 20, r), (0, 1, 1 << 20)),
            ("ring, 1 query, 1M keys", "2", lambda r: model.ring_decode(1 << 20, r), None)):
        times = [1e3 * seconds(r) for r in RANKS]
        axis.plot(RANKS, times, color=COLOURS[colour], linewidth=1.4)
        ends.append((RANKS[-1], times[-1], name, COLOURS[colour]))
        for r, measured in model.measured(*shape) if shape else ():
            axis.plot([r], [1e3 * measured], "o", color=COLOURS[colour], markersize=5)
    axis.set_yscale("log")
    log2_axis(axis, RANKS, RANKS, "GPUs")
    axis.set_ylabel("milliseconds")
    plain(axis)
    label_ends(axis, ends)
    caption(drawn, each(rows), "How far does it scale? Points: measured. Lines: the model.",
            model.assumptions())
    return drawn


@figure("ranks_memory.png", "machines")
def ranks_memory(data):
    """Memory of a rank over ranks, on the CPU."""
    lines = data.file("multi_gpu/memory.csv", read_lines)
    lines = lines.assign(ranks=lines.ranks.astype(int), mib=lines.peak_bytes.astype(float) / 2**20)
    drawn, axis = new_figure(3.6, right=0.74, top=0.88, bottom=0.25)
    ends, ticks = [], sorted({*lines.ranks})
    for name, colour in (("ring", COLOURS["4"]), ("tree", COLOURS["3"])):
        line = lines[lines.strategy == name].sort_values("ranks")
        axis.plot(line.ranks, line.mib, "o" if name == "ring" else "o-", color=colour)
        ends.append((line.ranks.iloc[-1], line.mib.iloc[-1],
                     f"{name}: {line.mib.iloc[-1]:.0f} MiB", colour))
        if name == "ring":
            ideal = [line.mib.iloc[0] / r for r in ticks]
            axis.plot(ticks, ideal, "--", color=GREY, linewidth=1)
            axis.text(ticks[1] * 1.06, ideal[1] * 1.12, "dashed: 1 / ranks", fontsize=8,
                      color=GREY)
    log2_axis(axis, ticks, ticks, "ranks")
    axis.set_ylim(0)
    axis.set_ylabel("MiB in each rank, at the most")
    plain(axis)
    label_ends(axis, ends)
    first = each(lines)[0]
    caption(drawn, [first], "What does a rank hold? Memory of the ring falls as 1 / ranks",
            f"{si(int(first.seqlen))} x {si(int(first.seqlen))}, {first.heads} heads, "
            f"d = {first.head_dim}, float32, on the CPU.")
    return drawn
