"""figures_stages.py: the stages beside each other: speed, and what limits them."""
import pandas as pd

from ladder import IN_FLOAT, RUNGS, number_of
from registry import figure
from results import each, need
from style import COLOURS, caption, label_ends, matplotlib, name_of, offset, plain, plt
from tables_ladder import LADDER
from tables_stages import fastest, plainest
from words import rate, si, significant


# --- Speed of every step ---

@figure("arc")
def arc(data):
    """Every stage, every rung and the libraries at one length."""
    groups = arc_groups(with_ladder(data))
    lines = [row for _, group in groups for row in group]
    tall = 1.15 + 0.2 * len(lines) + 0.26 * len(groups)
    drawn = plt.figure(figsize=(8, tall))
    axis = drawn.add_axes([0.225, 0.77 / tall, 0.72, 1 - 1.1 / tall])
    low, high = min(row.gflops for row in lines) / 2.5, 1.5 * max(max(row.gflops, row.ceiling) for row in lines)
    place, ticks, before = 0, [], None
    for title, group in groups:
        offset(axis, title, (low, place), (-8, 0), fontsize=8.5, weight="bold", ha="right")
        for row in group:
            place += 1
            known = before and row.stage != "peer" and (row is not group[0] or before.stage == row.stage == "5")
            times = row.gflops / before.gflops if known else 0
            text = rate(row.gflops) + (f" ({times:.{2 if times < 2 else 1}f}×)" if known else "")
            left = row.gflops > 20 * low and row.device == "cpu" or row.gflops > 2e3 * low  # not on the bar
            axis.plot(row.gflops, place, "D" if row.stage == "peer" else "o", color=COLOURS[row.stage], markersize=6)
            if row.ceiling:
                axis.plot(row.ceiling, place, "|", color="black", markersize=11, zorder=1)
            offset(axis, text, (row.gflops, place), (-7 if left else 7, 0), ha="right" if left else "left", zorder=2,
                   fontsize=7.5, color=COLOURS[row.stage], bbox={"color": "white", "pad": 0.5, "linewidth": 0})
            ticks.append((place, arc_label(row)))
            before = row
        place += 1.25
    marks = [10 ** n for n in range(0, 9) if low <= 10 ** n <= high]
    axis.set(xscale="log", xlim=(low, high), ylim=(place - 0.5, -0.7))
    axis.set_xticks(marks, [f"{n if n < 1000 else n // 1000} {'G' if n < 1000 else 'T'}FLOP/s"
                            for n in marks])
    axis.minorticks_off()
    plain(axis, "x")
    axis.set_yticks(*zip(*ticks), fontsize=8)
    axis.tick_params(axis="y", length=0)
    heads = {("GPU" if row.device == "gpu" else "CPU"): row.batch * row.heads_q
             for row in reversed(lines)}
    work = ", ".join(f"{heads[where]:.0f} head{'s' * (heads[where] > 1)} on the {where}"
                     for where in sorted(heads))
    caption(drawn, lines, f"How fast is attention after each step? {si(lines[0].length)} keys "
            f"and queries, head_dim {lines[0].head_dim:.0f}",
            f"(2.5×): 2.5 times as fast as the line above. {work}. Bar: the ceiling of the "
            "same run, multiply-adds\nfrom registers on the CPU, a cuBLAS matrix product on "
            "the GPU.")
    return drawn


def with_ladder(data):
    """data.stages; where the ladder was measured as a whole in one process, a GPU's rungs are those, and
    the libraries those that ran beside the last rungs."""
    if not (data.directory / LADDER).exists():
        return data.stages
    cold = "regime == 'cold' and layout == 'bhld'"
    return pd.concat([data.lessons,
                      data.file(LADDER).query(f"stage == '5' and {cold}"),
                      data.beside_peers.query(f"stage == 'peer' and {cold}")])


