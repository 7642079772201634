"""ladder_figures.py: draws stage 5's ladder from CSV files.

    python3 common/reports/ladder_figures.py --results DIR --out DIR [--machine TEXT]

staircase.png    what each rung reaches under its roofs, and how busy the units were: one
                 launch of each rung, roof and GEMM in the same `make profile 5`
crossover.png    every rung against the length: TFLOP/s
decode.png       one query: time against the number of keys
gpu_memory.png   peak memory of every rung and of PyTorch's attentions against the length

Roofs: the last rung without its softmax; the vendor's matrix product (GEMM).
A figure without data is skipped with one line.  Exit status: 0 drawn; 1 nothing drawn; 2
bad usage or a malformed file; 77 no matplotlib.
"""
import argparse
import os
import pathlib
import sys

from style import NAMES, caption, draw_all, label_ends, length_axis, plt, value_axis
from ladder import (IN_FLOAT, LAST, ROOF, RUNGS, SPLIT, by_length, number_of, one_query,
                    read_profile, work_text)
from results import Malformed, NoData, read_results

# float32, tensor cores of any GPU, Hopper: from light to dark within each
FIRST_HOPPER = RUNGS.index("wgmma")


def between(first, last, steps):
    """`steps` colours from one to the other, both as six hexadecimal digits."""
    ends = [[int(text[n:n + 2], 16) for n in (0, 2, 4)] for text in (first, last)]
    parts = [step / max(steps - 1, 1) for step in range(steps)]
    return ["#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(*ends))
            for part in parts]


COLOURS = dict(zip(RUNGS, between("c9a227", "8a6d00", len(IN_FLOAT))
                   + between("f6b26b", "c2293f", FIRST_HOPPER - len(IN_FLOAT))
                   + between("9ecae1", "3b0f70", len(RUNGS) - FIRST_HOPPER)))
COLOURS[SPLIT] = "#2a9d3a"
PEERS = {"pytorch-cudnn": "#333333", "pytorch-flash": "#666666",
         "flash-attention-3": "#444444", "pytorch-efficient": "#888888",
         "pytorch-math": "#888888"}
UNITS = (("tensor_pct", "tensor cores", "#1f63a5"), ("exp_pct", "exponentials", "#d1495b"),
         ("issue_pct", "issue slots", "#7f7f7f"),
         ("fma_pct", "multiply-adds", "#c9a227"), ("shared_pct", "shared memory", "#2a9d3a"))


def number(text):
    return float(text) if text else None


def draw_staircase(directory):
    """Above: TFLOP/s of each rung and the roofs.  Below: percent of cycles."""
    counted = read_profile(directory)
    sizes = sorted({d for name, d in counted if name in RUNGS and name not in IN_FLOAT})
    figure, axes = plt.subplots(2, len(sizes), figsize=(8, 6.6), squeeze=False, sharex=True)
    figure.subplots_adjust(left=0.075, right=0.86, top=0.9, bottom=0.335, wspace=0.14,
                           hspace=0.1)
    for (above, below), size in zip(axes.T, sizes):
        names = [name for name in RUNGS if (name, size) in counted]
        lines = [counted[name, size] for name in names]
        draw_steps(above, lines, counted.get((ROOF, size)), size == sizes[-1])
        above.set_title(f"head_dim {size:.0f}", fontsize=9, loc="left")
        ends = []
        for column, text, colour in UNITS:
            points = [(x, number(line[column])) for x, line in enumerate(lines)
                      if line.get(column)]
            if points:
                below.plot(*zip(*points), "o-", color=colour, markersize=3, linewidth=1)
                ends.append((*points[-1], text, colour))
        below.set_ylim(0, 100)
        value_axis(below, [92], "percent of cycles" if size == sizes[0] else "")
        above.set_ylabel("TFLOP/s" if size == sizes[0] else "")
        below.set_xticks(range(len(names)))
        below.set_xticklabels([f"{number_of(name)} {name}" for name in names], rotation=90,
                              fontsize=8)
        if size == sizes[-1]:
            label_ends(below, ends)
    rows = [argparse.Namespace(**line) for line in counted.values()]
    caption(figure, rows, "What does each rung reach, and which units are busy?",
            "Dotted: the last rung without softmax, and a matrix product (GEMM), in the same run. "
            "At the foot of a bar: the clock in GHz.")
    return figure


def dark(colour):
    """Whether white can be read on it better than black."""
    red, green, blue = (int(colour[n:n + 2], 16) for n in (1, 3, 5))
    return 0.3 * red + 0.6 * green + 0.1 * blue < 120


