"""plot_checks.py: theory against measurement: bytes, and errors.  For plot.py."""
import collections

from results import NoData, where_of
from style import (COLOURS, caption, label_ends, matplotlib, new_figure, plain, plt,
                   value_axis)


def draw_traffic(rows):
    """Bytes predicted against bytes measured, with the diagonal."""
    chosen = [row for row in rows if row.bytes_predicted and row.bytes_measured]
    if not chosen:
        raise NoData("no measurement has bytes_measured")
    figure, (axis,) = new_figure(1, 5.2, 0.76)
    figure.subplots_adjust(top=0.92, bottom=0.18)
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
    caption(figure, chosen, "Does the hardware move the bytes that the model predicts?",
            "Below the line: a cache kept what the model reads again.  Above it: scattered "
            "loads, whose sectors came more than once.")
    return figure


def error_groups(rows):
    """{(stage, device, type, softmax or attention): {variant: largest share of the allowed
    error}}; a NaN is infinitely much."""
    groups = collections.defaultdict(dict)
    for row in rows:
        if row.max_err is None or not row.allowed_err or row.stage == "peer":
            continue
        kind = "softmax" if "softmax" in row.op else "attention"
        share = row.max_err / row.allowed_err
        share = share if share == share else float("inf")
        line = groups[row.stage, where_of(row), row.dtype, kind]
        line[row.variant] = max(share, line.get(row.variant, 0))
    if not groups:
        raise NoData("no measurement has max_err and allowed_err")
    return groups


def draw_error(rows):
    """A line a stage, device, type and operation; a dot a variant; the worst one named."""
    groups = error_groups(rows)
    keys = sorted(groups, key=lambda key: (key[0], key[1], key[3], key[2]))
    figure, axis = plt.subplots(figsize=(8, 1.3 + 0.2 * len(keys)))
    tall = figure.get_figheight()
    figure.subplots_adjust(left=0.23, right=0.97, top=1 - 0.4 / tall, bottom=0.9 / tall)
    for place, key in enumerate(reversed(keys)):
        worst = max(groups[key], key=groups[key].get)
        for share in groups[key].values():
            axis.plot(min(share, 1.3), place, "o", markersize=4.5, alpha=0.75,
                      color=COLOURS[key[0]] if share <= 1 else "red")
        at = min(groups[key][worst], 1.3)
        more = len(groups[key]) - 1
        left = 0.6 < at <= 1  # or the name would cross the limit
        axis.annotate(worst + (f" and {more} more" if more else ""), (at, place),
                      (-6 if left else 6, 0), textcoords="offset points", fontsize=7.5,
                      va="center", ha="right" if left else "left", color=COLOURS[key[0]])
    axis.axvline(1, color="black", linewidth=1)
    axis.set_yticks(range(len(keys)))
    axis.set_yticklabels([f"{stage}  {kind}, {dtype} ({where})"
                          for stage, where, dtype, kind in reversed(keys)], fontsize=8)
    axis.set_ylim(-0.7, len(keys) - 0.3)
    axis.set_xlim(0, 1.4 if any(s > 1 for g in groups.values() for s in g.values())
                  else 1.04)
    axis.set_xlabel("largest error as a share of the allowed error (1: the limit)",
                    fontsize=9)
    plain(axis)
    used = [row for row in rows if row.max_err is not None and row.allowed_err]
    caption(figure, used, "How close does any variant come to its error limit?",
            "One dot per variant; the name belongs to the one nearest to the limit.")
    return figure
