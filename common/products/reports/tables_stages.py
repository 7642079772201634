"""tables_stages.py: the tables of the stages, mostly on a CPU."""
from ladder import listed
from registry import table
from results import PROBLEM, SAME_WORK, SAME_WORK_TEXT, each, need
from words import (grid, in_brackets, listing, markdown, rate, seconds, shape_text, share_of,
                   si, significant)


# --- All stages ---

# What theory counts: loops over a row of softmax, the bytes per element that move, and
# those per score of attention beyond q, k, v and o.
COUNTS = {
    "1": ("1 naive", "`exp(x) / sum`, and it overflows", "2", "12", "24"),
    "2": ("2 safe", "subtract the maximum: one loop more", "3", "16", "28"),
    "3": ("3 online", "maximum and sum in one loop, corrected on the way", "2", "12", "0"),
    "4": ("4 monoid", "the correction is a monoid: split, merge, tile, all cores", "2", "12",
          "0"),
    "5": ("5 flash", "the same fold on a GPU, up a ladder of kernels", "–", "–", "0"),
}


def plainest(rows, stage):
    """The first of the stage's list."""
    place = listed(stage)
    return min((row for row in rows if row.stage == stage),
               key=lambda row: place.get(row.variant, len(place)))


def fastest(rows, stage):
    return max((row for row in rows if row.stage == stage), key=lambda row: row.gflops)


@table("stages")
def stages(data):
    """A line a stage: its idea, its passes and bytes; memory and speed of its plain and of its
    fastest attention, at the longest length that all have done."""
    chosen = each(need(data.stages.query(
        f"{SAME_WORK} and length == 4096 and gflops > 0 and ((stage == '5' and device == 'gpu') or "
        "(stage in ('1', '2', '3', '4') and device == 'cpu'))"), "no measurement of the same work"))
    cells = [[*counts, significant(fastest(chosen, stage).peak_bytes / (1 << 20)),
              *(f"{rate(row.gflops)} (`{row.variant}`)"
                for row in (plainest(chosen, stage), fastest(chosen, stage)))]
             for stage, counts in COUNTS.items()]
    return "", (markdown(["stage", "idea", "loops", "bytes per element", "bytes per score",
                      "memory, MiB", "plain", "fastest"], cells)
            + ["", "Loops over a row and bytes per element: softmax, by theory. Bytes per score: what "
               "attention moves beyond q, k, v and o, by theory. Memory: arrays and workspace "
               f"of the fastest. Measured: {SAME_WORK_TEXT}, 4k keys."]), chosen


@table("limits-(softmax|attention)")
def limits(data, op):
    """Each CPU variant of stages 1 to 4 that was measured on most shapes, and PyTorch, with the share
    of the ceiling."""
    chosen = each(data.rows.query("op == @op and device == 'cpu' and dtype == 'f32'"))
    shapes = list(dict.fromkeys(map(shape_text, sorted(chosen, key=lambda row: (
        row.rows * row.cols, row.seqlen_q == 1, row.causal, row.head_dim, row.length)))))
    cells = {}
    for row in sorted(chosen, key=lambda row: row.stage):
        speed = (row.median_s * 1e9 / row.rows / row.cols if op == "softmax" else
                 row.gbps if row.ceiling_kind == "read" else row.gflops)
        name = "PyTorch" if row.stage == "peer" else f"{row.stage} {row.variant}"
        name += f", {row.threads:.0f} thread" + "s" * (row.threads > 1)
        cells[shape_text(row), name] = significant(speed) + in_brackets(share_of(row)) * (
            row.stage != "peer" or bool(row.flops))
    done = [name for _, name in cells]
    names = need([name for name in dict.fromkeys(done) if 2 * done.count(name) > len(shapes)],
                 f"no CPU variant did {op} on most shapes")
    unit = "ns per element" if op == "softmax" else "GFLOP/s, with one query GB/s"
    body = grid("shape", cells, shapes, names) if len(shapes) > len(names) else \
        grid("stage, variant", {key[::-1]: cells[key] for key in cells}, names, shapes)
    return f"{unit} (percent of the ceiling).", body, chosen


# --- Beside PyTorch ---

def at_least_time(row):
    """A measurement by its least time: others of a machine only add to it."""
    times = row.median_s / row.min_s
    return row._replace(median_s=row.min_s, gflops=times * row.gflops,
                        pct_ceiling=times * row.pct_ceiling)