def draw_steps(axis, lines, roof, labelled):
    """One staircase: a tread for each rung, its clock at its foot; roofs dotted."""
    heights = [float(line["gflops"]) / 1000 for line in lines]
    for x, (height, line) in enumerate(zip(heights, lines)):
        axis.fill_between([x - 0.5, x + 0.5], height, color=COLOURS[line["variant"]],
                          alpha=0.85, linewidth=0)
        axis.annotate(f"{height:.0f}", (x, height), (0, 2), textcoords="offset points",
                      ha="center", fontsize=6.4, zorder=3,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2})
        if line.get("clock_ghz") and height > 0.1 * max(heights):
            axis.annotate(f"{float(line['clock_ghz']):.2f}", (x, 0), (0, 3), fontsize=7,
                          textcoords="offset points", ha="center", rotation=90,
                          color="white" if dark(COLOURS[line["variant"]]) else "black")
    roofs = []
    gemm = max((float(line["ceiling"]) / 1000 for line in lines
                if line["ceiling"] and line["dtype"] == "bf16"), default=None)
    if gemm:
        roofs.append((gemm, "GEMM"))
    if roof:
        roofs.append((float(roof["gflops"]) / 1000, "no softmax"))
    axis.set_xlim(-0.6, len(lines) - 0.4)
    value_axis(axis, [1.06 * max(heights + [height for height, _ in roofs])], "TFLOP/s")
    axis.set_ylim(bottom=0)
    for height, _ in roofs:
        axis.axhline(height, color="black", linewidth=1, linestyle=":")
    if labelled:
        label_ends(axis, [(len(lines) - 0.4, height, text, "black") for height, text in roofs])


def draw_lines(axis, lines, value, unit, name):
    """{variant: {length: row}} with a label at each end."""
    ends, values, lengths = [], [], []
    for variant, line in lines.items():
        x = sorted(line)
        y = [value(line[n]) for n in x]
        peer, roof = variant in PEERS, variant == ROOF
        colour = "black" if roof else PEERS.get(variant) or COLOURS.get(variant, "#888888")
        axis.plot(x, y, color=colour, marker="" if roof else "o", markersize=2.4,
                  linewidth=1, linestyle=":" if roof else "--" if peer else "-")
        ends.append((x[-1], y[-1], variant, colour))
        values, lengths = values + y, lengths + x
    length_axis(axis, lengths, name)
    value_axis(axis, values, unit)
    label_ends(axis, shared_labels(axis, ends))


def shared_labels(axis, ends):
    """Ends (x, y, variant, colour) with texts.  Rungs whose lines end within the height of a
    text share one: their numbers."""
    groups = []
    for end in sorted(ends, key=lambda end: (end[2] in RUNGS, end[1])):
        height = axis.transData.transform(end[:2])[1]
        near = groups and end[2] in RUNGS and groups[-1][1][0][2] in RUNGS \
            and height - groups[-1][0] < 11 * axis.figure.dpi / 72
        if near:
            groups[-1][1].append(end)
        else:
            groups.append((height, [end]))
    return [(*group[-1][:2], text_of([end[2] for end in group]), group[-1][3])
            for _, group in groups]


def text_of(variants):
    """The name of one variant, or the numbers of several rungs: "rungs 7, 10 to 13"."""
    if len(variants) == 1:
        text = {ROOF: f"{number_of(LAST)} without softmax", **NAMES}.get(*variants * 2)
        return f"{number_of(*variants)} {text}" if variants[0] in RUNGS else text
    runs = []
    for rung in sorted(int(number_of(variant)) for variant in variants):
        if runs and rung == runs[-1][1] + 1:
            runs[-1][1] = rung
        else:
            runs.append([rung, rung])
    return "rungs " + ", ".join(f"{a}" if a == b else f"{a}, {b}" if b == a + 1
                                else f"{a} to {b}" for a, b in runs)


