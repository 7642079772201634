"""plot_lengths.py: figures against the length of the sequence: time, throughput, share of the
ceiling, memory; of every stage its fastest variant on the same work.  For plot.py.
"""
from results import NoData, best_lines, describe_work, same_work, where_of
from style import (COLOURS, caption, label_ends, length_axis, name_of, new_figure, stacked,
                   value_axis)

KEYS = "keys, and as many queries"


def style_of(label):
    """How a line of best_lines() looks; earlier stages are wider, so that equal lines show."""
    stage = label.split()[0]
    wide = 3.4 - 0.45 * int(stage) if stage in COLOURS else 1.2
    return {"color": COLOURS.get(stage, COLOURS["peer"]), "linewidth": wide,
            "markersize": 2.6 + wide,
            "marker": "s" if "(GPU)" in label else "o",
            "linestyle": "-" if stage in COLOURS and "(on CPU)" not in label else "--"}


def draw_lines(axis, lines, column, unit, name, ceiling=None, scale=1):
    """Lines of best_lines() with labels at their ends."""
    values = [getattr(row, column) / scale for rows in lines.values() for row in rows]
    ends = []
    for label, rows in lines.items():
        kind = style_of(label)
        axis.plot([row.length for row in rows],
                  [getattr(row, column) / scale for row in rows], **kind)
        text = f"{name_of(rows[-1])} ({where_of(rows[-1])})" if rows[-1].stage == "peer" \
            else label
        ends.append((rows[-1].length, getattr(rows[-1], column) / scale, text,
                     kind["color"]))
    for height, text in ceiling or []:
        axis.axhline(height, color="black", linewidth=1, linestyle=":")
        ends.append((max(row.length for rows in lines.values() for row in rows), height,
                     text, "black"))
        values.append(height)
    length_axis(axis, [row.length for rows in lines.values() for row in rows], name)
    value_axis(axis, values, unit)
    label_ends(axis, ends)


def draw_length(rows):
    """Time and throughput against length, all stages, the same work."""
    chosen = same_work([row for row in rows if row.op == "attention" and row.gflops])
    lines = best_lines(chosen, "median_s")
    figure, axes = stacked(2, 3.25, gap=0.3)
    draw_lines(axes[0], lines, "median_s", "seconds", KEYS)
    peaks = {}
    for row in (row for line in lines.values() for row in line):
        if row.ceiling and row.ceiling_kind in ("fma", "gemm"):
            what = "multiply-adds" if row.ceiling_kind == "fma" else "GEMM"
            peak = f"{where_of(row)[-3:]} ceiling: {what}"
            peaks[peak] = max(row.ceiling, peaks.get(peak, 0))
    draw_lines(axes[1], lines, "gflops", "GFLOP/s", KEYS,
               [(height, text) for text, height in peaks.items()])
    shown = [row for line in lines.values() for row in line]
    caption(figure, shown, f"How does time grow with the length? {describe_work(chosen[0])}",
            "The fastest variant of each stage. Ceilings: multiply-adds from registers (CPU), "
            "a cuBLAS matrix product (GPU).")
    return figure


def draw_ceiling(rows):
    """Percent of the ceiling against length: softmax above, attention below."""
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
    figure, axes = stacked(len(panels), 3.25)
    for axis, (chosen, lines) in zip(axes, panels):
        kinds = sorted({row.ceiling_kind for row in chosen if row.ceiling_kind})
        draw_lines(axis, lines, "pct_ceiling", "percent of the ceiling",
                   "columns" if chosen[0].op == "softmax" else KEYS,
                   [(100, f"ceiling: {', '.join(kinds)}")])
        axis.set_title(describe_work(chosen[0]), fontsize=8.5, loc="left")
    shown = [row for _, lines in panels for line in lines.values() for row in line]
    caption(figure, shown, "How much of the machine each stage uses",
            "Ceilings of the same run: copying the array; multiply-adds from registers; a GPU's "
            "matrix product (gemm).\nAbove 100 %: rows that stay in a cache between two loops "
            "are read from memory only once.")
    return figure


def draw_memory(rows):
    """Memory of attention against length, of each stage's fastest variant."""
    chosen = same_work([row for row in rows if row.op == "attention" and row.peak_bytes])
    lines = best_lines(chosen, "median_s")
    figure, (axis,) = new_figure(1, 4.4, 0.76)
    figure.subplots_adjust(top=0.9, bottom=0.22)
    draw_lines(axis, lines, "peak_bytes", "MiB", KEYS, scale=1 << 20)
    steps = " The driver of a GPU gives memory in steps of 2 MiB." \
        if any(row.device == "gpu" for line in lines.values() for row in line) else ""
    caption(figure, [row for line in lines.values() for row in line],
            f"Which stages store the scores? Memory of {describe_work(chosen[0])}",
            "Inputs, outputs and what the variant needs beside them." + steps)
    return figure
