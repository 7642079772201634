"""figures_gpu.py: the ladder of stage 5, the libraries beside it, and softmax on a GPU."""
import types

from ladder import FIRST_HOPPER, IN_FLOAT, LAST, ROOF, RUNGS, SPLIT, number_of
from registry import figure
from results import each, is_square, need, work_of
from style import (COLOURS, NAMES, caption, label_ends, length_axis, name_of, new_figure, offset,
                   plain, plt, value_axis)
from tables_gpu import gpu_softmax, is_tuned, ours_of
from tables_ladder import Panels, one_query, read_profile, work_text
from words import si

GEMM = "a cuBLAS matrix product of 8192 × 8192 × 8192 in the same run"
OVER_GEMM = ("It is a yardstick, no bound: under the power limit a kernel that spends less power per "
             "product can pass it.")


def between(first, last, steps):
    """`steps` colours from one to the other, both as six hexadecimal digits."""
    ends = [[int(text[n:n + 2], 16) for n in (0, 2, 4)] for text in (first, last)]
    parts = [step / max(steps - 1, 1) for step in range(steps)]
    return ["#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(*ends))
            for part in parts]


# float32, tensor cores of any GPU, Hopper: from light to dark within each
RUNG_COLOURS = dict(zip(RUNGS, between("c9a227", "8a6d00", len(IN_FLOAT))
                        + between("f6b26b", "c2293f", FIRST_HOPPER - len(IN_FLOAT))
                        + between("9ecae1", "3b0f70", len(RUNGS) - FIRST_HOPPER)))
RUNG_COLOURS[SPLIT] = "#2a9d3a"
PEERS = {"pytorch-cudnn": "#333333", "pytorch-flash": "#666666", "flash-attention-3": "#444444",
         "flash-attention-4": "#222222", "pytorch-efficient": "#888888",
         "pytorch-math": "#888888"}


# --- The last rung and the libraries ---

@figure("flash.png", "bench")
def flash(data):
    """Throughput of 16-bit attention against length: the last rung of stage 5 and the libraries."""
    rows = data.rows.query("op == 'attention' and device == 'gpu' and dtype == 'bf16' and "
                           "seqlen_q == seqlen_k and gflops > 0 and stage in ('5', 'peer')")
    rows = rows[is_tuned(rows)] if is_tuned(rows).any() else rows  # others have their own tables
    lengths = rows.groupby(["head_dim", "causal"]).length.nunique()
    panels = list(lengths[lengths > 1].index)
    need(panels, "no bf16 measurement of stage 5 on a GPU at several lengths")
    dims = sorted({dim for dim, _ in panels})
    tall = 1.05 + 2.5 * len(dims)
    drawn, axes = plt.subplots(len(dims), 2, figsize=(8, tall), squeeze=False)
    drawn.subplots_adjust(left=0.07, right=0.835, top=1 - 0.55 / tall,
                          bottom=1.05 / tall, wspace=0.78, hspace=0.42)
    used = []
    for row, dim in zip(axes, dims):
        for causal, axis in enumerate(row):
            here = rows[(rows.head_dim == dim) & (rows.causal == causal)]
            if (dim, causal) in panels:
                used += flash_panel(axis, here)
                axis.set_title(f"head_dim {dim:.0f}{', causal' if causal else ''}",
                               fontsize=8.5, loc="left")
            else:
                axis.axis("off")
    sizes = {work_of(row).size for row in used}
    tokens = f", {si(sizes.pop())} tokens" if len(sizes) == 1 else ""
    caption(drawn, used, f"The last rung and the libraries: attention, bf16{tokens}",
            f"Dotted: {GEMM}.\n{OVER_GEMM} Every rung by length: crossover.png.")
    return drawn


