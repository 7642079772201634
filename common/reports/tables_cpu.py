"""tables_cpu.py: the tables of the stages, mostly on a CPU."""
from ladder import listed
from registry import table
from results import NoData, best_lines, describe_work, each, need, same_work
from words import (grid, in_brackets, markdown, provenance, rate, seconds, share_of, si,
                   significant)


@table("(attention|softmax)")
def by_length(data, op):
    """A line a length, a column a stage's fastest variant."""
    chosen = same_work(data.rows[data.rows.op == op])
    lines, cells = best_lines(chosen), {}
    for name, line in lines.items():
        for row in line:
            speed = row.gflops if op == "attention" else row.gbps
            cells[row.length, name] = f"{seconds(row.median_s)}, {significant(speed)}"
    known = {(si(length), name): text for (length, name), text in cells.items()}
    what = describe_work(each(chosen)[0])
    unit = "GFLOP/s" if op == "attention" else "GB/s"
    return ([f"{what[0].upper()}{what[1:]}; median time, {unit}.", ""]
            + grid(["length", *lines], known, [si(n) for n in sorted({n for n, _ in cells})],
                   lines)
            + provenance(row for line in lines.values() for row in line))


# --- One stage ---

def error_text(row, rows):
    """'4.0e-07 / 2.0e-06', the error and the allowed one; where the output was too long to be
    compared, of the longest line of the same variant that was, with its length."""
    alike = rows[rows.max_err.notna() & (rows.allowed_err > 0) & (rows.variant == row.variant)
                 & (rows.dtype == row.dtype) & (rows.on == row.on)
                 & ((rows.seqlen_q == 1) == (row.seqlen_q == 1))]
    if row.max_err == row.max_err and row.allowed_err > 0:
        return f"{row.max_err:.1e} / {row.allowed_err:.1e}"
    if len(alike):
        near = alike.loc[alike.length.idxmax()]
        return f"{near.max_err:.1e} / {near.allowed_err:.1e} at {si(near.length)}"
    return f"{row.max_err:.1e} / –" if row.max_err == row.max_err else ""


@table("stage-([1-5])-([a-z_]+)")
def stage_table(data, stage, op):
    """Every variant of a stage doing one operation at its largest length, square if it can be."""
    chosen = data.rows.query("stage == @stage and op == @op").reset_index(drop=True)
    need(chosen, f"no measurement of {op} in stage {stage}")
    place, first = listed(stage), {name: n for n, name in enumerate(chosen.variant.unique())}
    latest = {}
    for row in sorted(each(chosen), key=lambda row: (
            row.seqlen_q == row.seqlen_k, row.length, row.dtype == "f32", not row.causal,
            row.head_dim == 128)):
        latest[row.variant, row.dtype, row.on] = row
    cells = []
    for row in sorted(latest.values(), key=lambda row: (
            stage != "5" and row.device == "gpu", place.get(row.variant, len(place)),
            first[row.variant])):
        size = si(row.length) + (f", d = {row.head_dim:.0f}" if row.seqlen_k else "") \
            + (f", {row.seqlen_q:.0f} query" if row.seqlen_q != row.seqlen_k else "")
        traffic = " / ".join(significant(value / 1e6) if value else "–"
                             for value in (row.bytes_predicted, row.bytes_measured))
        cells.append([row.variant, row.on, row.dtype, size, seconds(row.median_s),
                      rate(row.gflops) if row.gflops else
                      f"{significant(row.gbps)} GB/s" if row.gbps else "",
                      share_of(row, row.ceiling_kind), traffic, error_text(row, chosen)])
    return markdown(["variant", "where", "type", "length", "median", "rate", "ceiling",
                     "MB predicted / measured", "error / allowed"], cells) \
        + provenance(each(chosen))


# --- All stages ---

# What theory counts: loops over a row of softmax, the bytes per element that move, and
# those per score of attention beyond q, k, v and o.
COUNTS = {
    "1": ("1 naive", "`exp(x) / sum`, and it overflows", "2", "12", "20"),
    "2": ("2 safe", "subtract the maximum: one loop more", "3", "16", "24"),
    "3": ("3 online", "maximum and sum in one loop, corrected on the way", "2", "12", "0"),
    "4": ("4 monoid", "the correction is a monoid: split, merge, tile, all cores", "2", "12",
          "0"),
    "5": ("5 flash", "the same fold on a GPU, up a ladder of kernels", "–", "–", "0"),
}


def plainest(rows, stage):
    """The first of the stage's list."""
    place = listed(stage)
    return min(rows, key=lambda row: place.get(row.variant, len(place)))


