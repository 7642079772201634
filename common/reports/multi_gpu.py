#!/usr/bin/env python3
"""multi_gpu.py: the figures of notes/many_machines.md, from notes/results/multi_gpu.

    python3 common/reports/multi_gpu.py --results notes/results/multi_gpu --out notes/results

ring_in_time.png    what each GPU computes and copies in each step of a real run (timeline.csv)
ranks_model.png     a model of time over ranks, fitted on times.csv, drawn to 1024 ranks
ranks_memory.png    memory of a rank over ranks, on the CPU (memory.csv)

Exit status: 0 drawn; 1 nothing drawn; 77 no matplotlib.
"""
import argparse
import csv
import pathlib
import sys

from multi_gpu_model import Model, read_times
from results import NoData, si
from style import COLOURS, GREY, caption, draw_all, label_ends, plain, plt, stacked

COMPUTE, COPY = COLOURS["4"], COLOURS["2"]
RANKS = [2**i for i in range(11)]


def read_lines(path):
    """The lines of a CSV file as dictionaries."""
    if not path.exists():
        raise NoData(f"no file {path}")
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def draw_time(folder):
    """Bars of compute and of copies, a panel for each way to cut a causal problem."""
    lines = [x for x in read_lines(folder / "timeline.csv") if x["causal"] == "1"]
    titles = {"ring": "zigzag chunks", "ring-unbalanced": "contiguous chunks"}
    kinds = [name for name in titles if any(x["strategy"] == name for x in lines)]
    if not kinds:
        raise NoData("timeline.csv has no causal ring")
    figure, axes = stacked(len(kinds), 1.5, right=0.97, left=0.13, gap=0.55)
    end = max(float(x["end_ms"]) for x in lines)
    for axis, kind in zip(axes, kinds):
        here = [x for x in lines if x["strategy"] == kind]
        ranks = 1 + max(int(x["rank"]) for x in here)
        last = {(x["rank"], x["step"], x["what"]): x for x in here}.values()
        for x in last:
            begin, long = float(x["begin_ms"]), float(x["end_ms"]) - float(x["begin_ms"])
            copies = x["what"] == "copy"
            y = 2.4 * (ranks - 1 - int(x["rank"])) + (0 if copies else 1)
            axis.barh(y, long, left=begin, height=0.8, color=COPY if copies else COMPUTE,
                      edgecolor="white")
            if not copies and long > end / 20:
                axis.text(begin + long / 2, y, f"step {int(x['step']) + 1}: {long:.1f} ms",
                          color="white", fontsize=8, ha="center", va="center")
            elif copies:
                axis.text(begin + long + end / 100, y, f"keys and values travel: {long:.1f} ms",
                          fontsize=8, color=COPY, va="center")
        axis.set_yticks([2.4 * (ranks - 1 - r) + 0.5 for r in range(ranks)])
        axis.set_yticklabels([f"GPU {r}" for r in range(ranks)])
        axis.set_xlim(0, 1.02 * end)
        axis.set_title(titles[kind], fontsize=9, loc="left")
        plain(axis)
        axis.grid(False, axis="y")
    axes[-1].set_xlabel("milliseconds from the begin of the call")
    rows = read_times(folder / "times.csv")
    caption(figure, rows, "The ring in time: causal, 64k x 64k, 16 heads, d = 128, bf16",
            "One call, by the events of the GPUs. Copies run under the kernels.")
    return figure


def draw_model(folder):
    """Time over ranks: measured points, and the model as lines."""
    rows = read_times(folder / "times.csv")
    model = Model(rows, read_lines(folder / "timeline.csv"))
    figure, axis = plt.subplots(figsize=(8, 4.6))
    figure.subplots_adjust(left=0.085, right=0.72, top=0.9, bottom=0.27)
    ends = []
    curves = [("ring, causal 64k", COLOURS["4"], lambda r: model.ring(65536, r, causal=True)),
              ("ring, causal 1M", COLOURS["5"], lambda r: model.ring(1 << 20, r, causal=True)),
              ("tree, 1 query, 1M keys", COLOURS["3"], lambda r: model.tree(1, 1 << 20, r)),
              ("ring, 1 query, 1M keys", COLOURS["2"], lambda r: model.ring_decode(1 << 20, r))]
    for name, colour, seconds in curves:
        times = [1e3 * seconds(r) for r in RANKS]
        axis.plot(RANKS, times, color=colour, linewidth=1.4)
        ends.append((RANKS[-1], times[-1], name, colour))
    for causal, queries, keys, colour in ((1, 65536, 65536, COLOURS["4"]),
                                          (0, 1, 1 << 20, COLOURS["3"])):
        for r, seconds in model.measured(causal, queries, keys):
            axis.plot([r], [1e3 * seconds], "o", color=colour, markersize=5)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(RANKS)
    axis.set_xticklabels([str(r) for r in RANKS])
    axis.minorticks_off()
    axis.set_xlabel("GPUs")
    axis.set_ylabel("milliseconds")
    plain(axis)
    label_ends(axis, ends)
    caption(figure, rows, "How far does it scale? Points: measured. Lines: the model.",
            model.assumptions())
    return figure


def draw_memory(folder):
    """Peak memory of a rank over ranks."""
    lines = read_lines(folder / "memory.csv")
    figure, axis = plt.subplots(figsize=(8, 3.6))
    figure.subplots_adjust(left=0.085, right=0.74, top=0.88, bottom=0.25)
    ends, ticks = [], sorted({int(x["ranks"]) for x in lines})
    for name, colour in (("ring", COLOURS["4"]), ("tree", COLOURS["3"])):
        points = sorted((int(x["ranks"]), float(x["peak_bytes"]) / 2**20)
                        for x in lines if x["strategy"] == name)
        axis.plot(*zip(*points), "o" if name == "ring" else "o-", color=colour)
        ends.append((*points[-1], f"{name}: {points[-1][1]:.0f} MiB", colour))
        if name == "ring":
            ideal = [points[0][1] / r for r in ticks]
            axis.plot(ticks, ideal, "--", color=GREY, linewidth=1)
            axis.text(ticks[1] * 1.06, ideal[1] * 1.12, "dashed: 1 / ranks", fontsize=8,
                      color=GREY)
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks)
    axis.set_xticklabels([str(r) for r in ticks])
    axis.minorticks_off()
    axis.set_ylim(0)
    axis.set_xlabel("ranks")
    axis.set_ylabel("MiB in each rank, at the most")
    plain(axis)
    label_ends(axis, ends)
    first = lines[0]
    row = argparse.Namespace(**first)
    caption(figure, [row], "What does a rank hold? Memory of the ring falls as 1 / ranks",
            f"{si(int(first['seqlen']))} x {si(int(first['seqlen']))}, {first['heads']} heads, "
            f"d = {first['head_dim']}, float32, on the CPU.")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    jobs = {"ring_in_time.png": lambda: draw_time(options.results),
            "ranks_model.png": lambda: draw_model(options.results),
            "ranks_memory.png": lambda: draw_memory(options.results)}
    return 0 if draw_all(jobs, options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
