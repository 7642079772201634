"""plot.py: draws the figures from CSV files that the stages' `bench` wrote.

    python3 common/reports/plot.py --results DIR --out DIR [--machine TEXT] [--program STAGE]

reads every DIR/*.csv (columns: design of the results, one line a measurement) and draws

    length.png    time and throughput against length, every stage on the same work
    ceiling.png   percent of the machine's ceiling against length
    flash.png     16-bit attention against length: stage 5 and its peers
    ladder.png    every variant of stage 5 and its peers at one length
    traffic.png   bytes predicted by theory against bytes measured
    error.png     largest error against the allowed one
    memory.png    peak memory against length
    gpu_traffic.png  stages 1 to 3 on a GPU: traversals predicted, counted, and as time
    gpu_rows.png     softmax on a GPU against row length: the copy, PyTorch and ours
    map.png       the fixture's attention map, computed by the stage program STAGE

A figure whose columns are empty is skipped with one line.  Exit status: 0 drawn; 1
nothing drawn; 2 bad usage or a malformed file (one line: file, what is wrong); 77 no matplotlib.
"""
import argparse
import collections
import math
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker
    import numpy as np
except ImportError as missing:
    print(f"plot.py: {missing}; install matplotlib (apt install python3-matplotlib)",
          file=sys.stderr)
    sys.exit(77)

from results import (Malformed, NoData, best_lines, describe_work, read_results,
                     same_work, share_of, si, where_of, work_of)

SETTINGS = {"figure.dpi": 200, "savefig.dpi": 200, "axes.labelsize": 9,
            "xtick.labelsize": 8.5, "ytick.labelsize": 8.5}
COLOURS = {"1": "#b8860b", "2": "#d55e00", "3": "#009e73", "4": "#0072b2", "5": "#8e44ad",
           "peer": "#555555"}


def length_axis(axis, lengths, name):
    """log2 with ticks at the measured lengths, thinned where they would touch."""
    lengths = sorted(set(lengths))
    axis.set_xscale("log", base=2)
    step = -(-len(lengths) // 9)
    axis.set_xticks(lengths[::-1][::step])
    axis.set_xticklabels([si(n) for n in lengths[::-1][::step]])
    axis.minorticks_off()
    axis.set_xlabel(name)


def value_axis(axis, values, unit):
    """y from 0, or logarithmic when the values span more than a decade."""
    values = [value for value in values if value > 0]
    if max(values) > 10 * min(values):
        axis.set_yscale("log")
        if max(values) < 100 * min(values):
            axis.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
            axis.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    else:
        axis.set_ylim(0, 1.08 * max(values))
    axis.set_ylabel(unit)
    axis.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def style(label):
    stage = label.split()[0]  # earlier stages are drawn wider, so that equal lines show
    wide = 3.4 - 0.45 * int(stage) if stage in COLOURS else 1.2
    return {"color": COLOURS.get(stage, COLOURS["peer"]), "linewidth": wide,
            "markersize": 2.6 + wide,
            "marker": "s" if "(GPU)" in label else "o",
            "linestyle": "-" if stage in COLOURS and "(on CPU)" not in label else "--"}


def label_ends(axis, ends):
    """Writes each text right of its point (x, y, text, colour), pushed apart so that none
    overlap, with a thin line to its point where it had to move."""
    axis.figure.canvas.draw()
    box = axis.get_window_extent()
    gap = 11 * axis.figure.dpi / 72
    ends = sorted(ends, key=lambda end: axis.transData.transform(end[:2])[1])
    heights = [min(max(axis.transData.transform(end[:2])[1], box.y0), box.y1)
               for end in ends]
    for _ in range(500):
        for n in range(len(heights) - 1):
            overlap = max(0, gap - (heights[n + 1] - heights[n]))
            heights[n] -= overlap / 2
            heights[n + 1] += overlap / 2
        heights[0] = max(heights[0], box.y0)
    for (x, y, text, colour), height in zip(ends, heights):
        axis.annotate(text, xy=(x, y), xytext=(1.03, (height - box.y0) / box.height),
                      textcoords="axes fraction", color=colour, fontsize=8, va="center",
                      ha="left", annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5,
                                  "alpha": 0.6, "shrinkA": 0, "shrinkB": 3})