@table("stages")
def stages(data):
    """A line a stage: its idea, its passes and bytes; memory and speed of its plain and of its
    fastest attention, at the longest length that all have done."""
    chosen = same_work(data.rows[data.rows.op == "attention"])
    chosen = chosen[(chosen.gflops > 0) & ((chosen.stage == "5").map({True: "gpu", False: "cpu"})
                                           == chosen.device)]
    common = set.intersection(*({*chosen.length[chosen.stage == stage]} for stage in COUNTS))
    need(common, "no length of attention that all five stages have done")
    chosen = each(chosen[(chosen.length == max(common)) & chosen.stage.isin(COUNTS.keys())])
    cells = []
    for stage, counts in COUNTS.items():
        mine = [row for row in chosen if row.stage == stage]
        best = max(mine, key=lambda row: row.gflops)
        cells.append([*counts, significant(best.peak_bytes / (1 << 20)),
                      *(f"{rate(row.gflops)} (`{row.variant}`)"
                        for row in (plainest(mine, stage), best))])
    return (markdown(["stage", "idea", "loops", "bytes per element", "bytes per score",
                      "memory, MiB", "plain", "fastest"], cells)
            + ["", "Loops over a row and bytes per element: softmax, by theory. Bytes per score: what "
               "attention moves beyond q, k, v and o, by theory. Memory: arrays and workspace "
               f"of the fastest. Measured: {describe_work(chosen[0])}, {si(max(common))} keys."]
            + provenance(chosen))


def limits_shape(row):
    """'4 x 16384' or '16 heads, 1 x 8192, d = 128, causal'."""
    if not row.seqlen_k:
        return f"{row.rows:.0f} × {si(row.cols)}"
    heads = f"{row.heads_q:.0f} heads, " if row.heads_q > 1 else ""
    return (f"{heads}{row.seqlen_q:.0f} × {row.seqlen_k:.0f}, d = {row.head_dim:.0f}"
            + (", causal" if row.causal else ""))


@table("limits-(softmax|attention)")
def limits(data, op):
    """Each CPU variant of stages 1 to 4 that was measured on most shapes, and its share of the
    ceiling."""
    chosen = each(data.rows.query("op == @op and device == 'cpu' and stage in ('1', '2', '3', '4')"))
    shapes = list(dict.fromkeys(map(limits_shape, sorted(chosen, key=lambda row: (
        row.rows * row.cols, row.seqlen_q == 1, row.causal, row.head_dim, row.length)))))
    lines = {}
    for row in sorted(chosen, key=lambda row: row.stage):
        speed = (row.median_s * 1e9 / row.rows / row.cols if op == "softmax" else
                 row.gbps if row.ceiling_kind == "read" else row.gflops)
        name = f"{row.stage} {row.variant}, {row.threads:.0f} thread" \
            + ("s" if row.threads > 1 else "")
        lines.setdefault(name, {})[limits_shape(row)] = \
            significant(speed) + in_brackets(share_of(row))
    names = need([name for name, line in lines.items() if 2 * len(line) > len(shapes)],
                 f"no CPU variant did {op} on most shapes")
    cells = {(name, shape): lines[name].get(shape, "") for name in names for shape in shapes}
    unit = ("ns per element" if op == "softmax" else
            "GFLOP/s, with one query GB/s") + " (percent of the ceiling)"
    body = grid(["stage, variant", *shapes], cells, names, shapes) if op == "softmax" else \
        grid(["shape", *names], {key[::-1]: text for key, text in cells.items()}, shapes, names)
    return [f"{unit}.", ""] + body + provenance(chosen)


@table("machines")
def machines(data):
    """A line a CPU: of every stage its plain attention, then the fastest of stage 4 and
    PyTorch's, on the work of the other tables at the longest length."""
    rows = data.all.query("op == 'attention' and device == 'cpu' and gflops > 0")
    cpus = {name: mine for name, mine in rows.groupby("machine")
            if {*"1234"} <= {*mine.stage}}
    need(cpus, "no CPU with measurements of stages 1 to 4")
    work = same_work(data.rows.query("op == 'attention' and device == 'cpu'")).work.iloc[0]
    here = {name: [row for row in each(mine) if row.work == work] for name, mine in cpus.items()}
    done = [set.intersection(*({r.length for r in mine if r.stage == s} for s in "1234"))
            for mine in here.values() if mine]
    first = {(stage, name) for stage in "1234" for name, place in listed(stage).items()
             if place == 0}
    length = max(need(set.intersection(*done), "no length of attention that all CPUs have done"),
                 key=lambda n: (sum((r.stage, r.variant) in first for mine in here.values()
                                    for r in mine if r.length == n), n))
    cells, used = [], []
    for name, mine in here.items():
        mine = [row for row in mine if row.length == length]
        best = max((row for row in mine if row.stage == "4"), key=lambda row: row.gflops)
        peer = max((row.gflops for row in mine if row.stage == "peer"), default=None)
        cells.append([name, *(significant(plainest([row for row in mine if row.stage == stage],
                                                   stage).gflops) for stage in "1234"),
                      significant(best.gflops) + in_brackets(share_of(best)),
                      significant(peer) if peer else ""])
        used += mine
    return ([f"GFLOP/s; {describe_work(used[0])}, {si(length)} keys.", ""]
            + markdown(["CPU", "1 plain", "2 plain", "3 plain", "4 plain",
                        "4 fastest (of the ceiling)", "PyTorch"], cells) + provenance(used))


