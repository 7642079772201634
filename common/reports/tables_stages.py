"""tables_stages.py: the tables of the stages, mostly on a CPU.  For tables.py."""
import collections

from results import (NoData, best_lines, describe_work, listed, same_work, share_of, si, where_of,
                     work_of)
from tables_text import provenance, rate, seconds, significant, table


def by_length(rows, op, column, show, unit):
    """A line a length, a column a stage's fastest variant."""
    chosen = same_work([row for row in rows if row.op == op])
    lines = best_lines([row for row in chosen if getattr(row, column)], "median_s")
    lengths = sorted({row.length for line in lines.values() for row in line})
    cells = [[si(length)] for length in lengths]
    for line in lines.values():
        known = {row.length: row for row in line}
        for cell, length in zip(cells, lengths):
            cell.append(show(known[length]) if length in known else "")
    what = describe_work(chosen[0])
    return ([f"{what[0].upper()}{what[1:]}; {unit}.", ""]
            + table(["length"] + list(lines), cells)
            + provenance([row for line in lines.values() for row in line]))


def attention_table(rows):
    def show(row):
        return f"{seconds(row.median_s)}, {significant(row.gflops or 0)}"
    return by_length(rows, "attention", "median_s", show, "median time, GFLOP/s")


def softmax_table(rows):
    def show(row):
        return f"{seconds(row.median_s)}, {significant(row.gbps or 0)}"
    return by_length(rows, "softmax", "median_s", show, "median time, GB/s")


def memory_table(rows):
    return by_length(rows, "attention", "peak_bytes",
                     lambda row: significant(row.peak_bytes / (1 << 20)),
                     "peak memory in MiB")


def compared(row, rows):
    """row, if its output was compared with the reference; else the longest line of the same
    variant that was, or None."""
    alike = [other for other in rows if other.max_err is not None and other.allowed_err
             and (other.variant, other.dtype, where_of(other), other.seqlen_q == 1)
             == (row.variant, row.dtype, where_of(row), row.seqlen_q == 1)]
    return row if row in alike else max(alike, key=lambda other: other.length, default=None)


def stage_table(rows, stage, op):
    chosen = [row for row in rows if row.stage == stage and row.op == op]
    if not chosen:
        raise NoData(f"no measurement of {op} in stage {stage}")
    latest = {}
    for row in sorted(chosen, key=lambda row: (row.seqlen_q == row.seqlen_k,
                                               row.length or 0, row.dtype == "f32",
                                               not row.causal, row.head_dim == 128)):
        latest[row.variant, row.dtype, where_of(row)] = row
    place = listed(stage)
    first = {row.variant: n for n, row in reversed(list(enumerate(chosen)))}
    cells = []
    for (variant, dtype, where), row in sorted(
            latest.items(), key=lambda item: (
                stage != "5" and item[1].device == "gpu",
                place.get(item[0][0], len(place)), first[item[0][0]])):
        speed = rate(row.gflops) if row.gflops else \
            f"{significant(row.gbps)} GB/s" if row.gbps else ""
        share = share_of(row, row.ceiling_kind)
        traffic = " / ".join(significant(value / 1e6) if value else "–"
                             for value in (row.bytes_predicted, row.bytes_measured))
        near = compared(row, chosen)
        error = f"{near.max_err:.1e} / {near.allowed_err:.1e}" if near else ""
        if near and near is not row:
            error += f" at {si(near.length)}"
        if not near and row.max_err is not None:
            error = f"{row.max_err:.1e} / –"
        size = si(row.length or 0) + (f", d = {row.head_dim:.0f}" if row.seqlen_k else "") \
            + (f", {row.seqlen_q:.0f} query" if row.seqlen_q != row.seqlen_k else "")
        cells.append([variant, where, dtype, size, seconds(row.median_s), speed, share,
                      traffic, error])
    header = ["variant", "where", "type", "length", "median", "rate", "ceiling",
              "MB predicted / measured", "error / allowed"]
    return table(header, cells) + provenance(chosen)


# What theory counts: loops over a row of softmax, the bytes per element that move, and
# those per score of attention beyond q, k, v and o.
COUNTS = {
    "1": ("1 naive", "`exp(x) / sum`, and it overflows", 2, 12, 20),
    "2": ("2 safe", "subtract the maximum: one loop more",
          3, 16, 24),
    "3": ("3 online",
          "maximum and sum in one loop, corrected on the way", 2, 12, 0),
    "4": ("4 monoid",
          "the correction is a monoid: split, merge, tile, all cores", 2, 12, 0),
    "5": ("5 flash",
          "the same fold on a GPU, up a ladder of kernels", "–", "–", 0),
}