def draw_lines(axis, lines, column, unit, name, ceiling=None):
    """Lines of best_lines() with labels at their ends."""
    values = [getattr(row, column) for rows in lines.values() for row in rows]
    ends = []
    for label, rows in lines.items():
        kind = style(label)
        axis.plot([row.length for row in rows], [getattr(row, column) for row in rows],
                  **kind)
        ends.append((rows[-1].length, getattr(rows[-1], column), label, kind["color"]))
    for height, text in ceiling or []:
        axis.axhline(height, color="black", linewidth=1, linestyle=":")
        ends.append((max(row.length for rows in lines.values() for row in rows), height,
                     text, "black"))
        values.append(height)
    length_axis(axis, [row.length for rows in lines.values() for row in rows], name)
    value_axis(axis, values, unit)
    label_ends(axis, ends)


def caption(figure, rows, text):
    """Title above; machine, commit and date below."""
    commits = sorted({row.commit for row in rows if row.commit})
    dates = sorted({row.date[:10] for row in rows if row.date})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else ""
    shown = ", ".join(commits[:2]) + (" ..." if len(commits) > 2 else "")
    machines = "; ".join(sorted({row.machine for row in rows}))
    figure.text(0.01, 0.012, f"{machines}\ncommit {shown}, {days}", fontsize=7,
                color="#555555", va="bottom")
    figure.text(0.01, 0.985, text, fontsize=10, va="top", weight="bold")


def new_figure(columns, height, right):
    figure, axes = plt.subplots(1, columns, figsize=(8, height), squeeze=False)
    figure.subplots_adjust(left=0.085, right=right, top=0.86, bottom=0.21,
                           wspace=0.75 if columns > 1 else None)
    return figure, axes[0]


def draw_length(rows):
    """Time and throughput against length, all stages, the same work."""
    chosen = same_work([row for row in rows if row.op == "attention" and row.gflops])
    lines = best_lines(chosen, "median_s")
    figure, axes = plt.subplots(2, 1, figsize=(8, 7.4))
    figure.subplots_adjust(left=0.09, right=0.76, top=0.93, bottom=0.125, hspace=0.27)
    name = "length of the sequence (keys)"
    draw_lines(axes[0], lines, "median_s", "seconds", name)
    peaks = {}
    for row in (row for line in lines.values() for row in line):
        if row.ceiling and row.ceiling_kind in ("fma", "gemm"):
            peak = f"{where_of(row)[-3:]} {row.ceiling_kind} peak"
            peaks[peak] = max(row.ceiling, peaks.get(peak, 0))
    draw_lines(axes[1], lines, "gflops", "GFLOP/s", name,
               [(height, text) for text, height in peaks.items()])
    caption(figure, chosen, f"Time and throughput: {describe_work(chosen[0])}")
    return figure


def draw_ceiling(rows):
    """Percent of the ceiling against length: softmax left, attention right."""
    panels = []
    for op in ("softmax", "attention"):
        try:
            known = [row for row in rows if row.op == op and row.pct_ceiling
                     and row.device != "cpu-executed"]
            # a GPU's softmax has a figure of its own
            on_cpu = [row for row in known if row.device == "cpu"]
            chosen = same_work(on_cpu if op == "softmax" and on_cpu else known)
            panels.append((chosen, best_lines(chosen, "pct_ceiling", biggest=True)))
        except NoData:
            pass
    if not panels:
        raise NoData("no measurement has pct_ceiling")
    figure, axes = plt.subplots(len(panels), 1, figsize=(8, 3.7 * len(panels)),
                                squeeze=False)
    figure.subplots_adjust(left=0.09, right=0.76, top=1 - 0.52 / (3.7 * len(panels)),
                           bottom=0.9 / (3.7 * len(panels)), hspace=0.34)
    for axis, (chosen, lines) in zip(axes[:, 0], panels):
        kinds = sorted({row.ceiling_kind for row in chosen if row.ceiling_kind})
        draw_lines(axis, lines, "pct_ceiling", "percent",
                   "columns" if chosen[0].op == "softmax" else "keys",
                   [(100, f"ceiling: {', '.join(kinds)}")])
        axis.set_title(describe_work(chosen[0]), fontsize=8.5, loc="left")
    shown = [row for _, lines in panels for line in lines.values() for row in line]
    caption(figure, shown, "Percent of the ceiling measured in the same run")
    return figure


