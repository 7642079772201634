"""tables_ladder.py: the tables of stage 5's ladder, for tables.py.

    crossover     from which length on each rung is faster than the one before
    roofs         the last rung without softmax by length, and the share of it that is reached
    decode        one query: how fast every rung and peer reads K and V
    gpu-memory    peak memory of every rung and peer by length
    counters      what `make profile 5` counted, rung by rung
    steps-A-B     rungs A to B: expected gain and its reason, measured gain, counter
"""
import re

from ladder import (LAST, LAST_PORTABLE, ROOF, RUNGS, SPLIT, by_length, number_of, one_query, overtakes,
                    read_predictions, read_profile, work_text)
from results import NoData, si

# column of the profile: how its two values are introduced
COUNTERS = {"tensor_pct": "tensor cores busy", "exp_pct": "exponential unit busy",
            "fma_pct": "multiply-add units busy", "issue_pct": "issue slots used",
            "shared_pct": "shared memory busy", "warps_pct": "warps present",
            "clock_ghz": "clock"}


def panel_text(key):
    return f"d = {key[0]:.0f}{', causal' if key[1] else ''}"


def crossover_table(rows, tools):
    """A line a rung, a column a head dimension and mask."""
    panels = by_length(rows)
    keys = sorted(panels)
    cells, used = [], []
    for before, after in zip(RUNGS, RUNGS[1:]):
        line = [f"{number_of(after)} `{after}` over {number_of(before)} `{before}`"]
        line += [overtakes(panels[key][before], panels[key][after]) for key in keys]
        cells.append(line)
        used += [row for key in keys for row in panels[key][after].values()]
    single = one_query(rows)
    for before in (LAST_PORTABLE, LAST):
        if SPLIT in single and before in single:
            where = overtakes(single[before], single[SPLIT])
            head = next(iter(single[SPLIT].values())).head_dim
            cells.append([f"`{SPLIT}` over {number_of(before)} `{before}`, one query"]
                         + [where if key == (head, 0) else "" for key in keys])
    if not used:
        raise NoData("no measurement of two rungs")
    return (tools.table(["faster"] + [panel_text(key) for key in keys], cells)
            + tools.provenance(used))


def roofs_table(rows, tools):
    """A line a head dimension and mask, a column a length."""
    panels = by_length(rows)
    lengths = sorted({n for key in panels for n in panels[key][ROOF] if n >= 512})
    cells, used = [], []
    for key in sorted(panels):
        roof, last = panels[key][ROOF], panels[key][LAST]
        if not roof:
            continue
        line = [panel_text(key)]
        for n in lengths:
            line.append(f"{roof[n].gflops / 1000:.0f} "
                        f"({100 * last[n].gflops / roof[n].gflops:.0f} %)"
                        if n in roof and n in last else "")
        gemm = max(row.ceiling for row in roof.values())
        cells.append(line + [f"{gemm / 1000:.0f}"])
        used += list(roof.values())
    if not used:
        raise NoData("no measurement of the roof; peers_gpu.py --variants all makes it")
    return (["TFLOP/s without softmax (the share that the last rung reaches).", ""]
            + tools.table(["bf16"] + [si(n) for n in lengths] + ["GEMM"], cells)
            + tools.provenance(used))


def decode_table(rows, tools):
    """A line a variant, a column a shape: GB/s of K and V, each counted once."""
    chosen = [row for row in rows if row.op == "attention" and row.device == "gpu"
              and row.stage in ("5", "peer") and row.seqlen_q == 1
              and row.seqlen_k >= 8192]
    if not chosen:
        raise NoData("no measurement of one query on a GPU")

    def shape(row):
        return (row.dtype == "f32", row.batch, row.heads_q, row.heads_kv, row.seqlen_k,
                row.head_dim, row.dtype)
    shapes = sorted({shape(row) for row in chosen})
    place = tools.listed("5")
    lines = {}
    for row in sorted(chosen, key=lambda row: (row.stage == "peer",
                                               place.get(row.variant, len(place)))):
        size = 4 if row.dtype == "f32" else 2
        speed = size * row.batch * row.heads_kv * row.seqlen_k \
            * (row.head_dim + row.head_dim_v) / row.median_s / 1e9
        share = f" ({100 * speed / row.ceiling:.0f} %)" if row.ceiling_kind == "read" else ""
        lines.setdefault(row.variant, {})[shape(row)] = f"{speed:.0f}{share}"
    cells = [[name] + [line.get(key, "") for key in shapes] for name, line in lines.items()]
    header = [f"{key[6]}, batch {key[1]:.0f}, {key[2]:.0f} heads"
              + (f" on {key[3]:.0f}" if key[3] != key[2] else "")
              + f", {si(key[4])} keys, d = {key[5]:.0f}" for key in shapes]
    return (["GB/s of K and V (percent of the read ceiling).", ""]
            + tools.table(["variant"] + header, cells) + tools.provenance(chosen))


def same_memory(line, lengths):
    return tuple(round(line[n].peak_bytes / (1 << 20)) if n in line else None
                 for n in lengths)


