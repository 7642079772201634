"""pictures.py: draws what the lessons describe: memories, tiles, a timeline.

    python3 common/reports/pictures.py --out DIR [--format svg|png]

memories    the memories of a CPU core and of a GPU's multiprocessor, from small to large
tiles       one tile of the score matrix, and where its numbers live in stages 4 and 5
timeline    the last kernel: what the copy engine, the tensor cores and two warpgroups do when

The timeline is computed from cycle counts, not measured (see `simulate`).  The same
version of matplotlib gives the same bytes.  Exit status: 0 drawn; 2 bad usage; 77 no
matplotlib.
"""
import argparse
import pathlib
import re

from style import matplotlib, plt, save

Q, K, V, S, O = "#9ecae1", "#a1d99b", "#dadaeb", "#fdd0a2", "#fcbba1"
GREY, PALE, DARK = "#d9d9d9", "#f4f4f4", "#444444"


def canvas(width, height, size):
    """A figure without axes whose coordinates run from (0, 0), top left, downwards."""
    fig = plt.figure(figsize=size)
    axes = fig.add_axes([0.01, 0.01, 0.98, 0.98])
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    return fig, axes


def box(axes, x, y, w, h, text="", colour=PALE, size=9, edge=DARK, **more):
    axes.add_patch(plt.Rectangle((x, y), w, h, facecolor=colour, edgecolor=edge,
                                 linewidth=0.8))
    axes.text(x + w / 2, y + h / 2, text, fontsize=size, ha="center", va="center", **more)


def label(axes, x, y, text, size=9, **more):
    axes.text(x, y, text, fontsize=size, **{"ha": "left", "va": "center", **more})


def arrow(axes, start, end, style="->", colour=DARK):
    axes.annotate("", end, start, arrowprops={"arrowstyle": style, "color": colour,
                                              "linewidth": 1, "shrinkA": 0, "shrinkB": 0})


def pyramid(axes, x, title, levels):
    """Memories as a pyramid, the fastest on top: (name, size, who shares it)."""
    label(axes, x + 24, 2.5, title, 11, ha="center", weight="bold")
    for n, (name, size, note, colour) in enumerate(levels):
        width, y = 27 + 21 * n / (len(levels) - 1), 6 + 9 * n
        box(axes, x + 24 - width / 2, y, width, 6.4, "", colour)
        label(axes, x + 24, y + 1.6, name, 9.5, ha="center", weight="bold")
        label(axes, x + 24, y + 3.3, size, 8.5, ha="center")
        label(axes, x + 24, y + 4.95, note, 8.5, ha="center")
        if n:
            arrow(axes, (x + 24, y - 2.6), (x + 24, y), "<->")


def memories(out):
    """Sizes: a core of a recent server CPU; an H200 from its data sheet."""
    fig, axes = canvas(104, 54, (8, 4.5))
    pyramid(axes, 2, "CPU: each core", [
        ("registers", "32 × 64 bytes", "of one core", S),
        ("first-level cache (L1)", "32 to 48 KiB", "of one core", Q),
        ("second-level cache (L2)", "1 to 2 MiB", "of one core", Q),
        ("last-level cache (L3)", "tens of MiB", "shared by the cores", K),
        ("main memory", "hundreds of GiB", "shared by all; tens of GB/s per core", V)])
    pyramid(axes, 54, "GPU: each multiprocessor (SM)", [
        ("registers", "256 KiB", "at most 1 KiB per thread", S),
        ("shared memory", "up to 227 KiB", "of one block of threads", Q),
        ("second-level cache (L2)", "50 MiB or more", "shared by 132 SMs", K),
        ("main memory (HBM)", "141 GB", "shared by 132 SMs; 4.8 TB/s", V),
        ("the host's memory", "hundreds of GiB", "behind a bus; copied before and after", GREY)])
    label(axes, 52, 51.8, "Top: small and fast.  Bottom: large and slow.  On a CPU the caches "
          "fill themselves; a GPU's program fills shared memory.", 9, ha="center")
    keep(fig, out, "memories")


