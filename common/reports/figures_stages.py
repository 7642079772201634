"""figures_stages.py: the stages against the length and beside each other, theory against
measurement, and the rooflines."""
import collections

from ladder import listed, number_of
from registry import figure
from results import NoData, best_lines, describe_work, each, is_square, need, same_work
from style import (COLOURS, GREY, caption, label_ends, length_axis, matplotlib, name_of,
                   new_figure, offset, plain, plt, stacked, value_axis)
from words import si, significant

KEYS = "keys, and as many queries"


# --- Against the length: of every stage its fastest variant on the same work ---

def style_of(label):
    """How a line of best_lines() looks; earlier stages are wider, so that equal lines show."""
    stage = label.split()[0]
    wide = 3.4 - 0.45 * int(stage) if stage in COLOURS else 1.2
    return {"color": COLOURS.get(stage, COLOURS["peer"]), "linewidth": wide,
            "markersize": 2.6 + wide,
            "marker": "s" if "(GPU)" in label else "o",
            "linestyle": "-" if stage in COLOURS and "(on CPU)" not in label else "--"}


def draw_lines(axis, lines, value, unit, name, ceilings=()):
    """Lines of best_lines() with labels at their ends; ceilings: (height, text)."""
    values, ends = [], []
    for label, rows in lines.items():
        x, y = [row.length for row in rows], [value(row) for row in rows]
        axis.plot(x, y, **style_of(label))
        text = f"{name_of(rows[-1])} ({rows[-1].on})" if rows[-1].stage == "peer" else label
        ends.append((x[-1], y[-1], text, style_of(label)["color"]))
        values += y
    lengths = [row.length for rows in lines.values() for row in rows]
    for height, text in ceilings:
        axis.axhline(height, color="black", linewidth=1, linestyle=":")
        ends.append((max(lengths), height, text, "black"))
        values.append(height)
    length_axis(axis, lengths, name)
    value_axis(axis, values, unit)
    label_ends(axis, ends)


def rows_of(lines):
    return [row for line in lines.values() for row in line]


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
    low, high = least / 2, 1.5 * max(max(row.gflops, row.ceiling) for row in lines)
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


@figure("length.png", "bench")
def length(data):
    """Time and throughput of attention against length, every stage on the same work."""
    rows = data.rows
    chosen = same_work(rows[(rows.op == "attention") & (rows.gflops > 0)])
    lines = best_lines(chosen, "median_s")
    drawn, axes = stacked(2, 3.25, gap=0.3)
    draw_lines(axes[0], lines, lambda row: row.median_s, "seconds", KEYS)
    peaks = {}
    for row in rows_of(lines):
        if row.ceiling and row.ceiling_kind in ("fma", "gemm"):
            what = "multiply-adds" if row.ceiling_kind == "fma" else "GEMM"
            peak = f"{row.on[-3:]} ceiling: {what}"
            peaks[peak] = max(row.ceiling, peaks.get(peak, 0))
    draw_lines(axes[1], lines, lambda row: row.gflops, "GFLOP/s", KEYS,
               [(height, text) for text, height in peaks.items()])
    caption(drawn, rows_of(lines),
            f"How does time grow with the length? {describe_work(each(chosen)[0])}",
            "The fastest variant of each stage. Ceilings: multiply-adds from registers (CPU), "
            "a cuBLAS matrix product (GPU).")
    return drawn


LIMITS = {"copy": "a copy of the array", "exp": "exponentials", "fma": "multiply-adds"}


def limit_share(row):
    """Percent of the speed at which the machine copies the array, or of its multiply-adds.  A
    copy reads and writes each element once, as softmax must: whatever a stage moves more
    lowers its share, and a cache that saves it raises none above 100."""
    if row.ceiling_kind == "copy" and row.ceiling and row.rows:
        return 100 * 8 * row.rows * row.cols / row.median_s / 1e9 / row.ceiling
    return row.pct_ceiling


@figure("ceiling.png", "bench")
def ceiling(data):
    """How near each stage comes to the machine's limit, against the length."""
    panels = []
    for op in ("softmax", "attention"):
        known = data.rows[(data.rows.op == op) & (data.rows.pct_ceiling > 0)
                          & (data.rows.on != "on CPU")]
        on_cpu = known[known.device == "cpu"]  # a GPU's softmax has a figure of its own
        known = on_cpu if len(on_cpu) else known
        if len(known):
            chosen = same_work(known)
            panels.append((chosen, best_lines(chosen, "median_s")))
    need(panels, "no measurement has pct_ceiling")
    drawn, axes = stacked(len(panels), 2.9)
    for axis, (chosen, lines) in zip(axes, panels):
        is_softmax = chosen.op.iloc[0] == "softmax"
        kinds = sorted({row.ceiling_kind for row in rows_of(lines)})
        limit = ", ".join(LIMITS.get(kind, kind) for kind in kinds)
        draw_lines(axis, lines, limit_share, "percent of the limit",
                   "columns" if is_softmax else KEYS, [(100, f"limit: {limit}")])
        axis.set_yscale("linear")
        axis.set_ylim(0, 108)
        axis.set_title(describe_work(each(chosen)[0]), fontsize=8.5, loc="left")
    caption(drawn, [row for _, lines in panels for row in rows_of(lines)],
            "How near does each stage come to the limit of the CPU?",
            "The fastest variant of each stage. The limits were measured in the same run: copying "
            "the array, which softmax cannot beat; multiply-adds\nfrom registers on all cores. "
            "A loop more over a row costs the share that it moves, unless a cache serves it.")
    return drawn