def stages_table(rows):
    chosen = [row for row in same_work([row for row in rows if row.op == "attention"])
              if row.gflops and row.device == ("gpu" if row.stage == "5" else "cpu")]
    done = {stage: {row.length for row in chosen if row.stage == stage} for stage in COUNTS}
    common = set.intersection(*done.values())
    if not common:
        raise NoData("no length of attention that all five stages have done")
    chosen = [row for row in chosen if row.length == max(common)]
    cells = []
    for stage, (name, idea, loops, element, score) in COUNTS.items():
        mine, place = [row for row in chosen if row.stage == stage], listed(stage)
        plain = min(mine, key=lambda row: place.get(row.variant, len(place)))
        best = max(mine, key=lambda row: row.gflops)
        speeds = [f"{rate(row.gflops)} (`{row.variant}`)" for row in (plain, best)]
        cells.append([name, idea, str(loops), str(element), str(score),
                      significant(best.peak_bytes / (1 << 20)), *speeds])
    what = describe_work(chosen[0])
    return (table(["stage", "idea", "loops", "bytes per element", "bytes per score",
                   "memory, MiB", "plain", "fastest"], cells)
            + ["", f"Loops over a row and bytes per element: softmax, by theory. Bytes per score: what "
               f"attention moves beyond q, k, v and o, by theory. Memory: arrays and workspace "
               f"of the fastest. Measured: {what}, {si(max(common))} keys."]
            + provenance([row for row in chosen if row.stage in COUNTS]))


def shape_text(row):
    """'4 x 16384' or '16 heads, 1 x 8192, d = 128, causal'."""
    if not row.seqlen_k:
        return f"{row.rows:.0f} × {si(row.cols)}"
    heads = f"{row.heads_q:.0f} heads, " if row.heads_q > 1 else ""
    return (f"{heads}{row.seqlen_q:.0f} × {row.seqlen_k:.0f}, d = {row.head_dim:.0f}"
            + (", causal" if row.causal else ""))


def limits_table(rows, op):
    chosen = [row for row in rows if row.op == op and row.device == "cpu"
              and row.stage in "1234"]
    shapes = list(dict.fromkeys(shape_text(row) for row in sorted(
        chosen, key=lambda row: ((row.rows or 0) * (row.cols or 0), row.seqlen_q == 1,
                                 row.causal or 0, row.head_dim or 0, row.length))))
    lines = collections.defaultdict(dict)
    for row in sorted(chosen, key=lambda row: row.stage):
        speed = (row.median_s * 1e9 / row.rows / row.cols if op == "softmax" else
                 row.gbps if row.ceiling_kind == "read" else row.gflops)
        share = f" ({share_of(row)})" if row.pct_ceiling else ""
        lines[row.stage, row.variant, row.threads][shape_text(row)] = \
            f"{significant(speed)}{share}"
    lines = {key: line for key, line in lines.items() if 2 * len(line) > len(shapes)}
    if not lines:
        raise NoData(f"no CPU variant did {op} on most shapes")
    names = [f"{stage} {variant}, {threads:.0f} thread{'s' if threads > 1 else ''}"
             for stage, variant, threads in lines]
    unit = ("ns per element" if op == "softmax" else
            "GFLOP/s, with one query GB/s") + " (percent of the ceiling)"
    if op == "softmax":
        cells = [[name] + [line.get(shape, "") for shape in shapes]
                 for name, line in zip(names, lines.values())]
        body = table(["stage, variant"] + shapes, cells)
    else:
        cells = [[shape] + [line.get(shape, "") for line in lines.values()]
                 for shape in shapes]
        body = table(["shape"] + names, cells)
    return [f"{unit}.", ""] + body + provenance(chosen)


def machines_table(rows, every):
    """A line a CPU: of every stage its plain attention, then the fastest of stage 4 and
    PyTorch's, on the work of the other tables at the longest length."""
    cpus = collections.defaultdict(list)
    for row in every:
        if row.op == "attention" and row.device == "cpu" and row.gflops:
            cpus[row.machine].append(row)
    cpus = {name: mine for name, mine in cpus.items()
            if len({row.stage for row in mine} & set("1234")) == 4}
    if not cpus:
        raise NoData("no CPU with measurements of stages 1 to 4")
    work = work_of(same_work([row for row in rows if row.op == "attention"
                              and row.device == "cpu"])[0])
    here = {name: [row for row in mine if work_of(row) == work]
            for name, mine in cpus.items()}
    done = [set.intersection(*({r.length for r in mine if r.stage == s} for s in "1234"))
            for mine in here.values() if mine]
    first = {(stage, name) for stage in "1234" for name, place in listed(stage).items()
             if place == 0}
    length = max(set.intersection(*done), default=None, key=lambda n: (sum(
        (r.stage, r.variant) in first for mine in here.values() for r in mine
        if r.length == n), n))
    if length is None:
        raise NoData("no length of attention that all CPUs have done")
    cells, used = [], []
    for name, mine in sorted(here.items()):
        mine = [row for row in mine if row.length == length]
        line = [name]
        for stage in "1234":
            place = listed(stage)
            line.append(significant(min((r for r in mine if r.stage == stage), key=lambda r:
                                        place.get(r.variant, len(place))).gflops))
        best = max((r for r in mine if r.stage == "4"), key=lambda r: r.gflops)
        share = f" ({share_of(best)})" if best.pct_ceiling else ""
        peer = max((r.gflops for r in mine if r.stage == "peer"), default=None)
        cells.append(line + [f"{significant(best.gflops)}{share}",
                             significant(peer) if peer else ""])
        used += mine
    header = ["CPU", "1 plain", "2 plain", "3 plain", "4 plain", "4 fastest (of the ceiling)",
              "PyTorch"]
    return ([f"GFLOP/s; {describe_work(used[0])}, {si(length)} keys.", ""]
            + table(header, cells) + provenance(used))
