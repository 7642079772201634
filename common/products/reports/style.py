"""style.py: what all figures share: matplotlib without a display, colours, axes, labels at
the ends of lines, the caption, and how a picture gets into its file.

A figure is 8 inches wide and drawn at 200 dots per inch; a page shows it at about 880
pixels, where 8 points are the smallest text that one reads with ease.  The same
measurements give the same file.
"""
import os
import textwrap

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import matplotlib.ticker  # noqa: E402

from words import days_of  # noqa: E402

plt.rcParams.update({"figure.dpi": 200, "savefig.dpi": 200, "axes.labelsize": 9,
                     "xtick.labelsize": 8.5, "ytick.labelsize": 8.5})
COLOURS = {"1": "#b8860b", "2": "#d55e00", "3": "#009e73", "4": "#0072b2", "5": "#8e44ad",
           "peer": "#555555"}
GREY, GRID = "#555555", "#e4e4e4"
NAMES = {"pytorch-cudnn": "cuDNN", "pytorch-flash": "FlashAttention-2",
         "flash-attention-3": "FlashAttention-3", "flash-attention-4": "FlashAttention-4",
         "pytorch-efficient": "memory-efficient", "pytorch-math": "PyTorch, unfused",
         "pytorch-softmax": "PyTorch", "intra_warpgroup_overlap": "intra-warpgroup"}


def name_of(row):
    """How a figure calls the method of a measurement."""
    if row.stage == "peer" and row.device != "gpu" and "attention" in row.op:
        return "PyTorch"  # on a CPU it chooses the kernel itself
    return NAMES.get(row.variant, row.variant)


def plain(axis, grid="both"):
    """Grid below the data, no frame at the top and the right."""
    axis.grid(True, axis=grid, which="major", color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def value_axis(axis, most, unit):
    """y from 0."""
    axis.set(ylim=(0, 1.08 * most), ylabel=unit)
    plain(axis)


def label_ends(axis, ends):
    """Writes each text right of its point (x, y, text, colour), pushed apart so that none
    overlap, with a thin grey line to its point where it had to move."""
    axis.figure.canvas.draw()
    box = axis.get_window_extent()
    gap = 11 * axis.figure.dpi / 72
    ends = sorted(ends, key=lambda end: axis.transData.transform(end[:2])[1])
    points = [min(max(axis.transData.transform(end[:2])[1], box.y0), box.y1) for end in ends]
    heights = list(points)
    for _ in range(500):
        for n in range(len(heights) - 1):
            overlap = max(0, gap - (heights[n + 1] - heights[n]))
            heights[n] -= overlap / 2
            heights[n + 1] += overlap / 2
        heights[0] = max(heights[0], box.y0)
    for (x, y, text, colour), point, height in zip(ends, points, heights):
        moved = abs(point - height) > gap / 4 or axis.transData.transform((x, y))[0] < box.x1 - 40
        line = {"arrowstyle": "-", "color": "#c8c8c8", "linewidth": 0.6, "linestyle": (0, (1, 2)),
                "shrinkA": 0, "shrinkB": 4}
        axis.annotate(text, xy=(x, y), xytext=(1.03, (height - box.y0) / box.height),
                      textcoords="axes fraction", color=colour, fontsize=8, va="center",
                      ha="left", annotation_clip=False, arrowprops=line if moved else None)


def offset(axis, text, point, shift, **more):
    """A text beside a point, `shift` in points of type."""
    return axis.annotate(text, point, shift, textcoords="offset points",
                         **{"fontsize": 8, "va": "center", **more})


def caption(figure, rows, text, note=""):
    """The question or the answer above; a note, machine, commit and date below."""
    rows = list(rows)
    commits = sorted({row.commit for row in rows if row.commit})
    shown = ", ".join(commits[:2]) + (" ..." if len(commits) > 2 else "")
    machines = " and ".join(sorted({row.machine for row in rows}))
    lines = [part for line in note.splitlines() for part in textwrap.wrap(line, 150)] + \
        [f"{machines}; commit {shown}, {days_of(row.date for row in rows)}"]
    figure.text(0.01, 0.012, "\n".join(lines), fontsize=7.5, color=GREY, va="bottom")
    figure.text(0.01, 0.985, text, fontsize=10, va="top", weight="bold")


def save(figure, path):
    """The same picture gives the same file; appears complete or not at all."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        figure.savefig(beside, format="png", metadata={"Software": None})
        os.replace(beside, path)
    finally:
        plt.close(figure)
        beside.unlink(missing_ok=True)
