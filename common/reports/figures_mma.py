"""figures_mma.py: draws how a warp's lanes hold matrices, and where rows lie in banks.

    python3 common/reports/figures_mma.py --out DIR

fragments.png   C fragments beside the A fragment that they become, and B
swizzle.png     eight rows of 128 bytes in shared memory: plain, padded, swizzled

The same version of matplotlib gives the same bytes.  Exit status: 0 drawn; 2 bad usage;
77 no matplotlib.
"""
import argparse
import pathlib

from style import matplotlib, plt, save

COLOURS = ["#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcbba1", "#d9d9d9", "#c7e9c0",
           "#fdae6b"]


def lane_of_c(row, column):
    """Lane and register that hold an element of C (16 x 8), as in mma_sync.h."""
    return 4 * (row % 8) + column // 2, 2 * (row // 8) + column % 2


def lane_of_a(row, column):
    """The same for A (16 x 16); a register holds two elements."""
    return 4 * (row % 8) + column % 8 // 2, row // 8 + 2 * (column // 8)


def lane_of_b(row, column):
    """The same for B (16 x 8)."""
    return 4 * column + row % 8 // 2, row // 8


def grid(axes, x0, y0, rows, columns, cell):
    """Cells with a colour and a text; cell(row, column) gives both.  y grows down."""
    for row in range(rows):
        for column in range(columns):
            colour, text = cell(row, column)
            axes.add_patch(plt.Rectangle((x0 + column, y0 + row), 1, 1, facecolor=colour,
                                         edgecolor="white", linewidth=0.6))
            axes.text(x0 + column + 0.5, y0 + row + 0.52, text, fontsize=5, ha="center",
                      va="center")


def canvas(width, height, size):
    fig, axes = plt.subplots(figsize=size, layout="constrained")
    axes.set_xlim(-1, width)
    axes.set_ylim(height, -2.4)
    axes.set_aspect("equal")
    axes.axis("off")
    return fig, axes


def legend(axes, x, y, names):
    for i, name in enumerate(names):
        axes.add_patch(plt.Rectangle((x + 3 * i, y), 0.9, 0.9, facecolor=COLOURS[i]))
        axes.text(x + 3 * i + 1.1, y + 0.5, name, fontsize=7, va="center")


def fragments(out):
    """The number in a cell is its lane, the colour its register."""
    fig, axes = canvas(55, 18.6, (8.2, 3.3))

    def held(where):
        def cell(row, column):
            lane, register = where(row, column)
            return COLOURS[register], str(lane)
        return cell
    for tile in range(2):
        grid(axes, 8.6 * tile, 0, 16, 8, held(lane_of_c))
        axes.text(8.6 * tile + 4, -0.5, f"C of keys {8 * tile}-{8 * tile + 7}",
                  fontsize=8, ha="center")
    axes.annotate("", (22, 8), (17.2, 8), arrowprops={"arrowstyle": "->"})
    axes.text(19.6, 7.4, "exp, pack", fontsize=7, ha="center")
    grid(axes, 22.6, 0, 16, 16, held(lane_of_a))
    axes.text(30.6, -0.5, "A = P, 16 queries x 16 keys", fontsize=8, ha="center")
    axes.text(40, 8, "x", fontsize=12, ha="center", va="center")
    grid(axes, 41.4, 0, 16, 8, held(lane_of_b))
    axes.text(45.4, -0.5, "B = V, 16 keys x 8", fontsize=8, ha="center")
    legend(axes, 2.5, 17, [f"c[{i}]" for i in range(4)])
    legend(axes, 25, 17, [f"a[{i}]" for i in range(4)])
    legend(axes, 42.5, 17, ["b0", "b1"])
    axes.set_title("Two neighbouring results hold the same elements in the same lanes as "
                   "one operand", fontsize=9)
    keep(fig, out, "fragments.png")


def swizzle(out):
    """Bank group (16 bytes wide, 8 in all) of piece p of row r; ldmatrix reads piece 2 of
    all eight rows at once."""
    fig, axes = canvas(34, 10.6, (8.2, 3.0))
    layouts = (("rows of 128 bytes:\n8 reads meet one group", lambda r, p: p),
               ("one piece of padding:\n8 different groups",
                lambda r, p: (r * 9 + p) % 8),
               ("swizzle p ^ (r % 8):\n8 different groups", lambda r, p: p ^ r % 8))
    for i, (name, place) in enumerate(layouts):
        x0 = 12 * i

        def cell(row, column, place=place):
            piece = [p for p in range(8) if place(row, p) == column][0]
            return COLOURS[piece], str(piece)
        grid(axes, x0, 0, 8, 8, cell)
        for row in range(8):
            axes.add_patch(plt.Rectangle((x0 + place(row, 2), row), 1, 1, fill=False,
                                         edgecolor="black", linewidth=1.4))
            axes.text(x0 - 0.3, row + 0.5, str(row), fontsize=6, ha="right", va="center")
        axes.text(x0 + 4, -0.4, name, fontsize=8, ha="center")
        axes.text(x0 + 4, 9, "bank group", fontsize=7, ha="center")
    axes.text(17, 10.2, "rows down, 16-byte pieces by number and colour; framed: what one "
              "ldmatrix reads", fontsize=7, ha="center")
    keep(fig, out, "swizzle.png")


def keep(fig, out, name):
    save(fig, out / name)
    print(out / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams.update({"font.size": 9, "savefig.dpi": 160})
    fragments(out)
    swizzle(out)


if __name__ == "__main__":
    main()