@figure("memory.png", "bench")
def memory(data):
    """Peak memory of attention against length."""
    rows = data.rows
    chosen = same_work(rows[(rows.op == "attention") & (rows.peak_bytes > 0)])
    lines = best_lines(chosen, "median_s")
    drawn, axis = new_figure(4.4, bottom=0.22)
    draw_lines(axis, lines, lambda row: row.peak_bytes / (1 << 20), "MiB", KEYS)
    steps = " The driver of a GPU gives memory in steps of 2 MiB." \
        if any(row.device == "gpu" for row in rows_of(lines)) else ""
    caption(drawn, rows_of(lines),
            f"Which stages store the scores? Memory of {describe_work(each(chosen)[0])}",
            "Inputs, outputs and what the variant needs beside them." + steps)
    return drawn


# --- Theory against measurement ---

@figure("traffic.png", "bench")
def traffic(data):
    """Bytes predicted by theory against bytes measured, with the diagonal."""
    chosen = data.rows.query("bytes_predicted > 0 and bytes_measured > 0")
    need(chosen, "no measurement has bytes_measured")
    drawn, axis = new_figure(5.2, top=0.92, bottom=0.18)
    values = [*chosen.bytes_predicted / 1e9, *chosen.bytes_measured / 1e9]
    wide = max(values) > 10 * min(values)
    low, high = min(values) / 1.5 if wide else 0, max(values) * (1.5 if wide else 1.1)
    axis.plot([low, high], [low, high], color="black", linewidth=1, linestyle=":")
    ends = [(high, high, "measured = predicted", "black")]
    kinds = chosen.op.where(chosen.op.str.contains("softmax"), "attention")
    for (stage, op), points in chosen.groupby([chosen.stage, kinds]):
        last = points.loc[points.bytes_predicted.idxmax()]
        axis.plot(points.bytes_predicted / 1e9, points.bytes_measured / 1e9, linestyle="",
                  marker="o" if op == "softmax" else "^", color=COLOURS[stage],
                  markersize=5, alpha=0.8)
        ends.append((last.bytes_predicted / 1e9, last.bytes_measured / 1e9,
                     f"stage {stage} {op}", COLOURS[stage]))
    if wide:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axis.set_xlabel("GB that the variant's model predicts")
    value_axis(axis, values, "GB that the hardware counted")
    axis.set_xlim(low, high)
    axis.set_ylim(low, high)
    label_ends(axis, ends)
    caption(drawn, each(chosen), "Does the hardware move the bytes that the model predicts?",
            "Below the line: a cache kept what the model reads again.  Above it: scattered "
            "loads, whose sectors came more than once.")
    return drawn


@figure("error.png", "bench")
def error(data):
    """Largest error as a share of the allowed one: a line a stage, device, type and operation, a
    dot a variant, the worst one named.  A NaN is infinitely much."""
    used = data.rows[(data.rows.max_err.notna() | data.rows.wrong) & (data.rows.allowed_err > 0)
                     & (data.rows.stage != "peer")]
    need(used, "no measurement has max_err and allowed_err")
    used = used.assign(share=(used.max_err / used.allowed_err).fillna(float("inf")),
                       kind=used.op.where(used.op.str.contains("softmax"), "attention")
                       .where(~used.op.str.contains("softmax"), "softmax"))
    groups = used.groupby(["stage", "on", "kind", "dtype"])
    drawn, axis = plt.subplots(figsize=(8, 1.3 + 0.2 * len(groups)))
    tall = drawn.get_figheight()
    drawn.subplots_adjust(left=0.23, right=0.97, top=1 - 0.4 / tall, bottom=0.9 / tall)
    ticks = []
    for place, ((stage, on, kind, dtype), rows) in zip(range(len(groups))[::-1], groups):
        shares = rows.groupby("variant", sort=False).share.max()
        for share in shares:
            axis.plot(min(share, 1.3), place, "o", markersize=4.5, alpha=0.75,
                      color=COLOURS[stage] if share <= 1 else "red")
        at, more = min(shares.max(), 1.3), len(shares) - 1
        left = 0.6 < at <= 1  # or the name would cross the limit
        offset(axis, shares.idxmax() + (f" and {more} more" if more else ""), (at, place),
               (-6 if left else 6, 0), fontsize=7.5, ha="right" if left else "left",
               color=COLOURS[stage])
        ticks.append((place, f"{stage}  {kind}, {dtype} ({on})"))
    axis.axvline(1, color="black", linewidth=1)
    axis.set_yticks([place for place, _ in ticks])
    axis.set_yticklabels([text for _, text in ticks], fontsize=8)
    axis.set_ylim(-0.7, len(groups) - 0.3)
    axis.set_xlim(0, 1.4 if used.share.max() > 1 else 1.04)
    axis.set_xlabel("largest error as a share of the allowed error (1: the limit)",
                    fontsize=9)
    plain(axis)
    caption(drawn, each(used), "How close does any variant come to its error limit?",
            "One dot per variant; the name belongs to the one nearest to the limit.")
    return drawn