def tiles(out):
    fig, axes = canvas(112, 66, (8, 4.71))
    left, top, columns, rows, cell = 18, 14, 8, 5, 5
    for i in range(rows):
        for t in range(columns):
            colour = S if (i, t) == (2, 4) else GREY if i == 2 and t < 4 else "white"
            box(axes, left + cell * t, top + cell * i, cell, cell, "", colour, edge="#999999")
    right, bottom = left + cell * columns, top + cell * rows
    # the operands
    box(axes, 4, top, 7, cell * rows, "", "white", edge="#999999")
    box(axes, 4, top + 2 * cell, 7, cell, "Q tile", Q)
    box(axes, left, 4, cell * columns, 6, "", "white", edge="#999999")
    box(axes, left + 4 * cell, 4, cell, 6, "K", K)
    box(axes, left, bottom + 4, cell * columns, 6, "", "white", edge="#999999")
    box(axes, left + 4 * cell, bottom + 4, cell, 6, "V", V)
    box(axes, right + 7, top, 7, cell * rows, "", "white", edge="#999999")
    box(axes, right + 7, top + 2 * cell, 7, cell, "o", O)
    label(axes, left + 4.5 * cell, top + 2.5 * cell, "S, P", 9, ha="center")
    label(axes, left + 2 * cell, top + 2.5 * cell, "done and discarded", 8.5, ha="center")
    label(axes, 7.5, top - 2, "queries", 9, ha="center")
    label(axes, 7.5, bottom + 2, "head_dim", 8.5, ha="center", color="#666666")
    label(axes, left, 2, "keys (transposed)", 9)
    label(axes, left, bottom + 12, "values", 9)
    label(axes, right + 10.5, top - 2, "output", 9, ha="center")
    label(axes, left + 3.9 * cell, top - 2, "Bc keys", 8.5, ha="right", color="#666666")
    arrow(axes, (left + 4 * cell, top - 1.2), (left + 5 * cell, top - 1.2), "<->")
    arrow(axes, (13, top + 2 * cell), (13, top + 3 * cell), "<->")
    label(axes, 13.7, top + 3.6 * cell, "Br\nqueries", 8.5, ha="center", va="center",
          color="#666666")
    arrow(axes, (left + 5.2 * cell, top + 2.5 * cell), (right - 0.4, top + 2.5 * cell))
    where(axes, right + 18)
    label(axes, 2, 58, "The score matrix has seqlen_q × seqlen_k elements. One tile of it "
          "exists at a time. The loop goes along a strip of Br", 9)
    label(axes, 2, 61.2, "queries, folds each tile of Bc keys into m, l and o, and discards it. "
          "The strips are independent and run in parallel.", 9)
    keep(fig, out, "tiles")


def tile_size(name):
    """Br or Bc of stage 4's tiles, from the header that defines it."""
    fast = pathlib.Path(__file__).resolve().parents[2] / "04_monoid_tiled_cpu/fast"
    text = "\n".join(path.read_text() for path in sorted(fast.glob("*.h")))
    return re.search(rf"#define {name} (\d+)", text)[1]


def where(axes, x):
    """The table beside the matrix: what lives where."""
    lines = [("", "stage 4:\na core", "stage 5:\na block"),
             ("Q", f"L2 cache\nBr = {tile_size('Br')}", "shared memory\nor registers"),
             ("K, V", f"L2 cache\nBc = {tile_size('Bc')}", "shared memory"),
             ("S, P", "L1 cache", "registers"),
             ("m, l, o", "L2 cache", "registers")]
    colours = ("white", Q, K, S, O)
    for n, (name, core, block) in enumerate(lines):
        y = 6 + 7.4 * n
        box(axes, x, y, 7.4, 7.4, name, colours[n], 9)
        box(axes, x + 7.4, y, 12, 7.4, core, "white", 8)
        box(axes, x + 19.4, y, 14.8, 7.4, block, "white", 8)
    label(axes, x + 17, 46, "main memory: q, k, v, o, lse only", 8.5, ha="center")


# --- The timeline. ---

# Cycles for 64 queries x 128 keys, head_dim 128, on one multiprocessor: a product m64n128k16
# takes n / 2 cycles, eight of them make a tile; the exponential unit takes 16 a cycle.
PRODUCT, EXPONENTIALS, PACK = 8 * 128 // 2, 64 * 128 // 16, 96
LOAD, ISSUE, STAGES = 128 * 128 * 2 // 40, 30, 2  # a tile at 40 bytes a cycle


