"""roofline_matrix.py: attention on a CPU's matrix unit, from CSV.

    python3 common/reports/roofline_matrix.py --results DIR --out DIR [--machine TEXT]

roofline_matrix.png   one core: flops per exponential against GFLOP/s

A roofline whose scarce resource is not memory but the exponential.  Attention takes one
exponential and 4 head_dim flops per score, so the intensity is 4 head_dim flops per
exponential.  Flat roofs: the matrix unit (ceiling `gemm`) and the float32 multiply-adds
(`fma`).  Slanted roof: exponentials per second (`exp`) times flops per exponential.  Dashed: products
and exponentials one after the other.  Of several machines with a matrix unit, the one with
the most lines.
Exit status: 0 drawn; 1 nothing drawn; 2 bad usage or a malformed file; 77 no matplotlib.
"""
import argparse
import pathlib
import sys

from style import GREY, caption, draw_all, matplotlib, name_of, plain, plt
from results import Malformed, NoData, choose_machine, latest_of, read_all

ROOFS = ("Flat: the highest measured rate of the products. Slanted: that of the exponentials. "
         "Dashed: one after the other.")
MARKS = {"amx": ("#0072b2", "o"), "all_cores": ("#d55e00", "s"), "PyTorch": (GREY, "x")}


def ceiling(rows, kind):
    """The highest ceiling of a kind."""
    found = [row.ceiling for row in rows if row.ceiling_kind == kind and row.ceiling]
    if not found:
        raise NoData(f"no ceiling '{kind}' of one core")
    return max(found)


def one_core(rows):
    """Square attention without a mask on one thread of the machine with a matrix unit."""
    rows = [row for row in rows if row.device == "cpu" and row.op == "attention"]
    known = {row.machine for row in rows if row.variant == "amx" and row.ceiling_kind == "gemm"}
    if not known:
        raise NoData("no measurement of amx beside ceiling 'gemm' (measure_cpu.sh CSV matrix)")
    name = choose_machine([row for row in rows if row.machine in known], "")[0].machine
    return [row for row in latest_of(rows) if row.machine == name and row.threads == 1
            and row.seqlen_q == row.seqlen_k and not row.causal]


def intensity(row):
    """Flops per exponential."""
    return row.flops / (row.batch * row.heads_q * row.seqlen_q * row.seqlen_k)


def series(rows):
    """{name: [(flops per exponential, GFLOP/s)]}: 16 heads in bf16, and float32."""
    out = {}
    for row in rows:
        name = name_of(row)
        f32 = row.variant == "all_cores" and row.dtype == "f32" and row.heads_q > 1
        if name in ("amx", "PyTorch") and row.dtype == "bf16" or f32:
            out.setdefault(name, []).append((intensity(row), row.gflops))
    return {name: sorted(points) for name, points in out.items()}


def draw(rows):
    rows = one_core(rows)
    matrix, fma, exps = (ceiling(rows, kind) for kind in ("gemm", "fma", "exp"))
    fig, axis = plt.subplots(figsize=(8, 4.6))
    fig.subplots_adjust(left=0.085, right=0.8, top=0.87, bottom=0.2)
    low, high = 16 * 4, 512 * 4
    xs = [low * (high / low) ** (n / 200) for n in range(201)]
    axis.plot(xs, [min(matrix, exps * x) for x in xs], color="black", linewidth=1.3)
    axis.plot(xs, [1 / (1 / matrix + 1 / (exps * x)) for x in xs], color="black",
              linewidth=0.9, linestyle=(0, (5, 3)))
    axis.plot(xs, [min(fma, exps * x) for x in xs], color=MARKS["all_cores"][0], linewidth=1.3)
    axis.annotate("one after the other", (1024, 1 / (1 / matrix + 1 / (exps * 1024))),
                  xytext=(0, -15), textcoords="offset points", fontsize=8.5)
    for y, text, colour in ((matrix, f"matrix unit, {matrix:.0f}", "black"),
                            (fma, f"float32 units, {fma:.0f}", MARKS["all_cores"][0])):
        axis.annotate(text, (high, y), xytext=(5, 0), textcoords="offset points", fontsize=8.5,
                      va="center", color=colour)
    axis.annotate(f"exponentials, {exps:.2g} G/s", (low, exps * low), xytext=(4, 14),
                  textcoords="offset points", fontsize=8.5, rotation=33)
    for name, points in series(rows).items():
        colour, mark = MARKS[name]
        axis.plot(*zip(*points), mark, color=colour, markersize=6, linestyle="",
                  label={"amx": "amx, bf16", "all_cores": "all_cores, float32",
                         "PyTorch": "PyTorch, bf16"}[name])
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axis.set_xlim(low, high)
    ticks = [4 * d for d in (16, 32, 64, 128, 256, 512)]
    axis.set_xticks(ticks)
    axis.set_xticklabels([f"{tick}\nd = {tick // 4}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("flops per exponential", fontsize=9)
    axis.set_ylabel("GFLOP/s of one core", fontsize=9)
    plain(axis)
    axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False,
                handletextpad=0.1)
    caption(fig, rows, "What limits attention beside a matrix unit? One core, 2k keys", ROOFS)
    return fig


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--machine", default="", help="part of the machine's name")
    arguments = parser.parse_args()
    rows = read_all(arguments.results, arguments.machine)
    rows = [row for row in rows if arguments.machine in row.machine]
    return 0 if draw_all({"roofline_matrix.png": lambda: draw(rows)}, arguments.out) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"roofline_matrix.py: {error}", file=sys.stderr)
        sys.exit(2)