def flash_panel(axis, rows):
    """One panel: lines of the libraries, and of our variant with the most lengths, of equals the
    last rung.  Returns the rows drawn."""
    lines = {key: each(line.sort_values("length")) for key, line in
             rows.groupby(["stage", "variant"], sort=False)}
    best = max((key for key in lines if key[0] == "5"), default=None, key=lambda key: (
        len(lines[key]), key[1] == LAST, lines[key][-1].gflops))
    lines = {key: line for key, line in lines.items() if key == best or key[0] == "peer"}
    ends = []
    for (stage, _), line in lines.items():
        axis.plot([row.length for row in line], [row.gflops / 1000 for row in line],
                  "s-" if stage == "5" else "s--", color=COLOURS[stage], linewidth=1.4,
                  markersize=3)
        ends.append((line[-1].length, line[-1].gflops / 1000, name_of(line[-1]),
                     COLOURS[stage]))
    used = [row for line in lines.values() for row in line]
    values, ceiling = [row.gflops / 1000 for row in used], rows.ceiling.max() / 1000
    if ceiling > 0:
        axis.axhline(ceiling, color="black", linewidth=1, linestyle=":")
        ends.append((rows.length.max(), ceiling, "cuBLAS GEMM", "black"))
        values.append(ceiling)
    length_axis(axis, [row.length for row in used], "keys")
    value_axis(axis, [max(values)], "TFLOP/s")
    label_ends(axis, ends)
    return used


@figure("ladder.png", "bench")
def ladder(data):
    """Bars: every variant of stage 5 and its peers at one length."""
    rows = data.rows.query("op == 'attention' and device == 'gpu' and gflops > 0 and causal == 0 "
                           "and head_dim == head_dim_v and stage in ('5', 'peer')")
    rows = need(rows[is_square(rows)], "no measurement of stage 5 on a GPU")
    order = {name: n for n, name in enumerate(rows.variant.unique())}
    order.update({name: n - len(RUNGS) for n, name in enumerate(RUNGS)})
    kinds = rows.sort_values("gflops", kind="stable").drop_duplicates(
        ["head_dim", "length", "variant", "dtype"], keep="last")
    many = kinds.groupby(["head_dim", "length"]).size()
    dim, length = max(many.index, key=lambda key: (many[key], key))
    group = sorted(each(kinds[(kinds.head_dim == dim) & (kinds.length == length)]),
                   key=lambda r: (r.stage == "peer", r.dtype != "f32", order[r.variant], r.dtype))
    values = [row.gflops / 1000 for row in group]
    drawn, axis = plt.subplots(figsize=(8, 1.55 + 0.24 * len(group)))
    tall = drawn.get_figheight()
    drawn.subplots_adjust(left=0.2, right=0.95, top=1 - 0.62 / tall, bottom=0.95 / tall)
    places = range(len(group))[::-1]
    axis.barh(places, values, height=0.72, color=[COLOURS[row.stage] for row in group])
    ceilings = {}
    for row in group:
        if row.ceiling:
            ceilings[row.dtype] = max(row.ceiling / 1000, ceilings.get(row.dtype, 0))
    top = max(values + list(ceilings.values()))
    for place, row, value in zip(places, group, values):
        share = f" ({row.pct_ceiling:.0f} %)" if row.pct_ceiling else ""
        inside = value > 0.75 * top
        axis.text(value + (-1 if inside else 1) * 0.008 * top, place, f"{value:.3g}{share}",
                  va="center", ha="right" if inside else "left", fontsize=8,
                  color="white" if inside else "black",
                  bbox=None if inside else {"color": "white", "pad": 0.8})
    for dtype, height in ceilings.items():
        axis.axvline(height, color="black", linewidth=1, linestyle=":")
        axis.text(height, len(group) - 0.25, f"GEMM, {dtype}", fontsize=8, ha="center")
    axis.set_yticks(list(places))
    axis.set_yticklabels([f"{name_of(row)}, {row.dtype}" for row in group], fontsize=8)
    axis.set_xlim(0, 1.04 * top)
    axis.set_ylim(-0.6, len(group) - 0.4)
    axis.set_xlabel("TFLOP/s (percent of the matrix product)", fontsize=9)
    plain(axis)
    axis.grid(False)
    over = f"\n{OVER_GEMM}" if any(row.pct_ceiling > 100 for row in group) else ""
    caption(drawn, group, f"What each rung reaches: attention of {si(length)} keys, "
            f"head_dim {dim:.0f}", f"Dotted, GEMM: {GEMM}, of each type.{over}")
    return drawn


# --- The ladder ---

UNITS = (("tensor_pct", "tensor cores", "#1f63a5"), ("exp_pct", "exponentials", "#d1495b"),
         ("issue_pct", "issue slots", "#7f7f7f"),
         ("fma_pct", "multiply-adds", "#c9a227"), ("shared_pct", "shared memory", "#2a9d3a"))


