"""figures_gpu.py: the last rung beside the libraries, several GPUs, and a training of
common/products/library/models."""
import itertools

from ladder import LAST
from registry import figure
from results import each, need, read_lines
from style import COLOURS, caption, label_ends, length_axis, name_of, plain, plt, stacked, value_axis
from tables_gpu import is_tuned
from words import panel_text

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


# --- Training ---

@figure("training.svg", "ladder", svg_hashsalt="notes", font_size=9)
def training(data):
    """A small language model trained with both attentions: notes/serving.md."""
    rows = data.file("library/training.csv", read_lines)
    rows = rows.astype({"step": float, "loss": float})
    drawn, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    axes.set(xlabel="step", ylabel="loss, nats per character")
    axes.spines[["top", "right"]].set_visible(False)
    for name, words, width, colour in (("pytorch", "PyTorch", 3.5, "#f2b0b0"),
                                       ("five_steps", "ours", 1, "tab:blue")):
        one = rows[rows.attention == name]
        axes.plot(one.step, one.loss, color=colour, linewidth=width, label=words)
    axes.legend(frameon=False, title=f"{rows.machine[0]}, {rows.date[0][:10]}")
    return drawn