# --- Beside PyTorch ---

PROBLEM = ("op dtype rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v "
           "causal threads").split()


def peers_shape(row):
    """'softmax 1024 x 64', 'attention 16 heads x 2k, d = 64, causal, bf16'."""
    if "softmax" in row.op:
        return f"{row.op} {si(row.rows)} × {si(row.cols)}"
    heads = f"{row.heads_q:.0f} head" + ("s" if row.heads_q > 1 else "")
    return (f"{row.op} {heads}, {si(row.seqlen_q)} × {si(row.seqlen_k)}, d = "
            f"{row.head_dim:.0f}{', causal' if row.causal else ''}, {row.dtype}")


@table("cpu-peers")
def cpu_peers(data):
    """Our fastest CPU variant and PyTorch, shape by shape, type and number of threads."""
    rows = each(data.rows[data.rows.device == "cpu"])
    fastest = {tuple(getattr(row, c) for c in PROBLEM): row for row in
               sorted(rows, key=lambda row: -row.median_s) if row.stage != "peer"}
    cells, used = [], []
    for peer in sorted((row for row in rows if row.stage == "peer"), key=lambda row: (
            row.op, row.dtype != "f32", row.rows, row.cols, row.heads_q, row.head_dim, row.causal,
            row.threads)):
        best = fastest.get(tuple(getattr(peer, c) for c in PROBLEM))
        if not best:
            continue
        used += [best, peer]
        cells.append([peers_shape(peer), f"{peer.threads:.0f}", f"{best.stage} {best.variant}",
                      seconds(best.median_s), rate(best.gflops) if best.gflops else "",
                      share_of(best, best.ceiling_kind), seconds(peer.median_s),
                      f"{peer.median_s / best.median_s:.2f}"])
    need(cells, "no measurement of PyTorch on the CPU")
    return markdown(["what", "threads", "stage, variant", "median", "rate", "ceiling", "PyTorch",
                     "times as fast as PyTorch"], cells) + provenance(used)


# --- A lesson ---

# The variants that each lesson compares, (stage, variant): the plain ones of the lessons
# before it, then its own.
LESSONS = {
    "1": [("1", "naive"), ("1", "simd"), ("1", "threads")],
    "2": [("1", "naive"), ("2", "recompute"), ("2", "reload"), ("2", "simd"),
          ("2", "overlapped"), ("2", "threads")],
    "3": [("1", "naive"), ("2", "recompute"), ("3", "online"),
          ("3", "simd"), ("3", "streaming"), ("3", "one_look"),
          ("3", "threads")],
    "4": [("1", "naive"), ("3", "online"), ("4", "fold"), ("4", "tiled"),
          ("4", "microkernel"), ("4", "all_cores")],
}


@table("lesson-([1-4])")
def lesson(data, stage):
    """The same softmax and the same attention by the CPU variants that a lesson compares."""
    compared = {key for keys in LESSONS.values() for key in keys}
    chosen = data.rows.query("device == 'cpu' and dtype == 'f32'")
    chosen = chosen[[key in compared for key in zip(chosen.stage, chosen.variant)]]
    same = {}
    for op, which in (("softmax", "rows == 1"),
                      ("attention", "seqlen_q == seqlen_k and head_dim == 64 and causal == 0 "
                       "and heads_q == 1 and variant != 'reload'")):  # it does softmax only
        done = {}
        for row in each(chosen.query(f"op == '{op}' and {which}")):
            done.setdefault(row.length, {})[row.stage, row.variant] = row
        if not done:
            raise NoData(f"no softmax of one row, or no attention with d = 64, for lesson {stage}")
        # the longest that most of them did
        same[op] = done[max(done, key=lambda length, done=done: (len(done[length]), length))]
    cells = []
    for key in LESSONS[stage]:
        one, two = same["softmax"].get(key), same["attention"].get(key)
        if one or two:
            cells.append([key[0], f"`{key[1]}`", seconds(one.median_s) if one else ""] + (
                [seconds(two.median_s), significant(two.gflops),
                 significant(two.peak_bytes / (1 << 20))] if two else [""] * 3))
    longest = {op: next(iter(same[op].values())).length for op in same}
    return ([f"Softmax of one row of {si(longest['softmax'])} floats; attention of "
             f"{si(longest['attention'])} queries and as many keys, one head, d = 64, float32.",
             ""]
            + markdown(["stage", "variant", "softmax", "attention", "GFLOP/s", "memory, MiB"],
                       cells)
            + provenance(row for op in same for key, row in same[op].items()
                         if key in LESSONS[stage]))
