"""roofline.py: draws every attention variant under the roofs of its machine, from CSV.

    python3 common/reports/roofline.py --results DIR --out DIR [--machine TEXT]

roofline_cpu.png    a panel for each of stages 1 to 4
roofline_gpu.png    float32 variants, then the 16-bit rungs of stage 5 and its peers

Across: flops per byte that the hardware counted (bytes_measured), or that theory
moves where nothing was counted (bytes_predicted).  Up: GFLOP/s.
Flat roof: the largest `ceiling` of kind fma or gemm; slanted roof: bytes a second (kind
copy or read) times flops a byte.  The number beside a name is its rate.  Of each variant
its longest square problem without causal mask.
A figure without data is skipped with one line.  Exit status: 0 drawn; 1 nothing drawn; 2
bad usage or a malformed file; 77 no matplotlib.
"""
import argparse
import pathlib
import sys

from style import caption, draw_all, name_of, plain, plt
from results import Malformed, NoData, read_results, si

COLOURS = ["#d55e00", "#0072b2", "#009e73", "#8e44ad", "#b8860b", "#555555", "#e377c2",
           "#17becf", "#7f4f24", "#6a994e", "#c1121f", "#3a0ca3", "#f4a261", "#111111"]


ROOFS = ("Slanted: the memory's highest measured bytes per second. Flat: the highest measured "
         "flops per second. Beside a name: its rate.")


def highest(rows, kinds):
    """The highest ceiling of these kinds, or None."""
    return max((row.ceiling for row in rows if row.ceiling and row.ceiling_kind in kinds),
               default=None)


def longest(rows):
    """One measurement a variant: its longest square problem, the same head_dim for all."""
    square = [row for row in rows if row.op == "attention" and row.gflops and row.flops
              and row.seqlen_q == row.seqlen_k and not row.causal]
    widths = {}
    for row in square:
        widths.setdefault(row.head_dim, set()).add((row.stage, row.variant))
    if not widths:
        return []
    width = max(widths, key=lambda w: (len(widths[w]), w == 128, -w))
    chosen = {}
    for row in sorted(square, key=lambda row: (row.length, row.batch * row.heads_q)):
        if row.head_dim == width:
            chosen[row.stage, row.variant] = row
    return list(chosen.values())


def panel(axis, title, points, flat, slope, unit):
    """One roofline; points (flops / byte, flop rate, name); rates in `unit` of GFLOP/s."""
    known = [x for x, _, _ in points if x]
    if not points:
        axis.axis("off")
        return
    ridge = flat / slope if flat and slope else None
    low = min(known + ([ridge] if ridge else [])) / 4
    high = max(known + ([ridge] if ridge else [])) * 4
    bottom = min(y for _, y, _ in points) / unit / 4
    top = max([y for _, y, _ in points] + ([flat] if flat else [])) / unit * 2.5
    if ridge:
        axis.plot([low, ridge, high], [low * slope / unit, flat / unit, flat / unit],
                  color="black", linewidth=1.2)
    elif flat:
        axis.axhline(flat / unit, color="black", linewidth=1.2)
    for n, (x, y, name) in enumerate(sorted(points, key=lambda p: -p[1])):
        axis.plot(x, y / unit, "o" if n < 10 else "s", color=COLOURS[n % len(COLOURS)],
                  markersize=5, label=f"{name}, {y / unit:.3g}", linestyle="")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    axis.set_ylim(bottom, top)
    axis.set_title(title, fontsize=9, loc="left")
    plain(axis)
    axis.legend(fontsize=7.8, loc="upper left", bbox_to_anchor=(1.0, 1.03), frameon=False,
                handletextpad=0.1, labelspacing=0.35, borderaxespad=0.2)


def point(row, name):
    moved = row.bytes_measured or row.bytes_predicted
    return row.flops / moved if moved else None, row.gflops, name


def shape_of(rows):
    row = max(rows, key=lambda row: row.length)
    return f"head_dim {row.head_dim:.0f}, up to {si(row.length)} keys"


def draw_cpu(rows):
    cpu = [row for row in rows if row.device == "cpu"]
    chosen = longest(cpu)
    if not chosen:
        raise NoData("no measurement of attention on a CPU")
    slope = highest(cpu, ("copy", "read"))
    fig, axes = plt.subplots(2, 2, figsize=(8, 6))
    fig.subplots_adjust(left=0.085, right=0.79, top=0.9, bottom=0.145, wspace=1.08,
                        hspace=0.35)
    for stage, axis in zip("1234", axes.flat):
        here = [row for row in chosen if row.stage == stage and row.bytes_predicted]
        panel(axis, f"stage {stage}", [point(row, row.variant) for row in here],
              highest(cpu, ("fma",)), slope, 1)
        axis.set_ylabel("GFLOP/s", fontsize=9)
        axis.set_xlabel("flops per byte", fontsize=9)
    caption(fig, chosen, f"What limits attention on the CPU? {shape_of(chosen)}", ROOFS)
    return fig


def draw_gpu(rows):
    gpu = [row for row in rows if row.device == "gpu"]
    slope = highest(gpu, ("copy", "read"))
    groups = [("float32", longest([row for row in gpu if row.dtype == "f32"])),
              ("bfloat16", longest([row for row in gpu if row.dtype == "bf16"]))]
    groups = [(name, [row for row in chosen if row.bytes_predicted])
              for name, chosen in groups]
    groups = [(name, chosen) for name, chosen in groups if chosen]
    if not groups:
        raise NoData("no measurement of attention on a GPU with its bytes")
    tall = 1.1 + 3.1 * len(groups)
    fig, axes = plt.subplots(len(groups), 1, figsize=(8, tall), squeeze=False)
    fig.subplots_adjust(left=0.085, right=0.745, top=1 - 0.6 / tall, bottom=0.95 / tall,
                        hspace=0.38)
    for (name, chosen), axis in zip(groups, axes[:, 0]):
        dtype = chosen[0].dtype
        panel(axis, f"{name}, {shape_of(chosen)}",
              [point(row, name_of(row) if row.stage in ("5", "peer")
                     else f"{row.stage} {row.variant}") for row in chosen],
              highest([row for row in gpu if row.dtype == dtype], ("fma", "gemm")), slope,
              1000)
        axis.set_ylabel("TFLOP/s", fontsize=9)
        axis.set_xlabel("flops per byte", fontsize=9)
    caption(fig, [row for _, chosen in groups for row in chosen],
            "What limits attention on the GPU?", ROOFS)
    return fig


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--machine", default="", help="part of the machine's name")
    arguments = parser.parse_args()
    rows = read_results(arguments.results, arguments.machine)
    return 0 if draw_all({"roofline_cpu.png": lambda: draw_cpu(rows),
                          "roofline_gpu.png": lambda: draw_gpu(rows)}, arguments.out) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"roofline.py: {error}", file=sys.stderr)
        sys.exit(2)