# --- Rooflines ---

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


@figure("roofline_cpu.png", "roofline")
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
    caption(drawn, rows_of(used), f"What limits attention on the CPU? {lengths_text(used)}",
            ROOFS + "\nDashed: the plain variants.")
    return drawn


@figure("roofline_gpu.png", "roofline")
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
    caption(drawn, [row for *_, used in panels for row in rows_of(used)],
            "What limits attention on the GPU?", ROOFS)
    return drawn


MATRIX = {"amx": ("#0072b2", "o", "amx, bf16"), "all_cores": ("#d55e00", "s", "all_cores, float32"),
          "PyTorch": (GREY, "x", "PyTorch, bf16")}


def one_core(data):
    """Square attention without a mask on one thread of the machine with a matrix unit; of several
    the one with the most lines."""
    rows = data.all[(data.all.device == "cpu") & (data.all.op == "attention")
                    & data.all.machine.str.contains(data.machine, regex=False)]
    units = rows[(rows.variant == "amx") & (rows.ceiling_kind == "gemm")]
    need(units, "no measurement of amx beside ceiling 'gemm' (measure_cpu.sh CSV matrix)")
    mine = rows[rows.machine.isin(units.machine)]
    mine = mine[mine.machine == mine.machine.value_counts().idxmax()]
    return mine[(mine.threads == 1) & is_square(mine) & (mine.causal == 0)]


@figure("roofline_matrix.png", "roofline")
def roofline_matrix(data):
    """One core's matrix unit: flops per exponential against GFLOP/s.

    A roofline whose scarce resource is not memory but the exponential.  Attention takes one
    exponential and 4 head_dim flops per score, so the intensity is 4 head_dim flops per
    exponential.  Dashed: products and exponentials one after the other."""
    rows = one_core(data)
    matrix, fma, exps = (need([highest(rows, kind)] if highest(rows, kind) else [],
                              f"no ceiling '{kind}' of one core")[0]
                         for kind in ("gemm", "fma", "exp"))
    drawn, axis = new_figure(4.6, right=0.8, top=0.87, bottom=0.2)
    low, high = 16 * 4, 512 * 4
    xs = [low * (high / low) ** (n / 200) for n in range(201)]
    colour = MATRIX["all_cores"][0]
    axis.plot(xs, [min(matrix, exps * x) for x in xs], color="black", linewidth=1.3)
    axis.plot(xs, [1 / (1 / matrix + 1 / (exps * x)) for x in xs], color="black",
              linewidth=0.9, linestyle=(0, (5, 3)))
    axis.plot(xs, [min(fma, exps * x) for x in xs], color=colour, linewidth=1.3)
    offset(axis, "one after the other", (1024, 1 / (1 / matrix + 1 / (exps * 1024))), (0, -15),
           fontsize=8.5, va="baseline")
    for y, text, ink in ((matrix, f"matrix unit, {matrix:.0f}", "black"),
                         (fma, f"float32 units, {fma:.0f}", colour)):
        offset(axis, text, (high, y), (5, 0), fontsize=8.5, color=ink)
    offset(axis, f"exponentials, {exps:.2g} G/s", (low, exps * low), (4, 14), fontsize=8.5,
           rotation=33, va="baseline")
    series = collections.defaultdict(list)
    for row in each(rows):
        name = name_of(row)
        f32 = row.variant == "all_cores" and row.dtype == "f32" and row.heads_q > 1
        if name in ("amx", "PyTorch") and row.dtype == "bf16" or f32:
            scores = row.batch * row.heads_q * row.seqlen_q * row.seqlen_k
            series[name].append((row.flops / scores, row.gflops))
    for name, points in series.items():
        ink, mark, text = MATRIX[name]
        axis.plot(*zip(*sorted(points)), mark, color=ink, markersize=6, linestyle="", label=text)
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
    caption(drawn, each(rows), "What limits attention beside a matrix unit? One core, 2k keys",
            "Flat: the highest measured rate of the products. Slanted: that of the exponentials. "
            "Dashed: one after the other.")
    return drawn
