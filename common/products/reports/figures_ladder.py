"""figures_ladder.py: what the rungs of stage 5 reach, which units are busy, and what the warps of a block do when."""
import numpy as np

from ladder import FIRST_HOPPER, IN_FLOAT, ROOF, RUNGS, number_of
from registry import figure
from results import each, read_lines
from style import caption, label_ends, matplotlib, offset, plain, plt, value_axis
from tables_ladder import read_profile


def shades(name, first, count):
    """Colours of a map of matplotlib from light to dark."""
    return [matplotlib.colors.to_hex(matplotlib.colormaps[name](first + (0.95 - first) * n / count))
            for n in range(count)]


# float32, tensor cores of any GPU, Hopper
RUNG_COLOURS = dict(zip(RUNGS, shades("YlOrBr", 0.4, len(IN_FLOAT))
                        + shades("Reds", 0.3, FIRST_HOPPER - len(IN_FLOAT))
                        + shades("PuBu", 0.3, len(RUNGS) - FIRST_HOPPER)))
UNITS = (("tensor_pct", "tensor cores", "#1f63a5"), ("exp_pct", "exponentials", "#d1495b"),
         ("issue_pct", "issue slots", "#7f7f7f"),
         ("fma_pct", "multiply-adds", "#c9a227"), ("shared_pct", "shared memory", "#2a9d3a"))


@figure("staircase")
def staircase(data):
    """What each rung reaches under its roofs, and how busy the units were: one launch of each
    rung, roof and GEMM in the same `make profile 5`."""
    counted = read_profile(data)
    sizes = sorted({d for name, d in counted if name in RUNGS and name not in IN_FLOAT})
    drawn, axes = plt.subplots(2, len(sizes), figsize=(8, 6.6), squeeze=False, sharex=True)
    drawn.subplots_adjust(left=0.075, right=0.86, top=0.9, bottom=0.345, wspace=0.14,
                          hspace=0.1)
    for (above, below), size in zip(axes.T, sizes):
        names = [name for name in RUNGS if (name, size) in counted]
        lines = [counted[name, size] for name in names]
        treads(above, lines, counted.get((ROOF, size)), "TFLOP/s" if size == sizes[0] else "", size == sizes[-1])
        above.set_title(f"head_dim {size:.0f}", fontsize=9, loc="left")
        ends = []
        for column, text, colour in UNITS:
            points = [(x, float(getattr(line, column))) for x, line in enumerate(lines)
                      if getattr(line, column)]
            if points:
                below.plot(*zip(*points), "o-", color=colour, markersize=3,
                           linewidth=2.6 if column == "tensor_pct" else 1)
                ends.append((*points[-1], text, colour))
        value_axis(below, 92, "percent of cycles" if size == sizes[0] else "")
        below.set_xticks(range(len(names)), [f"{number_of(name)} {name}" for name in names],
                         rotation=90, fontsize=8)
        if size == sizes[-1]:
            label_ends(below, ends)
    caption(drawn, counted.values(), "What does each rung reach, and which units are busy?",
            "Dotted: the last rung without softmax, and a matrix product (GEMM), in the same run. "
            "At the foot of a bar: the clock in GHz.\nWhere tensor cores and exponentials are equally "
            "busy, the red line lies on the blue one.")
    return drawn


def treads(axis, lines, roof, unit, labelled):
    """One staircase: a tread for each rung, its clock at its foot; roofs dotted."""
    heights = [float(line.gflops) / 1000 for line in lines]
    for x, (height, line) in enumerate(zip(heights, lines)):
        axis.fill_between([x - 0.5, x + 0.5], height, color=RUNG_COLOURS[line.variant], linewidth=0)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.2}
        offset(axis, f"{height:.0f}", (x, height), (0, 2), ha="center", fontsize=6.4, zorder=3,
               va="baseline", bbox=box)
        if line.clock_ghz and height > 0.1 * max(heights):
            offset(axis, f"{float(line.clock_ghz):.2f}", (x, 0), (0, 4), fontsize=7, ha="center",
                   va="baseline", rotation=90, bbox=box)
    gemm = max((float(line.ceiling) / 1000 for line in lines
                if line.ceiling and line.dtype == "bf16"), default=0)
    roofs = [(height, text) for height, text in (
        (gemm, "GEMM"), (float(roof.gflops) / 1000 if roof else 0, "no softmax")) if height]
    axis.set_xlim(-0.6, len(lines) - 0.4)
    value_axis(axis, 1.06 * max(heights + [height for height, _ in roofs]), unit)
    for height, _ in roofs:
        axis.axhline(height, color="black", linewidth=1, linestyle=":")
    if labelled:
        label_ends(axis, [(len(lines) - 0.4, height, text, "black") for height, text in roofs])


