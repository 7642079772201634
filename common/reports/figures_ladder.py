"""figures_ladder.py: the rungs of stage 5: what each reaches, and from which length it pays."""
from ladder import FIRST_HOPPER, IN_FLOAT, ROOF, RUNGS, number_of
from registry import figure
from results import need
from style import NAMES, caption, label_ends, offset, plt, value_axis
from tables_ladder import Panels, read_profile, work_text
from words import si


def between(first, last, steps):
    """`steps` colours from one to the other, both as six hexadecimal digits."""
    ends = [[int(text[n:n + 2], 16) for n in (0, 2, 4)] for text in (first, last)]
    parts = [step / max(steps - 1, 1) for step in range(steps)]
    return ["#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(*ends))
            for part in parts]


# float32, tensor cores of any GPU, Hopper: from light to dark within each
RUNG_COLOURS = dict(zip(RUNGS, between("c9a227", "8a6d00", len(IN_FLOAT))
                        + between("f6b26b", "c2293f", FIRST_HOPPER - len(IN_FLOAT))
                        + between("9ecae1", "3b0f70", len(RUNGS) - FIRST_HOPPER)))

UNITS = (("tensor_pct", "tensor cores", "#1f63a5"), ("exp_pct", "exponentials", "#d1495b"),
         ("issue_pct", "issue slots", "#7f7f7f"),
         ("fma_pct", "multiply-adds", "#c9a227"), ("shared_pct", "shared memory", "#2a9d3a"))


@figure("staircase.png", "ladder")
def staircase(data):
    """What each rung reaches under its roofs, and how busy the units were: one launch of each
    rung, roof and GEMM in the same `make profile 5`."""
    counted = read_profile(data)
    sizes = sorted({d for name, d in counted if name in RUNGS and name not in IN_FLOAT})
    drawn, axes = plt.subplots(2, len(sizes), figsize=(8, 6.6), squeeze=False, sharex=True)
    drawn.subplots_adjust(left=0.075, right=0.86, top=0.9, bottom=0.345, wspace=0.14,
                          hspace=0.1)
    hidden = []
    for (above, below), size in zip(axes.T, sizes):
        names = [name for name in RUNGS if (name, size) in counted]
        lines = [counted[name, size] for name in names]
        treads(above, lines, counted.get((ROOF, size)), size == sizes[-1])
        above.set_title(f"head_dim {size:.0f}", fontsize=9, loc="left")
        ends = []
        for column, text, colour in UNITS:
            points = [(x, float(getattr(line, column))) for x, line in enumerate(lines)
                      if getattr(line, column)]
            if points:
                below.plot(*zip(*points), "o-", color=colour, markersize=3,
                           linewidth=2.6 if column == "tensor_pct" else 1)
                ends.append((*points[-1], text, colour))
        busy = [line for line in lines if line.tensor_pct and line.exp_pct]
        if sum(abs(float(line.tensor_pct) - float(line.exp_pct)) < 1 for line in busy) > 3:
            hidden.append(size)
        below.set_ylim(0, 100)
        value_axis(below, [92], "percent of cycles" if size == sizes[0] else "")
        above.set_ylabel("TFLOP/s" if size == sizes[0] else "")
        below.set_xticks(range(len(names)))
        below.set_xticklabels([f"{number_of(name)} {name}" for name in names], rotation=90,
                              fontsize=8)
        if size == sizes[-1]:
            label_ends(below, ends)
    note = "Dotted: the last rung without softmax, and a matrix product (GEMM), in the same run. " \
        "At the foot of a bar: the clock in GHz."
    for size in hidden:
        note += f"\nAt head_dim {size:.0f} tensor cores and exponentials are equally busy: the " \
            "red line lies on the blue one."
    caption(drawn, [line for line in counted.values()],
            "What does each rung reach, and which units are busy?", note)
    return drawn


def dark(colour):
    """Whether white can be read on it better than black."""
    red, green, blue = (int(colour[n:n + 2], 16) for n in (1, 3, 5))
    return 0.3 * red + 0.6 * green + 0.1 * blue < 120