def memory_table(rows, tools):
    """Peak memory by length, variants with the same memory in one line."""
    panels = by_length(rows)
    key = max((k for k in panels if not k[1]), key=lambda k: (len(panels[k]), k[0] == 128))
    lines = {name: {n: row for n, row in line.items() if row.peak_bytes}
             for name, line in panels[key].items() if name != ROOF}
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        raise NoData("no measurement of the rungs' peak memory")
    lengths = sorted({n for line in lines.values() for n in line})
    groups = {}
    for name in sorted(lines, key=lambda n: (n not in RUNGS, RUNGS.index(n)
                                             if n in RUNGS else 0)):
        groups.setdefault(same_memory(lines[name], lengths), []).append(name)
    cells = []
    for sizes, names in groups.items():
        cells.append([", ".join(f"`{n}`" for n in names)]
                     + [f"{size}" if size is not None else "" for size in sizes])
    used = [row for line in lines.values() for row in line.values()]
    types = "float32 for rungs 1 and 2, else bfloat16"
    return ([f"MiB, {work_text(used[0])}, {panel_text(key)}; {types}.", ""]
            + tools.table(["method"] + [si(n) for n in lengths], cells)
            + tools.provenance(used))


def counters_table(directory, tools):
    """What the hardware counted in one launch of each rung."""
    counted = read_profile(directory)
    shown = ["tensor_pct", "exp_pct", "fma_pct", "issue_pct", "shared_pct", "conflict_pct",
             "warps_pct", "clock_ghz"]
    names = RUNGS + [ROOF, SPLIT]
    order = sorted((key for key in counted if key[0] in names),
                   key=lambda key: (key[0] == SPLIT, key[1], names.index(key[0])))
    cells = []
    for name, head_dim in order:
        line = counted[name, head_dim]
        cells.append([f"{number_of(name)} {name}" if name in RUNGS else name,
                      f"{head_dim:.0f}", tools.significant(float(line["gflops"]) / 1000)]
                     + [line[column] for column in shown]
                     + [f"{float(line['bytes_measured']) / 1e6:.0f}", line["registers"],
                        line["local_bytes"]])
    header = ["rung", "d", "TFLOP/s", "tensor %", "exp %", "fma %", "issue %", "shared %",
              "conflicts %", "warps %", "GHz", "DRAM MB", "registers", "spilled bytes"]
    return tools.table(header, cells) + written(counted.values())


def written(lines):
    """The provenance of lines that are no measurements of time."""
    def joined(column):
        return ", ".join(sorted({line[column] for line in lines}))
    days = sorted({line["date"][:10] for line in lines})
    when = " to ".join(dict.fromkeys([days[0], days[-1]]))
    return ["", f"*{joined('machine')}; {joined('compiler')}; commit {joined('commit')}; "
            f"{when}.*"]


def gain(panels, key, before, after):
    """'1.53' at the longest length that both were measured at, or nothing."""
    lengths = set(panels[key][before]) & set(panels[key][after])
    if not lengths:
        return ""
    n = max(lengths)
    return f"{panels[key][before][n].median_s / panels[key][after][n].median_s:.2f}"


def seen(counted, step, head_dim):
    """'tensor cores busy 21 to 61 %' of the columns that a prediction says to look at."""
    out = []
    for column in step["look_at"].split():
        values = [counted.get((name, head_dim), {}).get(column, "")
                  for name in (step["over"], step["variant"])]
        if all(values):
            unit, digits = (" GHz", 2) if column == "clock_ghz" else (" %", 0)
            out.append(f"{COUNTERS[column]} " + " to ".join(
                f"{float(value):.{digits}f}" for value in values) + unit)
    return "; ".join(out)


def steps_table(rows, directory, first, last, tools):
    """Rungs first to last: what was expected, what came, and the counter beside it."""
    panels = by_length(rows)
    keys = [key for key in ((64, 0), (128, 0), (128, 1)) if key in panels]
    try:
        counted = read_profile(directory)
    except NoData:
        counted = {}
    cells, used = [], []
    for step in read_predictions():
        if step["variant"] not in RUNGS or step["over"] not in RUNGS \
                or not first <= RUNGS.index(step["variant"]) + 1 <= last:
            continue
        cells.append([f"{number_of(step['variant'])} `{step['variant']}`", step["expected"],
                      step["because"]]
                     + [gain(panels, key, step["over"], step["variant"]) for key in keys]
                     + [seen(counted, step, 128.0)])
        used += [row for key in keys for row in panels[key][step["variant"]].values()]
    if not used:
        raise NoData("no measurement of these rungs")
    longest = si(max(row.length for row in used))
    header = ["rung", "expected", "because"] + [f"measured, {panel_text(k)}" for k in keys]
    lines = tools.table(header + ["counted, d = 128"], cells)
    lines[1] = "|" + " :-- |" * 3 + " --: |" * len(keys) + " :-- |"
    return ([f"Times as fast as the rung before, {longest} keys.", ""] + lines
            + tools.provenance(used))


def make(name, rows, directory, tools):
    """The lines of the table, or None when it is none of these; tools: tables.py."""
    fixed = {"crossover": crossover_table, "roofs": roofs_table, "decode": decode_table,
             "gpu-memory": memory_table}
    if name in fixed:
        return fixed[name](rows, tools)
    if name == "counters":
        return counters_table(directory, tools)
    steps = re.fullmatch(r"steps-(\d+)-(\d+)", name)
    if steps:
        return steps_table(rows, directory, int(steps[1]), int(steps[2]), tools)
    return None