def simulate(n_tiles):
    """Spans (lane, begin, end, text, colour) of two warpgroups in turn.

    A warpgroup waits for its turn, issues S = Q K^T of tile n and O += P V of tile n - 1,
    passes the turn on, and computes exponentials as soon as S is there.  The tensor cores
    execute in the order of issue.  The producer refills a stage that both have released."""
    spans, tensor, turn = [], 0, 0
    ready = [0, 0]                    # when a warpgroup can take its next turn
    freed = {}                        # (matrix, tile): when the last reader let go
    arrived = {}
    engine = 0

    def load(matrix, n):
        nonlocal engine
        begin = max(engine, freed.get((matrix, n - STAGES), 0))
        engine = begin + LOAD
        arrived[matrix, n] = engine
        spans.append(("copy", begin, engine, f"{matrix}{n}", K if matrix == "K" else V))

    load("K", 0)
    for n in range(n_tiles + 1):
        if n + 1 < n_tiles:
            load("K", n + 1)
        if n < n_tiles:
            load("V", n)
        for w in (0, 1):
            begin = max(ready[w], turn, arrived.get(("K", n), 0) if n < n_tiles else 0)
            turn = begin + ISSUE * 2
            spans.append((w, begin, turn, "", DARK))
            start = max(tensor, begin + ISSUE)
            scores = start
            if n < n_tiles:
                tensor = scores = start + PRODUCT
                spans.append(("tensor", start, tensor, f"S{n}", (Q, O)[w]))
            values = scores
            if n > 0:
                start = max(tensor, arrived["V", n - 1])
                tensor = values = start + PRODUCT
                spans.append(("tensor", start, tensor, f"PV{n - 1}", (Q, O)[w]))
                freed["V", n - 1] = values
            if n < n_tiles:
                freed["K", n] = scores
                end = scores + EXPONENTIALS
                spans.append((w, scores, end, f"exp {n}", S))
                ready[w] = max(end, values) + PACK
                spans.append((w, max(end, values), ready[w], "", GREY))
    return spans


def timeline(out):
    spans = simulate(5)
    begin, end = 0, 7700
    fig = plt.figure(figsize=(8, 3.9))
    axes = fig.add_axes([0.15, 0.29, 0.835, 0.62])
    lanes = {"copy": 3, "tensor": 2, 0: 1, 1: 0}
    for lane, start, stop, text, colour in spans:
        if start >= end or stop <= begin:
            continue
        start, stop = max(start, begin), min(stop, end)
        y = lanes[lane]
        axes.add_patch(plt.Rectangle((start, y - 0.33), stop - start, 0.66, facecolor=colour,
                                     edgecolor="white", linewidth=0.8))
        if stop - start > 300:
            axes.text((start + stop) / 2, y, text, fontsize=8, ha="center", va="center")
    axes.set_xlim(begin, end)
    axes.set_ylim(-0.5, 3.5)
    axes.set_yticks([3, 2, 1, 0])
    axes.set_yticklabels(["producer warp:\ncopy engine", "tensor cores", "consumer\n"
                          "warpgroup 0", "consumer\nwarpgroup 1"], fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("cycles of one multiprocessor, computed from cycle counts, not measured",
                    fontsize=9)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title("The last kernel at head_dim 128: two warpgroups of 64 queries, "
                   "tiles of 128 keys", fontsize=10, loc="left", x=-0.15, weight="bold")
    legend = [(Q, "products of warpgroup 0"), (O, "of warpgroup 1"), (S, "exponentials"),
              (GREY, "pack P"), (DARK, "a turn: issue S(n), PV(n-1)")]
    x = 0.012
    for colour, text in legend:
        fig.patches.append(plt.Rectangle((x, 0.115), 0.014, 0.032, facecolor=colour,
                                         transform=fig.transFigure))
        fig.text(x + 0.018, 0.13, text, fontsize=8, va="center")
        x += 0.034 + 0.0102 * len(text)
    fig.text(0.012, 0.045, "While one warpgroup computes exponentials, the tensor cores multiply "
             "for the other.", fontsize=9, va="center")
    keep(fig, out, "timeline")


def keep(fig, out, name):
    """out: directory and format."""
    where, kind = out
    path = where / f"{name}.{kind}"
    save(fig, path)
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--format", default="svg", choices=("svg", "png"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams.update({"svg.hashsalt": "notes", "font.size": 9, "savefig.dpi": 100})
    for draw in (memories, tiles, timeline):
        draw((arguments.out, arguments.format))


if __name__ == "__main__":
    main()