@figure("staircase.png", "ladder")
def staircase(data):
    """What each rung reaches under its roofs, and how busy the units were: one launch of each
    rung, roof and GEMM in the same `make profile 5`."""
    counted = read_profile(data)
    sizes = sorted({d for name, d in counted if name in RUNGS and name not in IN_FLOAT})
    drawn, axes = plt.subplots(2, len(sizes), figsize=(8, 6.6), squeeze=False, sharex=True)
    drawn.subplots_adjust(left=0.075, right=0.86, top=0.9, bottom=0.345, wspace=0.14,
                          hspace=0.1)
    hidden = []
    for (above, below), size in zip(axes.T, sizes):
        names = [name for name in RUNGS if (name, size) in counted]
        lines = [counted[name, size] for name in names]
        treads(above, lines, counted.get((ROOF, size)), size == sizes[-1])
        above.set_title(f"head_dim {size:.0f}", fontsize=9, loc="left")
        ends = []
        for column, text, colour in UNITS:
            points = [(x, float(line[column])) for x, line in enumerate(lines)
                      if line.get(column)]
            if points:
                below.plot(*zip(*points), "o-", color=colour, markersize=3,
                           linewidth=2.6 if column == "tensor_pct" else 1)
                ends.append((*points[-1], text, colour))
        busy = [line for line in lines if line["tensor_pct"] and line["exp_pct"]]
        if sum(abs(float(line["tensor_pct"]) - float(line["exp_pct"])) < 1 for line in busy) > 3:
            hidden.append(size)
        below.set_ylim(0, 100)
        value_axis(below, [92], "percent of cycles" if size == sizes[0] else "")
        above.set_ylabel("TFLOP/s" if size == sizes[0] else "")
        below.set_xticks(range(len(names)))
        below.set_xticklabels([f"{number_of(name)} {name}" for name in names], rotation=90,
                              fontsize=8)
        if size == sizes[-1]:
            label_ends(below, ends)
    note = "Dotted: the last rung without softmax, and a matrix product (GEMM), in the same run. " \
        "At the foot of a bar: the clock in GHz."
    for size in hidden:
        note += f"\nAt head_dim {size:.0f} tensor cores and exponentials are equally busy: the " \
            "red line lies on the blue one."
    caption(drawn, [types.SimpleNamespace(**line) for line in counted.values()],
            "What does each rung reach, and which units are busy?", note)
    return drawn


def dark(colour):
    """Whether white can be read on it better than black."""
    red, green, blue = (int(colour[n:n + 2], 16) for n in (1, 3, 5))
    return 0.3 * red + 0.6 * green + 0.1 * blue < 120


def treads(axis, lines, roof, labelled):
    """One staircase: a tread for each rung, its clock at its foot; roofs dotted."""
    heights = [float(line["gflops"]) / 1000 for line in lines]
    for x, (height, line) in enumerate(zip(heights, lines)):
        colour = RUNG_COLOURS[line["variant"]]
        axis.fill_between([x - 0.5, x + 0.5], height, color=colour, alpha=0.85, linewidth=0)
        offset(axis, f"{height:.0f}", (x, height), (0, 2), ha="center", fontsize=6.4, zorder=3,
               va="baseline", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2})
        if line.get("clock_ghz") and height > 0.1 * max(heights):
            offset(axis, f"{float(line['clock_ghz']):.2f}", (x, 0), (0, 3), fontsize=7,
                   ha="center", va="baseline", rotation=90,
                   color="white" if dark(colour) else "black")
    gemm = max((float(line["ceiling"]) / 1000 for line in lines
                if line["ceiling"] and line["dtype"] == "bf16"), default=None)
    roofs = ([(gemm, "GEMM")] if gemm else []) \
        + ([(float(roof["gflops"]) / 1000, "no softmax")] if roof else [])
    axis.set_xlim(-0.6, len(lines) - 0.4)
    value_axis(axis, [1.06 * max(heights + [height for height, _ in roofs])], "TFLOP/s")
    axis.set_ylim(bottom=0)
    for height, _ in roofs:
        axis.axhline(height, color="black", linewidth=1, linestyle=":")
    if labelled:
        label_ends(axis, [(len(lines) - 0.4, height, text, "black") for height, text in roofs])


