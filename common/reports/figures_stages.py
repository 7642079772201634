"""figures_stages.py: the stages beside each other: speed and memory."""
from ladder import listed, number_of
from registry import figure
from results import best_lines, describe_work, each, need, same_work
from style import (COLOURS, caption, label_ends, length_axis, name_of, new_figure, offset, plain,
                   plt, value_axis)
from words import si


@figure("arc.png", "bench")
def arc(data):
    """Every stage, every rung and the libraries at one length."""
    groups = arc_groups(data.rows)
    lines = [row for _, group in groups for row in group]
    tall = 1.15 + 0.2 * len(lines) + 0.26 * len(groups)
    drawn = plt.figure(figsize=(8, tall))
    axis = drawn.add_axes([0.225, 0.77 / tall, 0.72, 1 - 1.1 / tall])
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
            draw_dot(axis, place, row, factor, row.gflops > 6 * least
                     and row.device == "cpu" or row.gflops > 3e3 * least)
            ticks.append((place, arc_label(row)))
            before = row
        place += 1.25
    low, high = least / 5, 1.5 * max(max(row.gflops, row.ceiling) for row in lines)
    marks = [10 ** n for n in range(0, 9) if low <= 10 ** n <= high]
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    axis.set_xticks(marks)
    axis.set_xticklabels([f"{n if n < 1000 else n // 1000} {'G' if n < 1000 else 'T'}FLOP/s"
                          for n in marks])
    axis.minorticks_off()
    plain(axis, "x")
    axis.set_yticks([n for n, _ in ticks])
    axis.set_yticklabels([text for _, text in ticks], fontsize=8)
    axis.set_ylim(place - 0.5, -0.7)
    axis.tick_params(axis="y", length=0)
    heads = {}
    for row in lines:
        heads.setdefault("GPU" if row.device == "gpu" else "CPU", row.batch * row.heads_q)
    work = ", ".join(f"{n:.0f} head{'s' if n > 1 else ''} on the {where}"
                     for where, n in heads.items())
    caption(drawn, lines, f"How fast is attention after each step? {si(lines[0].length)} keys "
            f"and queries, head_dim {lines[0].head_dim:.0f}",
            f"(2.5×): 2.5 times as fast as the line above. {work}. Bar: the ceiling of the "
            "same run, multiply-adds\nfrom registers on the CPU, a cuBLAS matrix product on "
            "the GPU.")
    return drawn


def arc_shape(rows):
    """(head_dim, length) without mask at which most stages, of these most plain variants, then
    most rungs and libraries were measured; of equals the longest."""
    first = {(stage, name) for stage in "1234"
             for name, place in listed(stage).items() if place == 0}
    done = {}
    for row in each(rows):
        done.setdefault((row.head_dim, row.length), set()).add((row.stage, row.variant))
    return max(done, key=lambda key: (
        len({stage for stage, _ in done[key]}), len(done[key] & first),
        len([variant for stage, variant in done[key] if stage in ("5", "peer")]), key[1]))


def arc_groups(rows):
    """(title, measurements) of the shape, the rungs in the order of the stage's list, the
    libraries of a group last."""
    rows = rows.query("op == 'attention' and gflops > 0 and causal == 0 and "
                      "seqlen_q == seqlen_k and device in ('cpu', 'gpu')")
    shape = arc_shape(need(rows, "no measurement of attention"))
    rows = rows[(rows.head_dim == shape[0]) & (rows.length == shape[1])]
    most = {}  # of a variant measured on several batches the largest, rungs in their type
    for row in sorted(each(rows), key=lambda row: (row.dtype == "bf16", row.flops)):
        most[row.stage, row.variant, row.device] = row
    here = list(most.values())

    def libraries(device):
        found = [row for row in here if (row.stage, row.device) == ("peer", device)
                 and row.variant != "pytorch-math" and (device == "cpu" or row.dtype != "f32")]
        return sorted(found, key=lambda row: row.gflops)
    plainest, fastest = [], []
    for stage in "1234":
        mine = [row for row in here if (row.stage, row.device) == (stage, "cpu")]
        if mine:
            place = listed(stage)
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


def arc_label(row):
    """'3 online' and '5.3 tensor_cores'; a library's name."""
    if row.stage == "peer":
        return name_of(row)
    rung = f".{number_of(row.variant)}" if row.stage == "5" else ""
    cores = f", {row.threads:.0f} cores" if row.threads > 1 else ""
    return f"{row.stage}{rung} {row.variant}{cores}"


def draw_dot(axis, place, row, factor, left):
    """One dot with its ceiling and its label, at the dot's left or right."""
    colour = COLOURS[row.stage]
    value, unit = (row.gflops, "GFLOP/s") if row.gflops < 999.5 else (row.gflops / 1000, "TFLOP/s")
    speed = f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f} {unit}"
    axis.plot(row.gflops, place, "D" if row.stage == "peer" else "o", color=colour,
              markersize=6)
    if row.ceiling:
        axis.plot(row.ceiling, place, "|", color="black", markersize=11, zorder=1)
    offset(axis, speed + factor, (row.gflops, place), (-8 if left else 8, 0),
           ha="right" if left else "left", color=colour, zorder=2,
           bbox={"color": "white", "pad": 0.5, "linewidth": 0})


@figure("memory.png", "bench")
def memory(data):
    """Peak memory of attention against length: of each stage its fastest variant."""
    chosen = same_work(data.rows.query("op == 'attention' and peak_bytes > 0 and stage != 'peer'"))
    drawn, axis = new_figure(4.4, bottom=0.22)
    ends, used = [], []
    for label, line in best_lines(chosen).items():
        x, y = [row.length for row in line], [row.peak_bytes / (1 << 20) for row in line]
        wide = 3.4 - 0.45 * int(line[0].stage)  # earlier ones wider, so that equal lines show
        axis.plot(x, y, color=COLOURS[line[0].stage], linewidth=wide, markersize=2.6 + wide,
                  marker="s" if "(GPU)" in label else "o",
                  linestyle="--" if "(on CPU)" in label else "-")
        ends.append((x[-1], y[-1], label, COLOURS[line[0].stage]))
        used += line
    length_axis(axis, [row.length for row in used], "keys, and as many queries")
    value_axis(axis, [row.peak_bytes / (1 << 20) for row in used], "MiB")
    label_ends(axis, ends)
    steps = " The driver of a GPU gives memory in steps of 2 MiB." \
        if any(row.device == "gpu" for row in used) else ""
    caption(drawn, used, f"Which stages store the scores? Memory of {describe_work(each(chosen)[0])}",
            "Inputs, outputs and what the variant needs beside them." + steps)
    return drawn
