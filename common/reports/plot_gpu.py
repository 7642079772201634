"""plot_gpu.py: figures of the GPU: 16-bit attention by length and at one length, and softmax.
For plot.py.
"""
import collections
import math

from ladder import LAST, RUNGS
from results import NoData, share_of, si, work_of
from style import (COLOURS, caption, label_ends, length_axis, name_of, new_figure, plain, plt,
                   value_axis)


def draw_flash(rows):
    """Throughput of 16-bit attention against length: the last rung of stage 5, the others
    thin, and the peers; a panel for each head_dim, without and with causal mask."""
    chosen = [row for row in rows if row.op == "attention" and row.device == "gpu"
              and row.dtype == "bf16" and row.seqlen_q == row.seqlen_k and row.gflops
              and row.stage in ("5", "peer")]
    chosen = [row for row in chosen if row.heads_q == row.heads_kv
              and math.log2(row.length) % 1 == 0] or chosen  # other shapes have tables of their own
    lengths = collections.defaultdict(set)
    for row in chosen:
        row.tflops = row.gflops / 1000
        lengths[row.head_dim, row.causal or 0].add(row.length)
    panels = [key for key in sorted(lengths) if len(lengths[key]) > 1]
    if not panels:
        raise NoData("no bf16 measurement of stage 5 on a GPU at several lengths")
    dims = sorted({dim for dim, _ in panels})
    tall = 1.05 + 2.5 * len(dims)
    figure, axes = plt.subplots(len(dims), 2, figsize=(8, tall), squeeze=False)
    figure.subplots_adjust(left=0.07, right=0.835, top=1 - 0.55 / tall,
                           bottom=0.95 / tall, wspace=0.78, hspace=0.42)
    for place, key in ((place, (dim, causal)) for place, dim in enumerate(dims)
                       for causal in (0, 1)):
        axis = axes[place, key[1]]
        if key not in panels:
            axis.axis("off")
            continue
        here = [row for row in chosen if (row.head_dim, row.causal or 0) == key]
        draw_flash_panel(axis, here)
        axis.set_title(f"head_dim {key[0]:.0f}{', causal' if key[1] else ''}",
                       fontsize=8.5, loc="left")
    sizes = {work_of(row).size for row in chosen}
    tokens = f", {si(sizes.pop())} tokens" if len(sizes) == 1 else ""
    caption(figure, chosen, f"The last rung and the libraries: attention, bf16{tokens}",
            "Thin lines: the other rungs. Dotted: a cuBLAS matrix product of 8192 × 8192 × "
            "8192, the ceiling of the same run.")
    return figure


def draw_flash_panel(axis, rows):
    """One panel of draw_flash()."""
    lines = collections.defaultdict(dict)
    for row in rows:
        lines[row.stage, row.variant][row.length] = row
    rungs = [key for key in lines if key[0] == "5"]
    best = max(rungs, default=None, key=lambda key: (
        len(lines[key]), key[1] == LAST, lines[key][max(lines[key])].tflops))
    ends, values = [], []
    for (stage, variant), line in lines.items():
        labelled = stage == "peer" or (stage, variant) == best
        points = [line[length] for length in sorted(line)]
        axis.plot([row.length for row in points], [row.tflops for row in points],
                  color=COLOURS[stage], linewidth=1.4 if labelled else 0.6,
                  linestyle="--" if stage == "peer" else "-",
                  marker="s" if labelled else "", markersize=3,
                  alpha=1 if labelled else 0.6)
        values += [row.tflops for row in points]
        if labelled:
            ends.append((points[-1].length, points[-1].tflops, name_of(points[-1]),
                         COLOURS[stage]))
    ceiling = max((row.ceiling / 1000 for row in rows if row.ceiling), default=None)
    last = max(row.length for row in rows)
    if ceiling:
        axis.axhline(ceiling, color="black", linewidth=1, linestyle=":")
        ends.append((last, ceiling, "cuBLAS GEMM", "black"))
        values.append(ceiling)
    length_axis(axis, [row.length for row in rows], "keys")
    value_axis(axis, [max(values)], "TFLOP/s")
    label_ends(axis, ends)