@figure("crossover.png", "ladder")
def crossover(data):
    """From which length on each rung is faster than the one before: a number for each length."""
    panels = Panels(data)
    keys = [key for key in sorted(panels) if not key[1]
            and sum(bool(panels.line(key, name)) for name in RUNGS[FIRST_HOPPER:]) > 2]
    used = panels.rows(need(keys, "no measurement of several rungs at several lengths"), RUNGS)
    tall = 1.25 + (0.22 * len(RUNGS) + 0.4) * -(-len(keys) // 2)
    drawn, axes = plt.subplots(-(-len(keys) // 2), 2, figsize=(8, tall), squeeze=False,
                               sharey=True)
    drawn.subplots_adjust(left=0.205, right=0.985, top=1 - 0.6 / tall, bottom=0.85 / tall,
                          hspace=0.2, wspace=0.04)
    for axis in axes.flat[len(keys):]:
        axis.axis("off")
    for axis, key in zip(axes.flat, keys):
        lengths = sorted({row.length for row in panels.rows([key], RUNGS)})
        for y, (before, after) in enumerate(zip(RUNGS, RUNGS[1:])):
            before, after = panels.line(key, before), panels.line(key, after)
            for x, n in enumerate(lengths):
                if n in before and n in after:
                    draw_gain(axis, x, y, before[n].median_s / after[n].median_s)
        axis.set_xlim(-0.5, len(lengths) - 0.5)
        axis.set_ylim(len(RUNGS) - 1.5, -0.5)
        axis.set_xticks(range(len(lengths)))
        axis.set_xticklabels([si(n) for n in lengths])
        axis.set_yticks(range(len(RUNGS) - 1))
        axis.set_yticklabels([f"{number_of(name)} {NAMES.get(name, name)}" for name in RUNGS[1:]])
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(f"head_dim {key[0]:.0f}", fontsize=9, loc="left")
    for axis in axes[-1]:
        axis.set_xlabel("keys and queries")
    caption(drawn, used, f"From which length does each rung pay? {work_text(used[0])}",
            "A cell: how many times as fast as the rung before. Green: faster, red: slower, "
            "white: within 2 %. Rungs 1 and 2 compute in float32, the\nothers in bfloat16.")
    return drawn


def draw_gain(axis, x, y, gain):
    """A cell, the stronger coloured the further its number is from 1."""
    strength = min(1.0, abs(gain - 1) / 0.4) if abs(gain - 1) > 0.02 else 0
    towards = (42, 157, 58) if gain > 1 else (209, 73, 91)
    colour = [1 - 0.75 * strength * (1 - part / 255) for part in towards]
    axis.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour,
                                 edgecolor="white", linewidth=0.8))
    axis.text(x, y, f"{gain:.2f}" if gain < 9.95 else f"{gain:.0f}", fontsize=7.5, ha="center",
              va="center")


@figure("decode.png", "ladder")
def decode(data):
    """One query: time against the number of keys."""
    single = one_query(data)
    lines = {name: single[name] for name in [*RUNGS, SPLIT, *PEERS][:-2] if single.get(name)}
    used = need([row for line in lines.values() for row in line.values()],
                "no measurement of one query")
    drawn, axis = new_figure(4.6, right=0.8, bottom=0.2)
    ends = []
    for variant, line in lines.items():
        x = sorted(line)
        colour = PEERS.get(variant) or RUNG_COLOURS[variant]
        axis.plot(x, [line[n].median_s * 1e6 for n in x], "o--" if variant in PEERS else "o-",
                  color=colour, markersize=2.4, linewidth=1)
        ends.append((x[-1], line[x[-1]].median_s * 1e6, variant, colour))
    length_axis(axis, [n for line in lines.values() for n in line], "keys")
    value_axis(axis, [row.median_s * 1e6 for row in used], "µs")
    label_ends(axis, shared_labels(axis, ends))
    caption(drawn, used, f"Who reads the keys fastest? One query, {used[0].heads_q:.0f} heads, "
            f"head_dim {used[0].head_dim:.0f}, bfloat16")
    return drawn


