"""style.py: what all figures share: matplotlib without a display, colours, axes, labels at
the ends of lines, the caption, and how a picture gets into its file.

A figure is 8 inches wide and drawn at 200 dots per inch; a page shows it at about 880
pixels, where 8 points are the smallest text that one reads with ease.  The same
measurements give the same file.  Ends the program with status 77 without matplotlib.
"""
import os
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker
except ImportError as missing:
    print(f"{os.path.basename(sys.argv[0])}: {missing}; install matplotlib "
          "(apt install python3-matplotlib)", file=sys.stderr)
    sys.exit(77)

from results import NoData, si

SETTINGS = {"figure.dpi": 200, "savefig.dpi": 200, "axes.labelsize": 9,
            "xtick.labelsize": 8.5, "ytick.labelsize": 8.5}
plt.rcParams.update(SETTINGS)
COLOURS = {"1": "#b8860b", "2": "#d55e00", "3": "#009e73", "4": "#0072b2", "5": "#8e44ad",
           "peer": "#555555"}
GREY, GRID = "#555555", "#e4e4e4"
NAMES = {"pytorch-cudnn": "cuDNN", "pytorch-flash": "FlashAttention-2",
         "flash-attention-3": "FlashAttention-3", "pytorch-efficient": "memory-efficient",
         "pytorch-math": "PyTorch, unfused", "pytorch-softmax": "PyTorch",
         "intra_warpgroup_overlap": "intra-warpgroup"}


def name_of(row):
    """How a figure calls the method of a measurement."""
    if row.stage == "peer" and row.device != "gpu" and "attention" in row.op:
        return "PyTorch"  # on a CPU it chooses the kernel itself
    return NAMES.get(row.variant, row.variant)


def plain(axis):
    """Grid below the data, no frame at the top and the right."""
    axis.grid(True, which="major", color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def length_axis(axis, lengths, name):
    """log2 with ticks at the measured lengths, thinned where they would touch."""
    lengths = sorted(set(lengths))
    axis.set_xscale("log", base=2)
    step = -(-len(lengths) // 9)
    axis.set_xticks(lengths[::-1][::step])
    axis.set_xticklabels([si(n) for n in lengths[::-1][::step]])
    axis.minorticks_off()
    axis.set_xlabel(name)


def value_axis(axis, values, unit):
    """y from 0, or logarithmic when the values span more than a decade."""
    values = [value for value in values if value > 0]
    if max(values) > 10 * min(values):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        if max(values) < 100 * min(values):
            axis.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    else:
        axis.set_ylim(0, 1.08 * max(values))
    axis.set_ylabel(unit)
    plain(axis)


def label_ends(axis, ends):
    """Writes each text right of its point (x, y, text, colour), pushed apart so that none
    overlap, with a thin line to its point where it had to move."""
    axis.figure.canvas.draw()
    box = axis.get_window_extent()
    gap = 11 * axis.figure.dpi / 72
    ends = sorted(ends, key=lambda end: axis.transData.transform(end[:2])[1])
    heights = [min(max(axis.transData.transform(end[:2])[1], box.y0), box.y1)
               for end in ends]
    for _ in range(500):
        for n in range(len(heights) - 1):
            overlap = max(0, gap - (heights[n + 1] - heights[n]))
            heights[n] -= overlap / 2
            heights[n + 1] += overlap / 2
        heights[0] = max(heights[0], box.y0)
    for (x, y, text, colour), height in zip(ends, heights):
        axis.annotate(text, xy=(x, y), xytext=(1.03, (height - box.y0) / box.height),
                      textcoords="axes fraction", color=colour, fontsize=8, va="center",
                      ha="left", annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5,
                                  "alpha": 0.6, "shrinkA": 0, "shrinkB": 3})


def caption(figure, rows, text, note=""):
    """The question or the answer above; a note, machine, commit and date below."""
    commits = sorted({row.commit for row in rows if row.commit})
    dates = sorted({row.date[:10] for row in rows if row.date})
    days = dates[0] if len(set(dates)) == 1 else f"{dates[0]} to {dates[-1]}" if dates else ""
    shown = ", ".join(commits[:2]) + (" ..." if len(commits) > 2 else "")
    machines = " and ".join(sorted({row.machine for row in rows}))
    lines = ([note] if note else []) + [f"{machines}; commit {shown}, {days}"]
    figure.text(0.01, 0.012, "\n".join(lines), fontsize=7.5, color=GREY, va="bottom")
    figure.text(0.01, 0.985, text, fontsize=10, va="top", weight="bold")


def new_figure(columns, height, right):
    """A figure with a row of axes."""
    figure, axes = plt.subplots(1, columns, figsize=(8, height), squeeze=False)
    figure.subplots_adjust(left=0.085, right=right, top=0.86, bottom=0.21,
                           wspace=0.75 if columns > 1 else None)
    return figure, axes[0]


def stacked(panels, each, right=0.76, left=0.09, gap=0.34):
    """A figure with `panels` axes, one below the other, each `each` inches high."""
    tall = 0.5 + each * panels + 0.4
    figure, axes = plt.subplots(panels, 1, figsize=(8, tall), squeeze=False)
    figure.subplots_adjust(left=left, right=right, top=1 - 0.55 / tall, bottom=0.92 / tall,
                           hspace=gap)
    return figure, axes[:, 0]


def save(figure, path):
    """The same picture gives the same file; appears complete or not at all."""
    beside = path.with_name(f".{path.name}.tmp")
    kind = path.suffix[1:]
    try:
        figure.savefig(beside, format=kind,
                       metadata={"Date" if kind == "svg" else "Software": None})
        os.replace(beside, path)
    finally:
        plt.close(figure)
        beside.unlink(missing_ok=True)


def draw_all(jobs, out):
    """Draws every figure that has data.  Returns how many."""
    drawn = 0
    program = os.path.basename(sys.argv[0])
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in jobs.items():
        try:
            save(draw(), out / name)
            drawn += 1
            print(f"{program}: {out / name}")
        except NoData as missing:
            print(f"{program}: {name} not drawn: {missing}")
    return drawn
