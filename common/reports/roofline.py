"""roofline.py: draws every attention variant under the roofs of its machine, from CSV.

    python3 common/reports/roofline.py --results DIR --out DIR [--machine TEXT]

arc.png             all stages and rungs and the peers as bars, with their ceilings
roofline_cpu.png    a panel for each of stages 1 to 4
roofline_gpu.png    float32 variants, then the 16-bit rungs of stage 5 and its peers

Across: flops for each byte that the hardware counted (bytes_measured), or that theory
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

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError as missing:
    print(f"roofline.py: {missing}; install matplotlib (apt install python3-matplotlib)",
          file=sys.stderr)
    sys.exit(77)

from results import Malformed, NoData, read_results, share_of, si  # noqa: E402

COLOURS = ["#d55e00", "#0072b2", "#009e73", "#8e44ad", "#b8860b", "#555555", "#e377c2",
           "#17becf", "#7f4f24", "#6a994e", "#c1121f", "#3a0ca3", "#f4a261", "#111111"]


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
    axis.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8.5)
    axis.legend(fontsize=7.8, loc="upper left", bbox_to_anchor=(1.0, 1.03), frameon=False,
                handletextpad=0.1, labelspacing=0.35, borderaxespad=0.2)


def point(row, name):
    moved = row.bytes_measured or row.bytes_predicted
    return row.flops / moved if moved else None, row.gflops, name


def caption(fig, rows, title):
    commits = sorted({row.commit for row in rows if row.commit})
    days = sorted({row.date[:10] for row in rows if row.date})
    shown = ", ".join(commits[:2]) + (" ..." if len(commits) > 2 else "")
    fig.text(0.01, 0.988, title, fontsize=10, va="top", weight="bold")
    fig.text(0.01, 0.01, f"{'; '.join(sorted({row.machine for row in rows}))}\n"
             f"commit {shown}, {' to '.join(dict.fromkeys(days[:1] + days[-1:]))}",
             fontsize=7, color="#555555", va="bottom")


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
        axis.set_xlabel("flops a byte", fontsize=9)
    caption(fig, chosen, f"Attention on the CPU under its roofs: {shape_of(chosen)}")
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
              [point(row, row.variant if row.stage in ("5", "peer")
                     else f"{row.stage} {row.variant}") for row in chosen],
              highest([row for row in gpu if row.dtype == dtype], ("fma", "gemm")), slope,
              1000)
        axis.set_ylabel("TFLOP/s", fontsize=9)
        axis.set_xlabel("flops a byte", fontsize=9)
    caption(fig, [row for _, chosen in groups for row in chosen],
            "Attention on the GPU under its roofs")
    return fig


PLAIN = "naive recompute online fold".split()
RUNGS = ("tiled register_tiled tensor_cores pipelined wgmma specialised ping_pong overlapped "
         "lean persistent fitted optimistic").split()


def arc_rows(rows):
    """(where, measurements) from top to bottom: CPU stages, then GPU rungs and peers."""
    cpu = longest([row for row in rows if row.device == "cpu"
                   and row.stage in ("1", "2", "3", "4", "peer")])
    bars = []
    for stage in ("1", "2", "3", "4", "peer"):
        here = [row for row in cpu if row.stage == stage]
        best = max(here, key=lambda row: row.gflops, default=None)
        bars += [row for row in here if row.variant in PLAIN and row is not best]
        bars += [best] if best else []
    gpu = longest([row for row in rows if row.device == "gpu" and row.dtype == "bf16"])
    float32 = longest([row for row in rows if row.device == "gpu" and row.dtype == "f32"
                       and row.stage == "5"])
    rungs = sorted([row for row in gpu + float32 if row.variant in RUNGS],
                   key=lambda row: RUNGS.index(row.variant))
    peers = sorted([row for row in gpu if row.stage == "peer"], key=lambda row: row.gflops)
    return [("CPU", bars), ("GPU", rungs + peers)]


def draw_arc(rows):
    groups = [(where, bars) for where, bars in arc_rows(rows) if bars]
    everything = [row for _, bars in groups for row in bars]
    if not everything:
        raise NoData("no measurement of attention")
    tall = 1.4 + 0.22 * len(everything) + 0.3 * len(groups)
    fig = plt.figure(figsize=(8, tall))
    axis = fig.add_axes([0.265, 0.85 / tall, 0.715, 1 - 1.2 / tall])
    place, names, places = 0, [], []
    colours = {"1": "#b8860b", "2": "#d55e00", "3": "#009e73", "4": "#0072b2",
               "5": "#8e44ad", "peer": "#777777"}
    least = min(row.gflops for row in everything)
    for where, bars in groups:
        axis.text(least / 2, place - 0.75, f"{where}: {shape_of(bars)}", fontsize=8.5,
                  va="center", weight="bold")
        for row in bars:
            axis.barh(place, row.gflops, height=0.74, color=colours[row.stage])
            share = f", {share_of(row)}" if row.pct_ceiling else ""
            inside = row.gflops > 30 * least
            axis.text(row.gflops * (0.92 if inside else 1.1), place,
                      f"{significant(row.gflops)}{share}", fontsize=8, va="center",
                      ha="right" if inside else "left", color="white" if inside else "black")
            if row.ceiling:
                axis.plot([row.ceiling] * 2, [place - 0.5, place + 0.5], color="black",
                          linewidth=1, linestyle=":")
            rung = f" {RUNGS.index(row.variant) + 1}" if row.stage == "5" else ""
            stage = "" if row.stage == "peer" else f"{row.stage}{rung and '.'}{rung.strip()} "
            names.append(f"{stage}{row.variant} ({where}, {row.dtype})")
            places.append(place)
            place += 1
        place += 1.3
    axis.set_xscale("log")
    axis.set_xlim(least / 2, max(row.gflops for row in everything) * 2)
    axis.set_yticks(places)
    axis.set_yticklabels(names, fontsize=8)
    axis.set_ylim(place - 1.7, -1.2)
    axis.set_xlabel("GFLOP/s, and percent of the ceiling (dotted)", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=8.5)
    axis.tick_params(axis="y", length=0)
    caption(fig, everything, "Attention: every stage, every rung, and PyTorch")
    return fig


def significant(value):
    """'3.57', '821 000': three digits."""
    digits = max(0, 2 - int(f"{value:e}".split("e")[1]))
    rounded = float(f"{value:.2e}")
    return f"{rounded:.{digits}f}" if digits else f"{rounded:,.0f}".replace(",", " ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--machine", default="", help="part of the machine's name")
    arguments = parser.parse_args()
    rows, drawn = read_results(arguments.results, arguments.machine), 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    jobs = {"arc": draw_arc, "roofline_cpu": draw_cpu, "roofline_gpu": draw_gpu}
    for name, draw in jobs.items():
        path = arguments.out / f"{name}.png"
        try:
            fig = draw(rows)
        except NoData as missing:
            print(f"roofline.py: {path.name} not drawn: {missing}")
            continue
        fig.savefig(path, dpi=200, metadata={"Software": None})
        plt.close(fig)
        drawn += 1
        print(f"roofline.py: {path}")
    return 0 if drawn else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"roofline.py: {error}", file=sys.stderr)
        sys.exit(2)