def draw_crossover(rows):
    """The first rungs, then the others for each head_dim, without mask, in two columns."""
    panels = by_length(rows)
    keys = [key for key in sorted(panels) if not key[1]
            and len([name for name in RUNGS[FIRST_HOPPER:] if panels[key].get(name)]) > 2]
    if not keys:
        raise NoData("no measurement of several rungs at several lengths")
    first = max(keys, key=lambda key: (len(panels[key]), key[0] == 128))
    drawn = [(first, RUNGS[:FIRST_HOPPER + 1])] \
        + [(key, RUNGS[FIRST_HOPPER - 1:] + [ROOF]) for key in keys]
    tall = 1.15 + 3.0 * -(-len(drawn) // 2)
    figure, axes = plt.subplots(-(-len(drawn) // 2), 2, figsize=(8, tall), squeeze=False)
    figure.subplots_adjust(left=0.07, right=0.805, top=1 - 0.6 / tall,
                           bottom=0.95 / tall, hspace=0.36, wspace=0.72)
    for axis in axes.flat[len(drawn):]:
        axis.axis("off")
    for axis, (key, names) in zip(axes.flat, drawn):
        lines = {name: panels[key][name] for name in names if panels[key].get(name)}
        draw_lines(axis, lines, lambda row: row.gflops / 1000, "TFLOP/s", "keys and queries")
        axis.set_title(f"head_dim {key[0]:.0f}, from rung {number_of(names[0])} on",
                       fontsize=8.5, loc="left")
    used = [row for key in keys for line in panels[key].values() for row in line.values()]
    caption(figure, used, f"From which length does each rung pay? {work_text(used[0])}",
            "The first panel has a logarithmic axis. Rungs 1 and 2 compute in float32, the "
            "others in bfloat16. Lines that end\nclose together share a label.")
    return figure


def draw_decode(rows):
    """Time of one query against the number of keys."""
    single = one_query(rows)
    lines = {name: single[name] for name in RUNGS + [SPLIT] + list(PEERS)[:3]
             if single.get(name)}
    if not lines:
        raise NoData("no measurement of one query")
    figure, axis = plt.subplots(figsize=(8, 4.6))
    figure.subplots_adjust(left=0.085, right=0.8, top=0.9, bottom=0.2)
    draw_lines(axis, lines, lambda row: row.median_s * 1e6, "µs", "keys")
    used = [row for line in lines.values() for row in line.values()]
    row = used[0]
    caption(figure, used, f"Who reads the keys fastest? One query, {row.heads_q:.0f} heads, "
            f"head_dim {row.head_dim:.0f}, bfloat16")
    return figure


def draw_memory(rows):
    """Peak memory against the length; methods within a tenth of each other share a line."""
    panels = by_length(rows)
    key = max((k for k in panels if not k[1]), key=lambda k: (len(panels[k]), k[0] == 128))
    groups = {}
    for name in RUNGS + list(PEERS):
        line = {n: row.peak_bytes / (1 << 20) for n, row in panels[key][name].items()
                if row.peak_bytes}
        if line:
            alike = next((sizes for sizes in groups if dict(sizes).keys() == line.keys()
                          and all(abs(line[n] / size - 1) < 0.1 for n, size in sizes)), None)
            groups.setdefault(alike or tuple(sorted(line.items())), []).append(name)
    if not groups:
        raise NoData("no measurement of the rungs' peak memory")
    figure, axis = plt.subplots(figsize=(8, 4.4))
    figure.subplots_adjust(left=0.085, right=0.72, top=0.9, bottom=0.19)
    ends, values = [], []
    for sizes, names in groups.items():
        x, y = zip(*sizes)
        rungs = [number_of(name) for name in names if name in RUNGS]
        colour = COLOURS[names[len(rungs) - 1]] if rungs else PEERS[names[-1]]
        text = [f"rung{'s' if rungs[1:] else ''} {rungs[0]}"
                + (f" to {rungs[-1]}" if rungs[1:] else "")
                + (" (float32)" if names[0] in IN_FLOAT else "")] if rungs else []
        text += [NAMES[name] for name in names if name in PEERS]
        axis.plot(x, y, "o-", color=colour, markersize=3.5, linewidth=1.4)
        ends.append((x[-1], y[-1], ",\n".join(text), colour))
        values += y
    length_axis(axis, [n for sizes in groups for n, _ in sizes], "keys and queries")
    value_axis(axis, values, "MiB")
    label_ends(axis, ends)
    used = [row for name in RUNGS + list(PEERS) for row in panels[key][name].values()]
    caption(figure, used, f"Does memory grow with the length? {work_text(used[0])}, "
            f"head_dim {key[0]:.0f}", "Inputs, outputs and what one call takes beside them.")
    return figure


def main():
    p = argparse.ArgumentParser(description="Draws the ladder of stage 5.")
    p.add_argument("--results", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--machine", default="", help="part of the machine's name")
    arguments = p.parse_args()
    rows = []
    if any(path.name != "" for path in arguments.results.glob("*.csv")):
        rows = read_results(arguments.results, arguments.machine, roofs=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    drawn = draw_all({"staircase.png": lambda: draw_staircase(arguments.results),
                      "crossover.png": lambda: draw_crossover(rows),
                      "decode.png": lambda: draw_decode(rows),
                      "gpu_memory.png": lambda: draw_memory(rows)}, arguments.out)
    return 0 if drawn else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"ladder_figures.py: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"ladder_figures.py: {error.filename}: {os.strerror(error.errno)}",
              file=sys.stderr)
        sys.exit(1)