def arc_groups(rows):
    """(title, measurements) at head_dim 64 and the longest length up to 8k that the stages of the CPU
    and the GPU's rungs share; of a variant measured on several batches the largest, rungs in their
    type."""
    rows = rows.query("op == 'attention' and gflops > 0 and causal == 0 and head_dim == 64 and "
                      "seqlen_q == seqlen_k and device in ('cpu', 'gpu') and length <= 8192 and "
                      "variant != 'pytorch-math' and (stage in ('5', 'peer') or device == 'cpu')")
    rows = need(rows, "no measurement of attention").sort_values("flops", kind="stable")
    rows = rows[(rows.stage != "5") | (rows.device == "gpu") & ((rows.dtype == "f32") == rows.variant.isin(IN_FLOAT))]
    ours = rows[rows.stage != "peer"]
    lengths = set.intersection(*(({*part.length}) for _, part in ours.groupby("stage")))
    rows = rows[rows.length == max(need(lengths, "no length of attention that all have done"))].drop_duplicates(
        ["stage", "variant", "device", "dtype"], keep="last")
    cpu, gpu = (each(rows[rows.device == device]) for device in ("cpu", "gpu"))
    stages = sorted({row.stage for row in cpu} - {"peer"})
    ladder = {row.variant: row for row in gpu if row.stage == "5"}

    def libraries(rows):
        return sorted((row for row in rows if row.stage == "peer" and (row.device == "cpu" or row.dtype != "f32")),
                      key=lambda row: row.gflops)
    return [(title, group) for title, group in (
        ("CPU, plain C", [plainest(cpu, stage) for stage in stages]),
        ("CPU, the fastest", [fastest(cpu, stage) for stage in stages] + libraries(cpu)),
        ("GPU, float32", [ladder[name] for name in IN_FLOAT if name in ladder]),
        ("GPU, bfloat16", [ladder[name] for name in RUNGS if name in ladder and name not in IN_FLOAT]
         + libraries(gpu))) if group]


def arc_label(row):
    """'3 online' and '5.3 tensor_cores'; a library's name."""
    if row.stage == "peer":
        return name_of(row)
    rung = f".{number_of(row.variant)}" if row.stage == "5" else ""
    cores = f", {row.threads:.0f} cores" if row.threads > 1 else ""
    return f"{row.stage}{rung} {row.variant}{cores}"


# --- What limits attention: intensity against rate, under two roofs ---

def by_theory(row):
    """Flops per byte that the variant moves by its own model."""
    return row.flops / row.bytes_predicted


def at_least(row):
    """Flops per byte if q, k, v and o move once, whatever a cache has to serve."""
    size = 4 if row.dtype == "f32" else 2
    rows = row.heads_q * row.seqlen_q + row.heads_kv * row.seqlen_k
    return row.flops / (size * row.batch * rows * (row.head_dim + row.head_dim_v))


def square_lines(rows, width):
    """{(stage, variant): rows by length} of square attention without mask of this head_dim; of several
    batches the largest."""
    rows = need(rows.query("op == 'attention' and gflops > 0 and bytes_predicted > 0 and seqlen_q == seqlen_k and "
                           "heads_q == heads_kv and causal == 0 and head_dim == @width"), "no measurement of square attention")
    rows = rows[rows.length.map(lambda n: int(n) & int(n) - 1 == 0)].sort_values(["length", "heads_q", "batch"], kind="stable")
    rows = rows.drop_duplicates(["stage", "variant", "length"], keep="last")
    return {key: each(line) for key, line in rows.groupby(["stage", "variant"])}


def roofline(axis, lines, intensity, flat, slope, unit):
    """Lines (rows by length, name, colour, style) under the highest of the ceilings `flat` in GFLOP/s,
    and a slanted one, the highest of `slope` in GB/s; rates in `unit` of GFLOP/s."""
    flat, slope = flat.ceiling.max() / unit, slope.ceiling.max() / unit
    points = [[(intensity(row), row.gflops / unit) for row in rows] for rows, *_ in lines]
    xs, rates = zip(*sum(points, [(flat / slope, flat)]))
    low, high = min(xs) / 2, max(xs) * 2
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(min(rates) / 2, max(rates) * 2))
    axis.plot([low, flat / slope, high], [low * slope, flat, flat], color="black", linewidth=1.3)
    speed = f"{slope:.0f} GB/s" if unit == 1 else f"{slope:.1f} TB/s"
    offset(axis, f"slanted: memory, {speed}", (flat / slope, flat), (0, 8))
    ends = [(high, flat, f"multiply-adds, {significant(flat)}", "black")]
    for line, (_, name, colour, style) in zip(points, lines):
        axis.plot(*zip(*line), style, color=colour, markersize=3, linewidth=1.2)
        axis.plot(*line[-1], "o", color=colour, markersize=5.5)
        ends.append((*line[-1], f"{name}, {significant(line[-1][1])}", colour))
    for of in (axis.xaxis, axis.yaxis):
        of.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    plain(axis)
    label_ends(axis, ends)


