"""rooflines.py: what limits attention: intensity against rate, under two roofs."""
from ladder import listed, number_of
from registry import figure
from results import NoData, each, is_square, need
from style import (COLOURS, caption, label_ends, matplotlib, name_of, new_figure, offset, plain,
                   stacked)
from words import si, significant


def by_theory(row):
    """Flops per byte that the variant moves by its own model."""
    return row.flops / row.bytes_predicted


def at_least(row):
    """Flops per byte if q, k, v and o move once, whatever a cache has to serve."""
    size = 4 if row.dtype == "f32" else 2
    rows = row.heads_q * row.seqlen_q + row.heads_kv * row.seqlen_k
    return row.flops / (size * row.batch * rows * (row.head_dim + row.head_dim_v))


def highest(rows, *kinds):
    """The highest ceiling of these kinds, or None."""
    found = rows[rows.ceiling_kind.isin(kinds)].ceiling.max()
    return found if found > 0 else None


def square_lines(rows):
    """{(stage, variant): rows by length} of square attention without mask, all of the head_dim
    that most variants were measured at; of several batches the largest."""
    rows = rows[(rows.op == "attention") & (rows.gflops > 0) & (rows.flops > 0)
                & (rows.bytes_predicted > 0) & is_square(rows) & (rows.causal == 0)]
    rows = need(rows, "no measurement of square attention")
    done = rows.groupby("head_dim").variant.nunique()
    width = max(done.index, key=lambda d: (done[d], d == 128, -d))
    rows = rows[(rows.head_dim == width) & rows.length.map(lambda n: int(n) & int(n) - 1 == 0)]
    rows = rows.sort_values(["length", "heads_q", "batch"], kind="stable")
    rows = rows.drop_duplicates(["stage", "variant", "length"], keep="last")
    return {key: each(line) for key, line in rows.groupby(["stage", "variant"])}


def roofline(axis, lines, intensity, flat, slope, unit):
    """Lines (rows by length, name, colour, style) under a flat roof of `flat` GFLOP/s and a
    slanted one of `slope` GB/s; rates in `unit` of GFLOP/s."""
    points = [(intensity(row), row.gflops) for rows, *_ in lines for row in rows]
    ridge = flat / slope if flat and slope else None
    xs = [x for x, _ in points] + ([ridge] if ridge else [])
    rates = [y / unit for _, y in points] + ([flat / unit] if flat else [])
    low, high = min(xs) / 2, max(xs) * 2
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    axis.set_ylim(min(rates) / 2, max(rates) * 2)
    ends = []
    if ridge:
        axis.plot([low, ridge, high], [low * slope / unit, flat / unit, flat / unit],
                  color="black", linewidth=1.3)
        speed = f"{slope:.0f} GB/s" if slope < 1e3 else f"{slope / 1e3:.1f} TB/s"
        middle = (low * ridge) ** 0.5
        offset(axis, f"memory, {speed}", (middle, middle * slope / unit), (7, -7))
        ends.append((high, flat / unit, f"multiply-adds, {significant(flat / unit)}", "black"))
    for rows, name, colour, style in lines:
        x, y = [intensity(row) for row in rows], [row.gflops / unit for row in rows]
        axis.plot(x, y, style, color=colour, markersize=3, linewidth=1.2)
        axis.plot(x[-1], y[-1], "o", color=colour, markersize=5.5)
        end = x[-1], y[-1], f"{name}, {significant(y[-1])}", colour
        if x[-1] > max(xs) / 8:
            ends.append(end)
        else:  # far from the edge: beside the point, or below where another is at its right
            right = all(intensity(other[-1]) <= x[-1] or not 0.7 < other[-1].gflops / unit / y[-1]
                        < 1.4 or intensity(other[-1]) > max(xs) / 8 for other, *_ in lines)
            offset(axis, end[2], end[:2], (5, 8) if right else (0, -11), color=colour,
                   ha="left" if right else "center")
    axis.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    plain(axis)
    label_ends(axis, ends)


ROOFS = ("A line is one method from few keys to many; its last point is large, its name says that "
         "rate. With more keys each one is reused by more queries.\nSlanted roof: the memory's "
         "highest measured bytes per second. Flat roof: the highest measured flops per second.")


def lengths_text(lines):
    rows = [row for line in lines.values() for row in line]
    first, last = (si(pick(row.length for row in rows)) for pick in (min, max))
    return f"head_dim {rows[0].head_dim:.0f}, {first} to {last} keys"


@figure("roofline_cpu.png", "ladder")
def roofline_cpu(data):
    """What limits attention on the CPU: the plain and the fastest variant of each stage."""
    rows = data.rows[data.rows.device == "cpu"]
    known = square_lines(rows)
    lines, used = [], {}
    for stage in "1234":
        mine = {name: line for (of, name), line in known.items() if of == stage}
        place = listed(stage)
        for name in dict.fromkeys((
                min(mine, key=lambda name: place.get(name, len(place)), default=None),
                max(mine, key=lambda name: mine[name][-1].gflops, default=None))):
            if name:
                plainest = place.get(name, 1) == 0
                lines.append((mine[name], f"{stage} {name}", COLOURS[stage],
                              "o--" if plainest else "o-"))
                used[stage, name] = mine[name]
    drawn, axis = new_figure(5.2, right=0.78, bottom=0.215)
    roofline(axis, lines, by_theory, highest(rows, "fma"), highest(rows, "copy", "read"), 1)
    axis.set_xlabel("flops per byte that the variant moves, by theory")
    axis.set_ylabel("GFLOP/s")
    caption(drawn, [row for line in used.values() for row in line],
            f"What limits attention on the CPU? {lengths_text(used)}",
            ROOFS + "\nDashed: the plain variants.")
    return drawn


@figure("roofline_gpu.png", "ladder")
def roofline_gpu(data):
    """What limits attention on the GPU: some rungs and the libraries, float32 and 16 bits."""
    gpu = data.rows[data.rows.device == "gpu"]
    panels = []
    for dtype, title in (("f32", "float32"), ("bf16", "bfloat16")):
        rows = gpu[gpu.dtype == dtype]
        try:
            known = square_lines(rows)
        except NoData:
            continue
        rungs = sorted((key for key in known if number_of(key[1]) != key[1]),
                       key=lambda key: int(number_of(key[1])))
        shown = rungs if len(rungs) < 5 else [rungs[0], rungs[len(rungs) // 4],
                                              rungs[len(rungs) // 3], rungs[-1]]
        shown = shown + [key for key in known if key[0] == "peer"]
        lines = [(known[key], (f"{number_of(key[1])} " if key in rungs else "")
                  + name_of(known[key][0]), COLOURS[key[0]], "o--" if key[0] == "peer" else "o-")
                 for key in shown]
        panels.append((title, rows, lines, {key: known[key] for key in shown}))
    need(panels, "no measurement of attention on a GPU with its bytes")
    drawn, axes = stacked(len(panels), 3.5, right=0.76)
    for axis, (title, rows, lines, used) in zip(axes, panels):
        roofline(axis, lines, at_least, highest(rows, "fma", "gemm"),
                 highest(gpu, "copy", "read"), 1000)
        axis.set_xlabel("flops per byte of q, k, v and o, each moved once")
        axis.set_title(f"{title}, {lengths_text(used)}", fontsize=8.5, loc="left")
        axis.set_ylabel("TFLOP/s")
    caption(drawn, [row for *_, used in panels for row in [row for line in used.values() for row in line]],
            "What limits attention on the GPU?", ROOFS)
    return drawn
