"""figures_gpu.py: the last rung beside the libraries, softmax on a GPU, several GPUs."""
import itertools

from ladder import LAST
from registry import figure
from results import each, need, read_lines
from style import (COLOURS, caption, label_ends, length_axis, name_of, offset, plain, plt, stacked,
                   value_axis)
from tables_gpu import is_tuned
from words import panel_text, si

GEMM = "a cuBLAS matrix product of 8192 × 8192 × 8192 in the same run"
OVER_GEMM = ("It is a yardstick, no bound: under the power limit a kernel that spends less power per "
             "product can pass it.")


@figure("flash.png", "bench")
def flash(data):
    """Throughput of 16-bit attention against length: the last rung of stage 5 and the libraries."""
    rows = data.beside_peers.query("run == 0 and regime == 'cold' and layout == 'bhld'")
    rows = rows[is_tuned(rows) & ((rows.stage == "peer") | (rows.variant == LAST))]
    rows = rows[rows.groupby(["head_dim", "causal"]).length.transform("nunique") > 1]
    dims = sorted({*need(rows, "no bf16 measurement of stage 5 on a GPU at several lengths").head_dim})
    tall = 1.05 + 2.5 * len(dims)
    drawn, axes = plt.subplots(len(dims), 2, figsize=(8, tall), squeeze=False)
    drawn.subplots_adjust(left=0.07, right=0.835, top=1 - 0.55 / tall,
                          bottom=1.05 / tall, wspace=0.78, hspace=0.42)
    for (dim, causal), axis in zip(itertools.product(dims, (0, 1)), axes.flat):
        flash_panel(axis, rows[(rows.head_dim == dim) & (rows.causal == causal)])
        axis.set_title(panel_text(dim, causal).replace("d =", "head_dim"), fontsize=8.5, loc="left")
    caption(drawn, each(rows), "The last rung and the libraries: attention, bf16, 16k tokens",
            f"Dotted: {GEMM}.\n{OVER_GEMM}")
    return drawn


def flash_panel(axis, rows):
    """One panel: a line each, and the matrix product."""
    ends = []
    for (stage, _), line in rows.sort_values("length").groupby(["stage", "variant"], sort=False):
        axis.plot(line.length, line.gflops / 1000, "s-" if stage == "5" else "s--",
                  color=COLOURS[stage], linewidth=1.4, markersize=3)
        last = each(line)[-1]
        ends.append((last.length, last.gflops / 1000, name_of(last), COLOURS[stage]))
    ceiling = rows.ceiling.max() / 1000
    axis.axhline(ceiling, color="black", linewidth=1, linestyle=":")
    ends.append((rows.length.max(), ceiling, "cuBLAS GEMM", "black"))
    length_axis(axis, rows.length, "keys")
    value_axis(axis, [max(rows.gflops.max() / 1000, ceiling)], "TFLOP/s")
    label_ends(axis, ends)


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

    def bar(axis, place, length, text, expected, colour):
        axis.barh(place, length, 0.62, color=colour)
        offset(axis, text, (length, place), (4, 0))
        axis.plot([expected] * 2, [place - 0.42, place + 0.42], color="black", linewidth=1.6)
    for place, row in enumerate(here):
        moved, colour = row.bytes_measured / one, COLOURS[row.stage]
        if moved:
            bar(left, place, moved, f"{moved:.2f}", row.bytes_predicted / one, colour)
        else:
            left.text(0.1, place, "not counted", fontsize=8, va="center", color=colour)
        bar(right, place, row.median_s * 1e3, f"{row.median_s * 1e3:.2f}",
            row.bytes_measured / row.ceiling * 1e-6 or None, colour)
    left.set_yticks(range(len(here)), ["PyTorch" if row.stage == "peer" else
                                       f"{row.stage} {row.variant.removeprefix('gpu_')}"
                                       for row in here], fontsize=8.5)
    left.invert_yaxis()
    for axis, title, text, most in (
            (left, "reads and writes of the whole matrix",
             "bar: counted by the hardware; mark: predicted", max(row.bytes_measured for row in here) / one),
            (right, "time, ms", "mark: what a copy needs for the same bytes",
             1e3 * max(row.median_s for row in here))):
        axis.set_title(title, fontsize=9, loc="left")
        axis.set(xlabel=text, xlim=(0, 1.14 * most))
        plain(axis, "x")
        axis.tick_params(axis="y", length=0)
    caption(drawn, here, f"Does time follow traffic? Softmax of [{si(here[0].rows)}, "
            f"{si(here[0].cols)}] floats",
            f"The matrix has {one / 1e9:.2f} GB. The number before a name is its stage. "
            f"Kernels below {SLOWEST} % of a copy are left out.")
    return drawn


# --- Several GPUs ---

@figure("ring_in_time.png", "ladder")
def ring_in_time(data):
    """What each GPU computes and copies in each step of a real run, a panel for each way to cut a
    causal problem."""
    lines = data.file("multi_gpu/timeline.csv", read_lines).query("causal == '1'").astype(
        {"rank": int, "step": int, "begin_ms": float, "end_ms": float})
    titles = {"ring": "zigzag chunks", "ring-unbalanced": "contiguous chunks"}
    drawn, axes = stacked(len(titles), 1.5, right=0.97, left=0.13, gap=0.55)
    end, ranks = lines.end_ms.max(), 1 + lines["rank"].max()
    for axis, (kind, title) in zip(axes, titles.items()):
        here = need(lines[lines.strategy == kind], f"timeline.csv has no {kind}")
        for x in each(here.drop_duplicates(["rank", "step", "what"], keep="last")):
            copies, long = x.what == "copy", x.end_ms - x.begin_ms
            y = 2.4 * (ranks - 1 - x.rank) + (not copies)
            axis.barh(y, long, left=x.begin_ms, height=0.8,
                      color=COLOURS["2"] if copies else COLOURS["4"], edgecolor="white")
            if copies:
                axis.text(x.end_ms + end / 100, y, f"keys and values travel: {long:.1f} ms",
                          fontsize=8, color=COLOURS["2"], va="center")
            elif long > end / 20:
                axis.text(x.begin_ms + long / 2, y, f"step {x.step + 1}: {long:.1f} ms",
                          color="white", fontsize=8, ha="center", va="center")
        axis.set_yticks([2.4 * (ranks - 1 - r) + 0.5 for r in range(ranks)],
                        [f"GPU {r}" for r in range(ranks)])
        axis.set_xlim(0, 1.02 * end)
        axis.set_title(title, fontsize=9, loc="left")
        plain(axis, "x")
    axes[-1].set_xlabel("milliseconds from the begin of the call")
    caption(drawn, each(data.file("multi_gpu/times.csv")),
            "The ring in time: causal, 64k x 64k, 16 heads, d = 128, bf16",
            "One call, by the events of the GPUs. Copies run under the kernels.")
    return drawn