ROOFS = ("A line is one method from few keys to many; its last point is large, its name says that "
         "rate. With more keys each one is reused by more queries.\nSlanted roof: the memory's "
         "highest measured bytes per second. Flat roof: the highest measured flops per second.")


def rooflines(panels, question, note=""):
    """A figure of panels, one below the other: (title, lines, *the rest of roofline()'s arguments)."""
    tall = 0.9 + 3.6 * len(panels)
    drawn, axes = plt.subplots(len(panels), 1, figsize=(8, tall), squeeze=False)
    drawn.subplots_adjust(left=0.09, right=0.76, top=1 - 0.55 / tall, bottom=0.92 / tall, hspace=0.34)
    for axis, (title, lines, intensity, *roofs, unit) in zip(axes[:, 0], panels):
        roofline(axis, lines, intensity, *roofs, unit)
        axis.set(ylabel="GFLOP/s" if unit == 1 else "TFLOP/s", xlabel="flops per byte " + (
            "that the variant moves, by theory" if intensity == by_theory else "of q, k, v and o, each moved once"))
        rows = [row for rows, *_ in lines for row in rows]
        first, last = (si(pick(row.length for row in rows)) for pick in (min, max))
        axis.set_title(f"{title}, head_dim {rows[0].head_dim:.0f}, {first} to {last} keys", fontsize=8.5, loc="left")
    caption(drawn, [row for _, lines, *_ in panels for rows, *_ in lines for row in rows], question, ROOFS + note)
    return drawn


def ceilings(rows, *kinds):
    return need(rows[rows.ceiling_kind.isin(kinds)], f"no ceiling of {kinds[0]}")


@figure("roofline_cpu")
def roofline_cpu(data):
    """What limits attention on the CPU: the plain and the fastest variant of each stage."""
    rows = data.rows[data.rows.device == "cpu"]
    known, lines = square_lines(rows, 64), []
    last = [line[-1] for line in known.values() if len(line) > 2]
    for stage in sorted({row.stage for row in need(last, "no variant at three lengths or more")} & {*"1234"}):
        best = [plainest(last, stage).variant, fastest(last, stage).variant]
        lines += [(known[stage, name], f"{stage} {name}", COLOURS[stage],
                   "o--" if name == best[0] else "o-") for name in dict.fromkeys(best)]
    return rooflines([("float32", lines, by_theory, ceilings(rows, "fma"), ceilings(rows, "copy", "read"), 1)],
                     "What limits attention on the CPU?", "\nDashed: the plain variants.")


@figure("roofline_gpu")
def roofline_gpu(data):
    """What limits attention on the GPU: some rungs and the libraries, float32 and 16 bits."""
    gpu, panels = data.rows[data.rows.device == "gpu"], []
    for dtype, title in (("f32", "float32"), ("bf16", "bfloat16")):
        rows = gpu[gpu.dtype == dtype]
        known = square_lines(rows, 128)
        rungs = need([("5", name) for name in RUNGS if ("5", name) in known], f"no rung in {dtype}")
        rungs = dict.fromkeys(rungs[at] for at in (0, len(rungs) // 4, len(rungs) // 3, -1))
        lines = [(known[key], f"{number_of(key[1])} {key[1]}", COLOURS["5"], "o-") for key in rungs]
        lines += [(line, name_of(line[0]), COLOURS["peer"], "o--") for key, line in known.items() if key[0] == "peer"]
        panels.append((title, lines, at_least, ceilings(rows, "fma", "gemm"), ceilings(gpu, "copy", "read"), 1000))
    return rooflines(panels, "What limits attention on the GPU?")