@figure("eight_bits")
def eight_bits(data):
    """Error against speed of attention in 8 bits: of values with a mean, and of values without."""
    errors = {(row.input, row.method): 100 * float(row.error)
              for row in each(data.file("hopper/eight_bits_errors.csv", read_lines)) if not row.way}
    drawn, used = plt.figure(figsize=(8, 4.4)), []
    axis = drawn.add_axes([0.08, 0.2, 0.86, 0.71])
    for row in each(data.file("hopper/eight_bits.csv", read_lines)):
        rate, method = float(row.gflops or 0) / 1000, {"cache in bf16": "bf16"}.get(row.variant, row.variant)
        if (row.op, row.seqlen_k, row.causal, row.flags[:4]) != ("attention", "16384", "0", "cold") or (
                ("normal", method) not in errors):
            continue
        used.append(row)
        ends = [errors[kind, method] for kind in ("normal", "mean of v 1")]
        colour = "tab:orange" if method.startswith("flash") else "0.4" if method == "bf16" else "tab:blue"
        axis.plot([rate, rate], ends, color="0.8", linewidth=1, zorder=1)
        axis.plot(rate, ends[0], "o", color=colour, fillstyle="none")
        axis.plot(rate, ends[1], "D", color=colour, markersize=5)
        offset(axis, method.removeprefix("eight_bits_").replace(";", ","), (rate, ends[1]), (6, 4), fontsize=7.5)
    axis.set(xlabel="TFLOP/s", ylabel="error of o, percent", yscale="log")
    axis.yaxis.set_major_formatter("{x:g}")
    plain(axis)
    caption(drawn, used, "What does speed cost in 8 bits? 16k keys, head_dim 128, no mask, cold",
            "Circles: the error of values of mean 0; diamonds: of mean 1.")
    return drawn


# What a warp does in a cycle, by the letters of hopper/timeline.csv.
ACTIVITIES = {"s": ("softmax", "#e07b00"), "p": ("waits for products", "#5c9bd1"), "q": ("issues Q K\u1d40", "#1f5f99"),
              "v": ("issues P V", "#12355b"), "t": ("waits for its turn", "#d81b60"), "k": ("waits for K", "#d9d9d9"),
              "u": ("waits for V", "#a8a8a8"), "e": ("waits for an empty stage", "#dcd6c8"), "c": ("issues a copy", "#3a9d7c")}
FROM, TO = 8000, 20000  # cycles: all of them in the loop over the keys


def doing(row):
    """A letter for each cycle between FROM and TO; `bars` of the file: letters and how many cycles each."""
    bars = row.bars.split()
    return np.repeat(["-", *(bar[0] for bar in bars)], [int(row.begin), *(int(bar[1:]) for bar in bars)])[FROM:TO]


@figure("timeline")
def timeline(data):
    """What the producer and the consumers of a block do when, and whether they take exponentials at the same time."""
    rows = [row for row in each(data.file("hopper/timeline.csv", read_lines)) if (row.head_dim, row.causal) == ("128", "0")]
    names = ["wgmma", "warp_specialized", "ping_pong", "intra_warpgroup_overlap"]
    drawn, axes = plt.subplots(len(names), 1, figsize=(8, 6), sharex=True)
    drawn.subplots_adjust(left=0.12, right=0.96, top=0.9, bottom=0.23, hspace=0.6)
    for axis, name in zip(axes, names):
        warps = {row.role: doing(row) for row in rows if row.variant == name}
        for place, letters in enumerate(warps.values()):
            for letter, (_, colour) in ACTIVITIES.items():
                axis.fill_between(range(FROM, TO), place + 0.1, place + 0.9, where=letters == letter, color=colour, linewidth=0,
                                  step="mid")
        busy = [letters == "s" for role, letters in warps.items() if role.startswith("consumer")]
        once, chance = (np.mean(np.all(busy, 0)), np.prod(np.mean(busy, 1))) if busy else (0, 1)
        axis.set_title(f"{number_of(name)} {name}" + f": exponentials at once {100 * once:.0f} % of the time, "
                       f"{once / chance:.2f} times chance" * bool(busy), fontsize=8.5, loc="left")
        axis.set(xlim=(FROM, TO), ylim=(len(warps), 0))
        axis.set_yticks([place + 0.5 for place in range(len(warps))], warps)
        axis.spines[:].set_visible(False)
    axes[-1].set_xlabel("cycles")
    drawn.legend([plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in ACTIVITIES.values()],
                 [text for text, _ in ACTIVITIES.values()], loc=(0.02, 0.065), ncols=4, fontsize=8, frameon=False)
    caption(drawn, rows, "When do the warps of a block do what?", f"First warp of each warpgroup of block 0; {rows[0].batch} "
            f"batches of {rows[0].heads} heads, {rows[0].seqlen} keys, d = 128, bf16.")
    return drawn
