"""gallery_figure.py: draws which cases catch which planted bug."""

# The recipes of cases.h, by what they are for.
KINDS = [
    ("plain", "random wide range_80 equal zero_q markers tiny"),
    ("order", "ascending descending outlier"),
    ("level", "shift_20 shift_200 shift_up low large vast"),
    ("masks", "mask_some mask_row mask_first mask_last mask_middle mask_lanes mask_but_one"),
    ("NaN and inf", "nan_q nan_k nan_v nan_v_one nan_v_far inf_k inf_v inf_score"),
    ("", "hang crash test"),
]


def draw_heads(axis, columns, rows):
    """Names of the kinds of cases above, of the families of bugs at the left; bands."""
    x = 0
    for number, (kind, names) in enumerate(KINDS):
        width = sum(name in columns for name in names.split())
        if width and number % 2 == 0:
            axis.axvspan(x - 0.5, x + width - 0.5, color="#f0f0f0", zorder=0)
        if width:
            axis.text(x + width / 2 - 0.5, -0.8, kind, ha="center", va="bottom",
                      fontsize=8.5, fontweight="bold")
        x += width
    for y, row in enumerate(rows):
        if y and row["family"] != rows[y - 1]["family"]:
            axis.axhline(y - 0.5, color="black", linewidth=0.7)


def draw(path, rows):
    """One square where a recipe's cases failed, darker where the bug was meant to."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    meant, other, blind = "#d55e00", "#7fb3d5", "#000000"
    rows = sorted(rows, key=lambda row: row["family"])
    seen = {name for row in rows for name in row["recipes"].split()}
    columns = [name for _, names in KINDS for name in names.split() if name in seen]
    figure, axis = plt.subplots(figsize=(9.2, 2.3 + 0.2 * len(rows)), dpi=160)
    for y, row in enumerate(rows):
        if not set(columns) & set(row["recipes"].split()) and row["recipes"]:
            axis.text(-0.42, y, f"by unit tests: {row['recipes']}/*", color=meant, fontsize=7.5,
                      va="center")
        for x, column in enumerate(columns):
            if column in row["recipes"].split():
                color = meant if column in row["meant_recipes"].split() else other
                axis.add_patch(plt.Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, color=color))
        if row["naive_check"] == "passes":
            axis.plot(len(columns) + 0.3, y, "o", color=blind, markersize=5)
    axis.set_xlim(-0.5, len(columns) + 1.0)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    labels = columns + ["passes a naive check"]
    axis.set_xticks(list(range(len(columns))) + [len(columns) + 0.3], labels, rotation=90,
                    fontsize=8.5)
    axis.set_yticks(range(len(rows)), [row["bug"] for row in rows], fontsize=8.5)
    axis.tick_params(length=0)
    draw_heads(axis, columns, rows)
    handles = [plt.Rectangle((0, 0), 1, 1, color=meant),
               plt.Rectangle((0, 0), 1, 1, color=other),
               plt.Line2D([], [], marker="o", color=blind, linestyle="none", markersize=5)]
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.7 / figure.get_figheight()))
    figure.suptitle(f"Which cases catch which of {len(rows)} planted bugs", x=0.01,
                    y=1 - 0.08 / figure.get_figheight(), ha="left", va="top",
                    fontsize=11, fontweight="bold")
    figure.legend(handles, ["caught by the cases meant for it", "by other cases",
                            "|error| > 1e-2 on random input sees nothing"],
                  loc="upper right", ncols=3, fontsize=8.5, frameon=False,
                  bbox_to_anchor=(1, 1 - 0.36 / figure.get_figheight()))
    figure.savefig(path)