@table("peers-of-(.+?)(-least)?")
def peers_of(data, name, least):
    """Our fastest CPU variant and PyTorch, shape by shape, type and number of threads; from
    NAME.csv, by median or least times."""
    rows = data.file(f"{name}.csv").query("device == 'cpu'").sort_values("median_s", kind="stable")
    ours, peers = (some.drop_duplicates(PROBLEM).set_index(PROBLEM, drop=False) for some in (
        rows[rows.stage != "peer"], rows[rows.stage == "peer"]))
    peers = need(peers[peers.index.isin(ours.index)], "no measurement of PyTorch on the CPU")
    pairs = sorted(zip(each(ours.loc[peers.index]), each(peers)), key=lambda pair: (
        pair[0].op, pair[0].dtype != "f32", *(getattr(pair[0], name) for name in (
            "rows", "cols", "heads_q", "head_dim", "causal", "seqlen_k", "threads"))))
    pairs = [tuple(map(at_least_time, pair)) for pair in pairs] if least else pairs
    return "", listing(pairs, {
        "what": lambda pair: f"{pair[0].op} {shape_text(pair[0])}, {pair[0].dtype}",
        "threads": lambda pair: f"{pair[0].threads:.0f}",
        "stage, variant": lambda pair: f"{pair[0].stage} {pair[0].variant}",
        "least time" if least else "median": lambda pair: seconds(pair[0].median_s),
        "rate": lambda pair: rate(pair[0].gflops) if pair[0].gflops else "",
        "ceiling": lambda pair: share_of(pair[0], pair[0].ceiling_kind),
        "PyTorch": lambda pair: seconds(pair[1].median_s),
        "times as fast as PyTorch": lambda pair: f"{pair[1].median_s / pair[0].median_s:.2f}"}), \
        [row for pair in pairs for row in pair]


@table("library_cpu(_model)?(_intel)?")
def library_cpu(data, model, maker):
    """The package's attention on a CPU against PyTorch's, from library/cpu.csv or cpu_intel.csv: whole squares;
    _model: where a model asks for more."""
    rows = data.file(f"library/cpu{maker or ''}.csv")
    rows = rows[(rows["flags"] != "sustained") == bool(model)]
    rows = rows.assign(text=[shape_text(row) for row in each(rows)], what=rows["flags"].str.split("; ").str[-1],
                       mask=rows.causal.map({0: "full", 1: "causal"}), keys=rows.seqlen_k.astype(int))
    index, columns = (["text", "what"], ["dtype", "threads"]) if model else (["dtype", "threads", "head_dim", "mask"], ["keys"])
    times = rows.pivot_table(index=index, columns=["variant", *columns], values="min_s", aggfunc="min", sort=False)
    ratios = times["pytorch"] / times["five_steps"]
    ratios = ratios if model else ratios.sort_index(axis=1)
    heads = ["", "", *(f"{kind}, {n:.0f} thread{'s' * (n > 1)}" for kind, n in ratios.columns)] if model else [
        "", "threads", "d", "", *map(si, ratios.columns)]
    more = "mask: booleans for each query and key; padding: booleans for each key; train: forward and backward." if model \
        else "For so many queries and keys; the least time of each, in turn, through Python. 8 heads up to 1k keys, 2 beyond."
    return f"Time of PyTorch's attention over the time of ours. {more}", markdown(heads, [
        [*(f"{x:.0f}" if isinstance(x, float) else x for x in kind), *(f"{x:.2f}".replace("nan", "") for x in line)]
        for kind, line in zip(ratios.index, ratios.values)]), rows


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
    "4": [("1", "naive"), ("3", "online"), ("4", "fold"), ("4", "chunk"), ("4", "correct_once"),
          ("4", "tile"), ("4", "threads"), ("4", "simd"), ("4", "microkernel"), ("4", "all_cores")],
}
RUNGS = LESSONS["4"][2:8]  # each has one change, so its gain has one cause


@table("lesson-([1-4])")
def lesson(data, stage):
    """The same softmax and the same attention by the CPU variants that a lesson compares."""
    row_of, head_of = ({(row.stage, row.variant): row for row in each(need(
        data.lessons.query(which), "nothing that the lessons compare"))} for which in (
            f"op == 'softmax' and dtype == 'f32' and rows == 1 and cols == {1 << 26}",
            f"{SAME_WORK} and length == 8192 and variant != 'reload'"))
    cells, used, above = [], [], None
    for key in LESSONS[stage]:
        one, two = row_of.get(key), head_of.get(key)
        used += [row for row in (one, two) if row]
        gain = [f"{above.median_s / two.median_s:.2f}" if two and above and key in RUNGS else ""]
        cells += [[key[0], f"`{key[1]}`", seconds(one.median_s) if one else ""] + (
            [seconds(two.median_s), significant(two.gflops),
             significant(two.peak_bytes / (1 << 20))] if two else [""] * 3)
            + gain * (stage == "4")] * bool(one or two)
        above = two
    return ("Softmax of one row of 64M floats; attention of 8k queries and as many keys, one head, "
            "d = 64, float32.",
            markdown(["stage", "variant", "softmax", "attention", "GFLOP/s", "memory, MiB"]
                     + ["gain"] * (stage == "4"), cells), used)