def shared_labels(axis, ends):
    """Ends (x, y, variant, colour) with texts.  Rungs whose lines end within the height of a
    text share one: their numbers."""
    groups = []
    for end in sorted(ends, key=lambda end: (end[2] in RUNGS, end[1])):
        height = axis.transData.transform(end[:2])[1]
        near = groups and end[2] in RUNGS and groups[-1][1][0][2] in RUNGS \
            and height - groups[-1][0] < 11 * axis.figure.dpi / 72
        if near:
            groups[-1][1].append(end)
        else:
            groups.append((height, [end]))
    return [(*group[-1][:2], text_of([end[2] for end in group]), group[-1][3])
            for _, group in groups]


def text_of(variants):
    """The name of one variant, or the numbers of several rungs: "rungs 7, 10 to 13"."""
    if len(variants) == 1:
        text = NAMES.get(*variants * 2)
        return f"{number_of(*variants)} {text}" if variants[0] in RUNGS else text
    return "rungs " + runs_text([int(number_of(variant)) for variant in variants])


def runs_text(numbers):
    """'7, 10 to 13'."""
    runs = []
    for rung in sorted(numbers):
        if runs and rung == runs[-1][1] + 1:
            runs[-1][1] = rung
        else:
            runs.append([rung, rung])
    return ", ".join(f"{a}" if a == b else f"{a}, {b}" if b == a + 1
                     else f"{a} to {b}" for a, b in runs)


@figure("gpu_memory.png", "ladder")
def gpu_memory(data):
    """Peak memory against the length; methods within a tenth of each other share a line."""
    panels = Panels(data)
    key, groups = panels.widest(), {}
    for name in [*RUNGS, *PEERS]:
        line = {n: row.peak_bytes / (1 << 20) for n, row in panels.line(key, name).items()
                if row.peak_bytes}
        if line:
            alike = next((sizes for sizes in groups if dict(sizes).keys() == line.keys()
                          and all(abs(line[n] / size - 1) < 0.1 for n, size in sizes)), None)
            groups.setdefault(alike or tuple(sorted(line.items())), []).append(name)
    need(groups, "no measurement of the rungs' peak memory")
    drawn, axis = new_figure(4.4, right=0.72, bottom=0.19)
    ends, values = [], []
    for sizes, names in groups.items():
        x, y = zip(*sizes)
        rungs = [int(number_of(name)) for name in names if name in RUNGS]
        colour = RUNG_COLOURS[names[len(rungs) - 1]] if rungs else PEERS[names[-1]]
        text = [f"rung{'s' if rungs[1:] else ''} {rungs[0]}"
                + (f" to {rungs[-1]}" if rungs[1:] else "")
                + (" (float32)" if names[0] in IN_FLOAT else "")] if rungs else []
        text += [NAMES[name] for name in names if name in PEERS]
        axis.plot(x, y, "o-", color=colour, markersize=3.5, linewidth=1.4)
        ends.append((x[-1], y[-1], ",\n".join(text), colour))
        values += y
    length_axis(axis, [n for sizes in groups for n, _ in sizes], "keys and queries")
    value_axis(axis, values, "MiB")
    label_ends(axis, ends)
    used = panels.rows([key], [*RUNGS, *PEERS])
    caption(drawn, used, f"Does memory grow with the length? {work_text(used[0])}, "
            f"head_dim {key[0]:.0f}", "Inputs, outputs and what one call takes beside them.")
    return drawn


# --- Softmax ---

SLOWEST = 10  # percent of a copy's rate: a longer bar would hide the others


def counted_softmax(data):
    """Each softmax at the shape where most were counted, and the library that was measured beside
    them; the most traffic first.  Without those below SLOWEST: memory does not limit them."""
    rows = data.rows.query("op == 'softmax' and device == 'gpu' and dtype == 'f32' and cols > 0")
    counted = rows.query("bytes_measured > 0 and reps > 0 and ceiling > 0")
    need(counted, "no GPU softmax has bytes_measured; `make profile 3` counts them")
    shape = counted.groupby(["rows", "cols"], sort=False).size().idxmax()
    here = rows[(rows.rows == shape[0]) & (rows.cols == shape[1])
                & ((rows.bytes_measured > 0) | rows.variant.str.startswith("pytorch"))
                & ((rows.pct_ceiling == 0) | (rows.pct_ceiling >= SLOWEST))]
    here = sorted(each(here), key=lambda row: (row.stage, -row.bytes_predicted, -row.median_s))
    return list({row.variant: row for row in here}.values())