def treads(axis, lines, roof, labelled):
    """One staircase: a tread for each rung, its clock at its foot; roofs dotted."""
    heights = [float(line.gflops) / 1000 for line in lines]
    for x, (height, line) in enumerate(zip(heights, lines)):
        colour = RUNG_COLOURS[line.variant]
        axis.fill_between([x - 0.5, x + 0.5], height, color=colour, alpha=0.85, linewidth=0)
        offset(axis, f"{height:.0f}", (x, height), (0, 2), ha="center", fontsize=6.4, zorder=3,
               va="baseline", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2})
        if line.clock_ghz and height > 0.1 * max(heights):
            offset(axis, f"{float(line.clock_ghz):.2f}", (x, 0), (0, 3), fontsize=7,
                   ha="center", va="baseline", rotation=90,
                   color="white" if dark(colour) else "black")
    gemm = max((float(line.ceiling) / 1000 for line in lines
                if line.ceiling and line.dtype == "bf16"), default=None)
    roofs = ([(gemm, "GEMM")] if gemm else []) \
        + ([(float(roof.gflops) / 1000, "no softmax")] if roof else [])
    axis.set_xlim(-0.6, len(lines) - 0.4)
    value_axis(axis, [1.06 * max(heights + [height for height, _ in roofs])], "TFLOP/s")
    axis.set_ylim(bottom=0)
    for height, _ in roofs:
        axis.axhline(height, color="black", linewidth=1, linestyle=":")
    if labelled:
        label_ends(axis, [(len(lines) - 0.4, height, text, "black") for height, text in roofs])


@figure("crossover.png", "ladder")
def crossover(data):
    """From which length on each rung is faster than the one before: a number for each length."""
    panels = Panels(data)
    keys = [key for key in sorted(panels) if not key[1]
            and sum(bool(panels.line(key, name)) for name in RUNGS[FIRST_HOPPER:]) > 2]
    used = panels.rows(need(keys, "no measurement of several rungs at several lengths"), RUNGS)
    rungs = [name for name in RUNGS if name in {row.variant for row in used}]
    tall = 1.25 + (0.22 * len(rungs) + 0.4) * -(-len(keys) // 2)
    drawn, axes = plt.subplots(-(-len(keys) // 2), 2, figsize=(8, tall), squeeze=False,
                               sharey=True)
    drawn.subplots_adjust(left=0.205, right=0.985, top=1 - 0.6 / tall, bottom=0.85 / tall,
                          hspace=0.2, wspace=0.04)
    for axis in axes.flat[len(keys):]:
        axis.axis("off")
    for axis, key in zip(axes.flat, keys):
        lengths = sorted({row.length for row in panels.rows([key], RUNGS)})
        for y, (before, after) in enumerate(zip(rungs, rungs[1:])):
            before, after = panels.line(key, before), panels.line(key, after)
            for x, n in enumerate(lengths):
                if n in before and n in after:
                    draw_gain(axis, x, y, before[n].median_s / after[n].median_s)
        axis.set_xlim(-0.5, len(lengths) - 0.5)
        axis.set_ylim(len(rungs) - 1.5, -0.5)
        axis.set_xticks(range(len(lengths)))
        axis.set_xticklabels([si(n) for n in lengths])
        axis.set_yticks(range(len(rungs) - 1))
        axis.set_yticklabels([f"{number_of(name)} {NAMES.get(name, name)}" for name in rungs[1:]])
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(f"head_dim {key[0]:.0f}", fontsize=9, loc="left")
    for axis in axes[-1]:
        axis.set_xlabel("keys and queries")
    caption(drawn, used, f"From which length does each rung pay? {work_text(used[0])}",
            "A cell: how many times as fast as the measured rung before. Green: faster, red: slower, "
            "white: within 2 %. Rungs 1 and 2 compute in float32, the\nothers in bfloat16.")
    return drawn


def draw_gain(axis, x, y, gain):
    """A cell, the stronger coloured the further its number is from 1."""
    strength = min(1.0, abs(gain - 1) / 0.4) if abs(gain - 1) > 0.02 else 0
    towards = (42, 157, 58) if gain > 1 else (209, 73, 91)
    colour = [1 - 0.75 * strength * (1 - part / 255) for part in towards]
    axis.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour,
                                 edgecolor="white", linewidth=0.8))
    axis.text(x, y, f"{gain:.2f}" if gain < 9.95 else f"{gain:.0f}", fontsize=7.5, ha="center",
              va="center")