def draw_ladder(rows):
    """Bars: every variant of stage 5 and the peers at the same length and head_dim."""
    chosen = [row for row in rows if row.op == "attention" and row.device == "gpu"
              and row.stage in ("5", "peer") and row.gflops and not row.causal
              and row.seqlen_q == row.seqlen_k and row.head_dim == row.head_dim_v]
    if not chosen:
        raise NoData("no measurement of stage 5 on a GPU")
    groups = collections.defaultdict(dict)
    for row in sorted(chosen, key=lambda row: row.gflops):
        groups[row.head_dim, row.length][row.variant, row.dtype] = row
    best = max(groups, key=lambda key: (len(groups[key]), key))
    order = {name: n for n, name in enumerate(dict.fromkeys(row.variant for row in chosen))}
    order.update({name: n - len(RUNGS) for n, name in enumerate(RUNGS)})
    group = sorted(groups[best].values(),
                   key=lambda r: (r.stage == "peer", r.dtype != "f32",
                                  order[r.variant], r.dtype))
    labels = [f"{name_of(row)}, {row.dtype}" for row in group]
    values = [row.gflops / 1000 for row in group]
    figure, axis = plt.subplots(figsize=(8, 1.45 + 0.24 * len(group)))
    tall = figure.get_figheight()
    figure.subplots_adjust(left=0.2, right=0.95, top=1 - 0.42 / tall, bottom=0.95 / tall)
    places = range(len(group))[::-1]
    axis.barh(places, values, height=0.72, color=[COLOURS[row.stage] for row in group])
    ceilings = {}
    for row in group:
        if row.ceiling:
            ceilings[row.dtype] = max(row.ceiling / 1000, ceilings.get(row.dtype, 0))
    top = max(values + list(ceilings.values()))
    for place, row, value in zip(places, group, values):
        share = f" ({share_of(row)})" if row.pct_ceiling else ""
        inside = value > 0.75 * top
        axis.text(value + (-1 if inside else 1) * 0.008 * top, place,
                  f"{value:.3g}{share}", va="center", ha="right" if inside else "left",
                  fontsize=8, color="white" if inside else "black",
                  bbox=None if inside else {"color": "white", "pad": 0.8})
    for height in ceilings.values():
        axis.axvline(height, color="black", linewidth=1, linestyle=":")
    axis.set_yticks(list(places))
    axis.set_yticklabels(labels, fontsize=8)
    axis.set_xlim(0, 1.04 * top)
    axis.set_ylim(-0.6, len(group) - 0.4)
    axis.set_xlabel("TFLOP/s (percent of the ceiling)", fontsize=9)
    plain(axis)
    axis.grid(False)
    caption(figure, group, f"What each rung reaches: attention of {si(best[1])} keys, "
            f"head_dim {best[0]:.0f}", "Dotted: the ceiling of each type, a cuBLAS matrix "
            "product of 8192 × 8192 × 8192 in the same run.")
    return figure


def gpu_softmax(rows, dtype):
    """Softmax of rows on a GPU in this type."""
    return [row for row in rows if row.op == "softmax" and row.device == "gpu"
            and row.dtype == dtype and row.cols]


SLOWEST = 10  # percent of a copy's rate: a longer bar would hide the others


def counted_softmax(rows):
    """(shape, {variant: row}): each softmax at the shape where most were counted, and the
    library that was measured beside them; the most traffic first.  Without those below
    SLOWEST: memory does not limit them."""
    counted = [row for row in gpu_softmax(rows, "f32") if row.bytes_measured and row.reps
               and row.ceiling]
    if not counted:
        raise NoData("no GPU softmax has bytes_measured; `make profile 3` counts them")
    shape = collections.Counter((row.rows, row.cols) for row in counted).most_common(1)[0][0]
    here = [row for row in gpu_softmax(rows, "f32") if (row.rows, row.cols) == shape
            and (row.bytes_measured or row.variant.startswith("pytorch"))
            and (row.pct_ceiling is None or row.pct_ceiling >= SLOWEST)]
    here.sort(key=lambda row: (row.stage, -row.bytes_predicted, -row.median_s))
    return shape, {row.variant: row for row in here}


