"""plot_arc.py: attention in every stage, every rung and the libraries, one shape.

For plot.py.  A line a variant: its speed as a dot on a logarithmic axis, beside it the speed
in words and the factor to the line above.  Of stages 1 to 4 first the plain variants, then
the fastest.
"""
from ladder import number_of
from results import NoData, listed, si
from style import COLOURS, caption, name_of, plain, plt


def speed_text(gflops):
    """'10.3 GFLOP/s', '794 TFLOP/s': three digits, TFLOP/s from 1000 GFLOP/s on."""
    value, unit = (gflops, "GFLOP/s") if gflops < 999.5 else (gflops / 1000, "TFLOP/s")
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f} {unit}"


def shape_of(rows):
    """(head_dim, length) without mask at which most stages, of these most plain variants, then
    most rungs and libraries were measured; of equals the longest."""
    done, first = {}, {(stage, name) for stage in "1234"
                       for name, place in listed(stage).items() if place == 0}
    for row in rows:
        if row.op == "attention" and row.gflops and not row.causal \
                and row.seqlen_q == row.seqlen_k and row.device in ("cpu", "gpu"):
            done.setdefault((row.head_dim, row.length), set()).add((row.stage, row.variant))
    if not done:
        raise NoData("no measurement of attention")
    return max(done, key=lambda key: (
        len({stage for stage, _ in done[key]}), len(done[key] & first),
        len([variant for stage, variant in done[key] if stage in ("5", "peer")]), key[1]))


def arc_groups(rows):
    """(title, measurements) of the shape, the rungs in the order of the stage's list, the
    libraries of a group last."""
    head_dim, length = shape_of(rows)
    most = {}  # of a variant measured on several batches the largest, rungs in their type
    for row in sorted(rows, key=lambda row: (row.dtype == "bf16", row.flops or 0)):
        if row.op == "attention" and row.gflops and not row.causal and length == \
                row.seqlen_q == row.seqlen_k and head_dim == row.head_dim:
            most[row.stage, row.variant, row.device] = row
    here = list(most.values())

    def libraries(device):
        found = [row for row in here if (row.stage, row.device) == ("peer", device)
                 and row.variant != "pytorch-math" and (device == "cpu" or row.dtype != "f32")]
        return sorted(found, key=lambda row: row.gflops)
    plainest, fastest = [], []
    for stage in "1234":
        mine, place = [r for r in here if (r.stage, r.device) == (stage, "cpu")], \
            listed(stage)
        if mine:
            plainest.append(min(mine, key=lambda row: place.get(row.variant, len(place))))
            fastest.append(max(mine, key=lambda row: row.gflops))
    rungs = sorted([row for row in here if (row.stage, row.device) == ("5", "gpu")
                    and number_of(row.variant) != row.variant],
                   key=lambda row: int(number_of(row.variant)))
    return [(title, group) for title, group in (
        ("CPU, plain C", plainest), ("CPU, the fastest", fastest + libraries("cpu")),
        ("GPU, float32", [row for row in rungs if row.dtype == "f32"]),
        ("GPU, bfloat16", [row for row in rungs if row.dtype != "f32"] + libraries("gpu")))
        if group]


def label_of(row):
    """'3 online' and '5.3 tensor_cores'; a library's name."""
    if row.stage == "peer":
        return name_of(row)
    rung = f".{number_of(row.variant)}" if row.stage == "5" else ""
    cores = f", {row.threads:.0f} cores" if (row.threads or 0) > 1 else ""
    return f"{row.stage}{rung} {row.variant}{cores}"


def draw_line(axis, place, row, factor, left):
    """One dot with its ceiling and its label, at the dot's left or right."""
    colour = COLOURS[row.stage]
    axis.plot(row.gflops, place, "D" if row.stage == "peer" else "o", color=colour,
              markersize=6)
    if row.ceiling:
        axis.plot(row.ceiling, place, "|", color="black", markersize=11, zorder=1)
    axis.annotate(speed_text(row.gflops) + factor, (row.gflops, place),
                  (-8 if left else 8, 0), textcoords="offset points", fontsize=8,
                  va="center", ha="right" if left else "left", color=colour, zorder=2,
                  bbox={"color": "white", "pad": 0.5, "linewidth": 0})


def draw_arc(rows):
    """The dot plot."""
    groups = arc_groups(rows)
    lines = [row for _, group in groups for row in group]
    tall = 1.15 + 0.2 * len(lines) + 0.26 * len(groups)
    figure = plt.figure(figsize=(8, tall))
    axis = figure.add_axes([0.225, 0.77 / tall, 0.72, 1 - 1.1 / tall])
    least = min(row.gflops for row in lines)
    place, ticks, before = 0, [], None
    for title, group in groups:
        axis.annotate(title, (0, place), (-8, 0), xycoords=("axes fraction", "data"),
                      textcoords="offset points", fontsize=8.5, weight="bold", ha="right",
                      va="center")
        for row in group:
            place += 1
            ladder = row.stage == "5" and before and before.stage == "5"
            known = before and row.stage != "peer" and (row is not group[0] or ladder)
            times = row.gflops / before.gflops if known else 0
            factor = f"  ({times:.{2 if times < 2 else 1}f}×)" if known else ""
            draw_line(axis, place, row, factor, row.gflops > 6 * least
                      and row.device == "cpu" or row.gflops > 3e3 * least)
            ticks.append((place, label_of(row)))
            before = row
        place += 1.25
    low, high = least / 2, 1.5 * max(max(row.gflops, row.ceiling or 0) for row in lines)
    marks = [10 ** n for n in range(0, 9) if low <= 10 ** n <= high]
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    axis.set_xticks(marks)
    axis.set_xticklabels([f"{n if n < 1000 else n // 1000} {'G' if n < 1000 else 'T'}FLOP/s"
                          for n in marks])
    axis.minorticks_off()
    plain(axis)
    axis.grid(False, axis="y")
    axis.set_yticks([n for n, _ in ticks])
    axis.set_yticklabels([text for _, text in ticks], fontsize=8)
    axis.set_ylim(place - 0.5, -0.7)
    axis.tick_params(axis="y", length=0)
    heads = {}
    for row in lines:
        heads.setdefault("GPU" if row.device == "gpu" else "CPU", row.batch * row.heads_q)
    work = ", ".join(f"{n:.0f} head{'s' if n > 1 else ''} on the {where}"
                     for where, n in heads.items())
    caption(figure, lines, f"How fast is attention after each step? {si(lines[0].length)} keys "
            f"and queries, head_dim {lines[0].head_dim:.0f}",
            f"(2.5×): 2.5 times as fast as the line above. {work}. Bar: the ceiling of the "
            "same run, multiply-adds\nfrom registers on the CPU, a cuBLAS matrix product on "
            "the GPU.")
    return figure