@figure("gpu_traffic.png", "bench")
def gpu_traffic(data):
    """Stages 1 to 3 on a GPU: traffic predicted and counted, and time; a line a softmax."""
    here = counted_softmax(data)
    one = here[0].rows * here[0].cols * 4
    tall = 1.9 + 0.3 * len(here)
    drawn, (left, right) = plt.subplots(1, 2, figsize=(8, tall), sharey=True)
    drawn.subplots_adjust(left=0.205, right=0.965, top=1 - 0.7 / tall, bottom=1.0 / tall,
                          wspace=0.08)
    for place, row in enumerate(here):
        colour, mark = COLOURS[row.stage], [place - 0.42, place + 0.42]
        if row.bytes_measured:
            left.barh(place, row.bytes_measured / one, 0.62, color=colour)
            left.plot([row.bytes_predicted / one] * 2, mark, color="black", linewidth=1.6)
            right.plot([row.bytes_measured / row.ceiling * 1e-6] * 2, mark, color="black",
                       linewidth=1.6, zorder=3)
            left.text(row.bytes_measured / one + 0.12, place,
                      f"{row.bytes_measured / one:.2f}", fontsize=8, va="center")
        else:
            left.text(0.1, place, "not counted", fontsize=8, va="center", color=colour)
        right.barh(place, row.median_s * 1e3, 0.62, color=colour)
        right.text(row.median_s * 1e3 * 1.01 + 0.02, place, f"{row.median_s * 1e3:.2f}",
                   fontsize=8, va="center")
    left.set_yticks(range(len(here)))
    left.set_yticklabels(["PyTorch" if row.stage == "peer" else
                          f"{row.stage} {row.variant.removeprefix('gpu_')}" for row in here],
                         fontsize=8.5)
    left.invert_yaxis()
    left.set_title("reads and writes of the whole matrix", fontsize=9, loc="left")
    left.set_xlabel("bar: counted by the hardware; mark: predicted")
    right.set_title("time, ms", fontsize=9, loc="left")
    right.set_xlabel("mark: what a copy needs for the same bytes")
    left.set_xlim(0, 1.14 * max(row.bytes_measured / one for row in here))
    right.set_xlim(0, 1.14e3 * max(row.median_s for row in here))
    for axis in (left, right):
        plain(axis, "x")
        axis.tick_params(axis="y", length=0)
    caption(drawn, here, f"Does time follow traffic? Softmax of [{si(here[0].rows)}, "
            f"{si(here[0].cols)}] floats",
            f"The matrix has {one / 1e9:.2f} GB. The number before a name is its stage. "
            f"Kernels below {SLOWEST} % of a copy are left out.")
    return drawn


@figure("gpu_rows.png", "bench")
def gpu_rows(data):
    """Softmax on a GPU, GB/s of one read and one write against row length: the copy, PyTorch and
    ours, a panel a type."""
    drawn, axes = plt.subplots(1, 2, figsize=(8, 4.2))
    drawn.subplots_adjust(left=0.085, right=0.89, top=0.86, bottom=0.23, wspace=0.5)
    rows, shown = gpu_softmax(data), []
    rows = rows[(rows.rows > 1) & rows.cols.map(lambda n: int(n) & int(n) - 1 == 0)]
    for axis, dtype, size in zip(axes, ("f32", "bf16"), (4, 2)):
        here = rows[rows.dtype == dtype]
        ends = []
        for name, text, colour in (("copy", "copy", "black"), (ours_of(here), "ours", COLOURS["3"]),
                                   ("pytorch-softmax", "PyTorch", COLOURS["peer"])):
            line = here[here.variant == name].sort_values("cols")
            need(line, f"no line {name} in {dtype}; peers_softmax.py measures it")
            y = 2e-9 * line.rows * line.cols * size / line.median_s
            axis.plot(line.cols, y, color=colour, marker="" if name == "copy" else "o",
                      markersize=4, linestyle=":" if name == "copy" else "-")
            ends.append((line.cols.iloc[-1], y.iloc[-1], text, colour))
            shown.append(y.max())
        length_axis(axis, here.cols, f"row length, {dtype}")
        value_axis(axis, [max(shown[-3:])], "GB/s")
        label_ends(axis, ends)
    caption(drawn, each(rows), f"How near is a GPU's softmax to a copy? {si(2**28)} elements",
            "GB/s counts one read and one write of the matrix, the least that softmax moves.")
    return drawn