def draw_gpu_traffic(rows):
    """Left the traffic, predicted and counted, right the time; a line a softmax."""
    shape, here = counted_softmax(rows)
    one = shape[0] * shape[1] * 4
    tall = 1.9 + 0.3 * len(here)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, tall), sharey=True)
    figure.subplots_adjust(left=0.205, right=0.965, top=1 - 0.7 / tall, bottom=1.0 / tall,
                           wspace=0.08)
    for place, row in enumerate(here.values()):
        colour = COLOURS[row.stage]
        if row.bytes_measured:
            left.barh(place, row.bytes_measured / one, 0.62, color=colour)
            left.plot([row.bytes_predicted / one] * 2, [place - 0.42, place + 0.42],
                      color="black", linewidth=1.6)
            right.plot([row.bytes_measured / row.ceiling * 1e-6] * 2,
                       [place - 0.42, place + 0.42], color="black", linewidth=1.6, zorder=3)
            left.text(row.bytes_measured / one + 0.12, place,
                      f"{row.bytes_measured / one:.2f}", fontsize=8, va="center")
        else:
            left.text(0.1, place, "not counted", fontsize=8, va="center", color=colour)
        right.barh(place, row.median_s * 1e3, 0.62, color=colour)
        right.text(row.median_s * 1e3 * 1.01 + 0.02, place, f"{row.median_s * 1e3:.2f}",
                   fontsize=8, va="center")
    left.set_yticks(range(len(here)))
    left.set_yticklabels([("PyTorch" if row.stage == "peer" else
                           f"{row.stage} {row.variant.removeprefix('gpu_')}")
                          for row in here.values()], fontsize=8.5)
    left.invert_yaxis()
    left.set_title("reads and writes of the whole matrix", fontsize=9, loc="left")
    left.set_xlabel("bar: counted by the hardware; mark: predicted")
    right.set_title("time, ms", fontsize=9, loc="left")
    right.set_xlabel("mark: what a copy needs for the same bytes")
    left.set_xlim(0, 1.14 * max((row.bytes_measured or 0) / one for row in here.values()))
    right.set_xlim(0, 1.14e3 * max(row.median_s for row in here.values()))
    for axis in (left, right):
        plain(axis)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0)
    caption(figure, list(here.values()),
            f"Does time follow traffic? Softmax of [{si(shape[0])}, {si(shape[1])}] floats",
            f"The matrix has {one / 1e9:.2f} GB. The number before a name is its stage. "
            f"Kernels below {SLOWEST} % of a copy are left out.")
    return figure


def ours_and_peers(rows):
    """The variants of the lines: the copy; of ours the one measured at most lengths, of
    equals the fastest; PyTorch."""
    done = collections.defaultdict(dict)
    for row in rows:
        if row.stage in "123":
            done[row.variant][row.cols] = row.median_s
    if not done:
        raise NoData("no softmax of ours on a GPU at several row lengths")
    ours = min(done, key=lambda name: (-len(done[name]), sum(done[name].values())))
    return (("copy", "copy", "black"), (ours, "ours", COLOURS["3"]),
            ("pytorch-softmax", "PyTorch", COLOURS["peer"]))


def draw_gpu_rows(rows):
    """GB/s of one read and one write against row length, a panel a type."""
    figure, axes = new_figure(2, 4.2, 0.89)
    figure.subplots_adjust(wspace=0.5, bottom=0.23)
    shown = []
    for axis, dtype in zip(axes, ("f32", "bf16")):
        here = [row for row in gpu_softmax(rows, dtype) if math.log2(row.cols) % 1 == 0
                and row.rows > 1]
        ends, lengths, values = [], [], []
        for name, text, colour in ours_and_peers(here):
            line = sorted((row.cols, 2 * row.rows * row.cols * (4 if dtype == "f32" else 2)
                           / row.median_s * 1e-9) for row in here if row.variant == name)
            if not line:
                raise NoData(f"no line {name} in {dtype}; peers_softmax.py measures it")
            x, y = zip(*line)
            axis.plot(x, y, color=colour, marker="" if name == "copy" else "o", markersize=4,
                      linestyle=":" if name == "copy" else "-")
            ends.append((x[-1], y[-1], text, colour))
            lengths, values = lengths + list(x), values + list(y)
        length_axis(axis, lengths, f"row length, {dtype}")
        axis.set_ylim(0, 1.08 * max(values))
        value_axis(axis, [max(values)], "GB/s")
        label_ends(axis, ends)
        shown += here
    caption(figure, shown, f"How near is a GPU's softmax to a copy? {si(2**28)} elements",
            "GB/s counts one read and one write of the matrix, the least that softmax moves.")
    return figure