def draw_flash(rows):
    """Throughput of 16-bit attention against length: the best rung of stage 5, the others
    thin, and the peers; a panel for each head_dim, without and with causal mask."""
    chosen = [row for row in rows if row.op == "attention" and row.device == "gpu"
              and row.dtype == "bf16" and row.seqlen_q == row.seqlen_k and row.gflops
              and row.stage in ("5", "peer")]
    lengths = collections.defaultdict(set)
    for row in chosen:
        row.tflops = row.gflops / 1000
        lengths[row.head_dim, row.causal or 0].add(row.length)
    panels = [key for key in sorted(lengths) if len(lengths[key]) > 1]
    if not panels:
        raise NoData("no bf16 measurement of stage 5 on a GPU at several lengths")
    dims = sorted({dim for dim, _ in panels})
    tall = 0.9 + 2.5 * len(dims)
    figure, axes = plt.subplots(len(dims), 2, figsize=(8, tall), squeeze=False)
    figure.subplots_adjust(left=0.07, right=0.845, top=1 - 0.55 / tall,
                           bottom=0.85 / tall, wspace=0.72, hspace=0.42)
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
    caption(figure, chosen, f"Stage 5 and its peers: attention, bf16{tokens}")
    return figure


def draw_flash_panel(axis, rows):
    """One panel of draw_flash()."""
    lines = collections.defaultdict(dict)
    for row in rows:
        lines[row.stage, row.variant][row.length] = row
    rungs = [key for key in lines if key[0] == "5"]
    best = max(rungs, default=None, key=lambda key: (
        len(lines[key]), lines[key][max(lines[key])].tflops))
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
            ends.append((points[-1].length, points[-1].tflops, variant, COLOURS[stage]))
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
    group = sorted(groups[best].values(),
                   key=lambda r: (r.stage == "peer", r.dtype != "f32",
                                  order[r.variant], r.dtype))
    labels = [f"{row.variant}, {row.dtype}" for row in group]
    values = [row.gflops / 1000 for row in group]
    figure, axis = plt.subplots(figsize=(8, 1.3 + 0.24 * len(group)))
    tall = figure.get_figheight()
    figure.subplots_adjust(left=0.27, right=0.95, top=1 - 0.42 / tall, bottom=0.85 / tall)
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
    axis.set_xlabel("TFLOP/s (percent of the ceiling, dotted, of its type)", fontsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    caption(figure, group, f"Stage 5 and its peers: attention of {si(best[1])} keys, "
            f"head_dim {best[0]:.0f}")
    return figure


def draw_traffic(rows):
    """Bytes predicted against bytes measured, with the diagonal."""
    chosen = [row for row in rows if row.bytes_predicted and row.bytes_measured]
    if not chosen:
        raise NoData("no measurement has bytes_measured")
    figure, (axis,) = new_figure(1, 5.2, 0.76)
    figure.subplots_adjust(top=0.92, bottom=0.16)
    values = [v / 1e9 for row in chosen for v in (row.bytes_predicted, row.bytes_measured)]
    wide = max(values) > 10 * min(values)
    low, high = min(values) / 1.5 if wide else 0, max(values) * (1.5 if wide else 1.1)
    axis.plot([low, high], [low, high], color="black", linewidth=1, linestyle=":")
    ends = [(high, high, "measured = predicted", "black")]
    groups = collections.defaultdict(list)
    for row in chosen:
        groups[row.stage, row.op if "softmax" in row.op else "attention"].append(row)
    for (stage, op), points in sorted(groups.items()):
        last = max(points, key=lambda row: row.bytes_predicted)
        axis.plot([row.bytes_predicted / 1e9 for row in points],
                  [row.bytes_measured / 1e9 for row in points], linestyle="",
                  marker="o" if op == "softmax" else "^", color=COLOURS[stage],
                  markersize=5, alpha=0.8)
        ends.append((last.bytes_predicted / 1e9, last.bytes_measured / 1e9, f"{stage} {op}",
                     COLOURS[stage]))
    if wide:
        axis.set_xscale("log")
    axis.set_xlabel("GB predicted by the stage's traffic model")
    value_axis(axis, values, "GB measured")
    axis.set_xlim(low, high)
    axis.set_ylim(low, high)
    label_ends(axis, ends)
    caption(figure, chosen, "Main memory traffic: theory against measurement")
    return figure


def draw_error(rows):
    """The largest error of each variant (dot) and the error allowed there (bar)."""
    worst = {}
    for row in rows:
        if row.max_err is None or not row.allowed_err or row.stage == "peer":
            continue
        key = (row.stage, row.variant, row.dtype, where_of(row))
        share = row.max_err / row.allowed_err
        if key not in worst or not share <= worst[key].max_err / worst[key].allowed_err:
            worst[key] = row
    if not worst:
        raise NoData("no measurement has max_err and allowed_err")
    keys = list(worst)
    keys.sort(key=lambda key: key[0])
    figure, axis = plt.subplots(figsize=(8, 1.4 + 0.21 * len(keys)))
    tall = figure.get_figheight()
    figure.subplots_adjust(left=0.3, right=0.97, top=1 - 0.4 / tall, bottom=0.95 / tall)
    floor = min([row.max_err for row in worst.values() if row.max_err > 0]
                + [row.allowed_err for row in worst.values()]) / 4
    for place, key in enumerate(reversed(keys)):
        row = worst[key]
        error = max(row.max_err, floor) if row.max_err == row.max_err \
            else 10 * row.allowed_err  # NaN
        axis.plot([error, row.allowed_err], [place, place], color=COLOURS[key[0]],
                  linewidth=0.8, alpha=0.6)
        axis.plot(error, place, marker="<" if row.max_err < floor else "o", markersize=5,
                  color=COLOURS[key[0]] if row.max_err <= row.allowed_err else "red")
        axis.plot(row.allowed_err, place, marker="|", markersize=9, color="black")
    axis.set_xscale("log")
    axis.set_yticks(range(len(keys)))
    axis.set_yticklabels([f"{stage} {variant}, {dtype} ({where})"
                          for stage, variant, dtype, where in reversed(keys)], fontsize=8)
    axis.set_ylim(-0.7, len(keys) - 0.3)
    axis.grid(True, axis="x", color="#e4e4e4", linewidth=0.7)
    axis.set_xlabel("dot: largest error; bar: error allowed; "
                    "the measurement closest to its bar", fontsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    caption(figure, list(worst.values()), "Error against the allowed error")
    return figure


def draw_memory(rows):
    """Peak memory of attention against length, of each stage's fastest variant."""
    chosen = same_work([row for row in rows if row.op == "attention" and row.peak_bytes])
    for row in chosen:
        row.peak_mib = row.peak_bytes / (1 << 20)
    lines = best_lines(chosen, "median_s")
    figure, (axis,) = new_figure(1, 4.4, 0.76)
    figure.subplots_adjust(top=0.9, bottom=0.19)
    draw_lines(axis, lines, "peak_mib", "MiB", "length of the sequence (keys)")
    caption(figure, chosen, f"Peak memory: {describe_work(chosen[0])}")
    return figure


def attention_map(program, fixture):
    """softmax(q k^T / sqrt(head_dim)) [heads, seqlen, seqlen] by a stage program: with
    the identity as v, o is the map itself."""
    q = np.load(fixture / "q.npy")
    heads, seqlen, _ = q.shape
    with tempfile.TemporaryDirectory() as place:
        identity, o = f"{place}/identity.npy", f"{place}/map.npy"
        np.save(identity, np.broadcast_to(np.eye(seqlen, dtype="<f4"),
                                          (heads, seqlen, seqlen)))
        done = subprocess.run([program, "run", "--q", fixture / "q.npy", "--k",
                               fixture / "k.npy", "--v", identity, "--o", o],
                              capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise NoData(f"{program} run failed: {lines[-1]}")
        return np.load(o)


def draw_map(program, fixture, head):
    """One head's map with its tokens."""
    try:
        p = attention_map(program, fixture)[head]
        tokens = (fixture / "tokens.txt").read_text(encoding="utf-8").split()
    except (OSError, ValueError, IndexError) as error:
        raise NoData(str(error)) from None
    figure, axis = plt.subplots(figsize=(8, 8.3))
    figure.subplots_adjust(left=0.125, right=0.995, top=0.955, bottom=0.125)
    image = axis.imshow(np.sqrt(p), cmap="magma_r", vmin=0, vmax=1, aspect="auto")
    axis.set_xticks(range(len(tokens)))
    axis.set_xticklabels(tokens, rotation=90, fontsize=6.5)
    axis.set_yticks(range(len(tokens)))
    axis.set_yticklabels(tokens, fontsize=6.5)
    axis.tick_params(length=1.5, pad=1.5)
    bar = axis.inset_axes([0.58, 0.93, 0.38, 0.018])
    marks = [0, 0.05, 0.2, 0.5, 1]
    figure.colorbar(image, cax=bar, orientation="horizontal",
                    ticks=[mark ** 0.5 for mark in marks])
    bar.set_xticklabels([f"{mark:g}" for mark in marks], fontsize=7)
    figure.text(0.01, 0.985, f"Attention of head {head}: each row, a query, shares 1 "
                "among the keys", fontsize=10, va="top", weight="bold")
    figure.text(0.01, 0.008, f"{pathlib.Path(program).name} on {fixture}", fontsize=7,
                color="#555555", va="bottom")
    return figure


def save(figure, path):
    """The same picture gives the same file; appears complete or not at all."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        figure.savefig(beside, format="png", metadata={"Software": None})
        os.replace(beside, path)
    finally:
        plt.close(figure)
        beside.unlink(missing_ok=True)


def draw_all(jobs, out):
    """Draws every figure that has data.  Returns how many."""
    drawn = 0
    for name, draw in jobs.items():
        try:
            save(draw(), out / name)
            drawn += 1
            print(f"plot.py: {out / name}")
        except NoData as missing:
            print(f"plot.py: {name} not drawn: {missing}")
    return drawn


# Stage, what it does, and the variant that does it (notes/gpu_softmax.md).
TRAFFIC = [("stage 2", "four kernels", "gpu_four_kernels"), ("stage 2", "CUB", "gpu_cub"),
           ("stage 2", "CUB, exp fused", "gpu_cub_fused_exp"),
           ("stage 3", "online", "gpu_online"), ("stage 3", "CUB, monoid", "gpu_cub_monoid"),
           ("stage 3", "one pass", "gpu_one_pass"), ("", "PyTorch", "pytorch-softmax")]


def gpu_softmax(rows, dtype):
    return [row for row in rows if row.op == "softmax" and row.device == "gpu"
            and row.dtype == dtype and row.cols]


def draw_gpu_traffic(rows):
    """For every way to compute softmax: predicted, counted, and the time, in traversals."""
    counted = [row for row in gpu_softmax(rows, "f32") if row.bytes_measured and row.reps
               and row.ceiling]
    if not counted:
        raise NoData("no GPU softmax has bytes_measured; `make profile 3` counts them")
    shape = collections.Counter((row.rows, row.cols) for row in counted).most_common(1)[0][0]
    here = {row.variant: row for row in gpu_softmax(rows, "f32")
            if (row.rows, row.cols) == shape}
    names = [line for line in TRAFFIC if line[2] in here]
    one = shape[0] * shape[1] * 4
    figure, (axis,) = new_figure(1, 4.4, 0.97)
    figure.subplots_adjust(top=0.9, bottom=0.25)
    for x, (_, _, variant) in enumerate(names):
        row = here[variant]
        bars = [(row.bytes_predicted, "#c8d9e8"), (row.bytes_measured, "#0072b2"),
                (row.median_s * row.ceiling * 1e9, "#d55e00")]
        if variant.startswith("pytorch"):  # nothing is promised or counted for it
            bars[:2] = [(None, ""), (None, "")]
        for n, (value, colour) in enumerate(bars):
            if value:
                axis.bar(x + 0.27 * (n - 1), value / one, 0.25, color=colour)
                axis.annotate(f"{value / one:.2f}".rstrip("0").rstrip("."),
                              (x + 0.27 * (n - 1), value / one), (0, 2), fontsize=7,
                              textcoords="offset points", ha="center")
    for colour, text in (("#c8d9e8", "predicted"), ("#0072b2", "counted by the hardware"),
                         ("#d55e00", "time, as what a copy moves in it")):
        axis.bar(0, 0, color=colour, label=text)
    axis.legend(fontsize=8, frameon=False)
    axis.set_xticks(range(len(names)))
    axis.set_xticklabels([f"{label}\n{text}" for label, text, _ in names])
    value_axis(axis, [8], "traversals of the matrix (G)")
    axis.grid(False, axis="x")
    caption(figure, list(here.values()),
            f"Softmax of [{si(shape[0])}, {si(shape[1])}] floats: traffic becomes time")
    return figure


def draw_gpu_rows(rows):
    """GB/s of one read and one write against row length, a panel a type."""
    figure, axes = new_figure(2, 4.2, 0.89)
    figure.subplots_adjust(wspace=0.5)
    shown = []
    for axis, dtype in zip(axes, ("f32", "bf16")):
        here = [row for row in gpu_softmax(rows, dtype) if math.log2(row.cols) % 1 == 0
                and row.rows > 1]
        ends, lengths, values = [], [], []
        for name, text, colour in (("copy", "copy", "black"),
                                   ("gpu_one_pass", "ours", COLOURS["3"]),
                                   ("pytorch-softmax", "PyTorch", COLOURS["peer"])):
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
        value_axis(axis, [max(values)], "GB/s, one read and one write")
        label_ends(axis, ends)
        shown += here
    caption(figure, shown, f"Softmax of {si(2**28)} elements on a GPU")
    return figure


def main():
    parser = argparse.ArgumentParser(description="Draws the figures from CSV files.")
    parser.add_argument("--results", type=pathlib.Path, help="directory of the CSV files")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where to draw")
    parser.add_argument("--machine", default="", help="part of the machine's name")
    parser.add_argument("--program", help="stage program that computes the attention map")
    parser.add_argument("--fixture", type=pathlib.Path, default="tests/fixture")
    parser.add_argument("--head", type=int, default=9, help="head of the attention map")
    arguments = parser.parse_args()
    if not arguments.results and not arguments.program:
        parser.error("--results or --program is needed")
    plt.rcParams.update(SETTINGS)
    jobs = {}
    if arguments.results:
        rows = read_results(arguments.results, arguments.machine)
        for draw in (draw_length, draw_ceiling, draw_flash, draw_ladder, draw_traffic,
                     draw_error, draw_memory, draw_gpu_traffic, draw_gpu_rows):
            jobs[draw.__name__[5:] + ".png"] = lambda draw=draw: draw(rows)
    if arguments.program:
        jobs["map.png"] = lambda: draw_map(arguments.program, arguments.fixture,
                                           arguments.head)
    arguments.out.mkdir(parents=True, exist_ok=True)
    return 0 if draw_all(jobs, arguments.out) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"plot.py: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"plot.py: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
