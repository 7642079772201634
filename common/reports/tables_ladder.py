"""tables_ladder.py: the tables of stage 5's ladder, and what its figures are made from too.

Attention of 16k tokens and 2048 columns over all heads, as peers_gpu.py measures it: rungs 1
and 2 in float32, the others in bfloat16.
"""
import functools
import statistics

from asides import ASIDES, RUNG, SHAPES, text_of
from ladder import IN_FLOAT, LAST, LAST_PORTABLE, ROOF, RUNGS, SPLIT, STEPS, listed, number_of
from registry import table
from results import Malformed, NoData, each, is_square, need, read_lines
from words import grid, in_brackets, markdown, panel_text, provenance, si, significant

PROFILE = "profile_05_flash_cuda.csv"
LADDER = "hopper/ladder.csv"  # all rungs in one process, 4k keys, in several rounds
# column of the profile: how its two values are introduced
COUNTERS = {"tensor_pct": "tensor cores busy", "exp_pct": "exponential unit busy",
            "fma_pct": "multiply-add units busy", "issue_pct": "issue slots used",
            "shared_pct": "shared memory busy", "warps_pct": "warps present",
            "clock_ghz": "clock"}


def timed(data):
    """Rungs, roof and peers on a GPU in the type that they compute in."""
    rows = data.with_roofs.query("op == 'attention' and device == 'gpu' and reps > 0 and "
                                 "stage in ('5', 'roof', 'peer') and head_dim == head_dim_v")
    return rows[(rows.dtype == "f32") == rows.variant.isin(IN_FLOAT)]


class Panels(dict):
    """{(head_dim, causal): {variant: {length: row}}} of square attention, of the amount of
    work that was measured most often; an empty line for a variant that was not measured."""

    def __init__(self, data):
        rows = timed(data)
        rows = need(rows[is_square(rows)], "no measurement of stage 5 on a GPU")
        work = rows.batch * rows.heads_q * rows.seqlen_q * rows.head_dim
        super().__init__()
        for row in each(rows[work == work.value_counts().idxmax()]):
            panel = self.setdefault((row.head_dim, row.causal), {})
            panel.setdefault(row.variant, {})[row.length] = row

    def line(self, key, variant):
        return self[key].get(variant, {})

    def rows(self, keys=None, variants=None):
        """All rows of some panels and variants."""
        return [row for key in (self if keys is None else keys)
                for name, line in self[key].items() if variants is None or name in variants
                for row in line.values()]

    def widest(self):
        """The panel without mask with the most variants, of equals head_dim 128."""
        return max((key for key in self if not key[1]),
                   key=lambda key: (len(self[key]), key[0] == 128))


def work_text(row):
    """'16k tokens, 2048 columns of heads'."""
    return (f"{si(row.batch * row.seqlen_q)} tokens, "
            f"{row.heads_q * row.head_dim:.0f} columns of heads")


@functools.cache
def read_profile(data):
    """{(variant, head_dim): line} of what `make profile 5` counted, as texts."""
    path = data.directory / PROFILE
    if not path.exists():
        raise NoData(f"no file {path}; `make profile 5` writes it")
    lines = read_lines(path)
    if "tensor_pct" not in lines:
        raise Malformed(f"{path}: is not what `make profile 5` writes")
    return {(line["variant"], float(line["head_dim"])): line for line in lines.to_dict("records")}


# --- The tables ---

@table("roofs")
def roofs(data):
    """The last rung without softmax by length, and the share of it that is reached."""
    panels = Panels(data)
    keys = [key for key in sorted(panels) if panels.line(key, ROOF)]
    used = need(panels.rows(keys, [ROOF]),
                "no measurement of the roof; peers_gpu.py --variants all makes it")
    lengths = sorted({row.length for row in used if row.length >= 512})
    cells = {}
    for key in keys:
        roof, last = panels.line(key, ROOF), panels.line(key, LAST)
        for n in roof.keys() & last.keys():
            cells[panel_text(*key), n] = f"{roof[n].gflops / 1000:.0f} " \
                f"({100 * last[n].gflops / roof[n].gflops:.0f} %)"
        cells[panel_text(*key), "GEMM"] = \
            f"{max(row.ceiling for row in roof.values()) / 1000:.0f}"
    return (["TFLOP/s without softmax (the share that the last rung reaches).", ""]
            + grid(["bf16", *map(si, lengths), "GEMM"], cells,
                   [panel_text(*key) for key in keys], [*lengths, "GEMM"]) + provenance(used))


@table("decode")
def decode(data):
    """One query: how fast rungs 1, 2 and the last ones, split-KV and the peers read K and V, each
    counted once."""
    rows = each(data.rows.query("op == 'attention' and device == 'gpu' and seqlen_q == 1 and "
                                "seqlen_k >= 8192 and stage in ('5', 'peer')"))
    shown = {*IN_FLOAT, LAST_PORTABLE, LAST, SPLIT, f"{SPLIT}_f32"}
    rows = [row for row in rows if row.stage == "peer" or row.variant in shown]
    need(rows, "no measurement of one query on a GPU")

    def shape(row):
        return (row.dtype == "f32", row.batch, row.heads_q, row.heads_kv, row.seqlen_k,
                row.head_dim, row.dtype)
    place, names, cells = listed("5"), {}, {}
    for row in sorted(rows, key=lambda row: (row.stage == "peer",
                                             place.get(row.variant, len(place)))):
        size = 4 if row.dtype == "f32" else 2
        speed = size * row.batch * row.heads_kv * row.seqlen_k \
            * (row.head_dim + row.head_dim_v) / row.median_s / 1e9
        share = f"{100 * speed / row.ceiling:.0f} %" if row.ceiling_kind == "read" else ""
        names[row.variant], cells[row.variant, shape(row)] = 1, f"{speed:.0f}{in_brackets(share)}"
    shapes = sorted({shape(row) for row in rows})
    header = [f"{dtype}, batch {batch:.0f}, {heads:.0f} heads"
              + (f" on {heads_kv:.0f}" if heads_kv != heads else "")
              + f", {si(keys)} keys, d = {head_dim:.0f}"
              for _, batch, heads, heads_kv, keys, head_dim, dtype in shapes]
    return (["GB/s of K and V (percent of the read ceiling).", ""]
            + grid(["variant", *header], cells, names, shapes) + provenance(rows))


@table("counters")
def counters(data):
    """What `make profile 5` counted in one launch of each rung."""
    counted = read_profile(data)
    columns = ["tensor_pct", "exp_pct", "fma_pct", "issue_pct", "shared_pct", "conflict_pct",
               "warps_pct", "clock_ghz"]
    names = RUNGS + [ROOF, SPLIT]
    cells = []
    for name, head_dim in sorted((key for key in counted if key[0] in names), key=lambda key: (
            key[0] == SPLIT, key[1], names.index(key[0]))):
        line = counted[name, head_dim]
        cells.append([f"{number_of(name)} {name}" if name in RUNGS else name, f"{head_dim:.0f}",
                      significant(float(line["gflops"]) / 1000)]
                     + [line[column] for column in columns]
                     + [f"{float(line['bytes_measured']) / 1e6:.0f}", line["registers"],
                        line["local_bytes"]])
    header = ["rung", "d", "TFLOP/s", "tensor %", "exp %", "fma %", "issue %", "shared %",
              "conflicts %", "warps %", "GHz", "DRAM MB", "registers", "spilled bytes"]
    return markdown(header, cells) + provenance(counted.values())


def seen(counted, before, step, head_dim):
    """'tensor cores busy 21 to 61 %' of the columns that a step says to look at."""
    out = []
    for column in step["look_at"].split():
        values = [counted.get((name, head_dim), {}).get(column, "")
                  for name in (before["variant"], step["variant"])]
        if all(values):
            unit, digits = (" GHz", 2) if column == "clock_ghz" else (" %", 0)
            out.append(f"{COUNTERS[column]} " + " to ".join(
                f"{float(value):.{digits}f}" for value in values) + unit)
    return "; ".join(out)


def over_runs(ratios):
    """'1.12 ± 0.01': the median of some runs, and how far from it the others lie."""
    middle = statistics.median(ratios)
    far = max(abs(ratio - middle) for ratio in ratios)
    return f"{middle:.2f}" + (f" ± {far:.2f}" if len(ratios) > 1 else "")


def one_run(data, pairs):
    """{(head_dim, causal): {variant: [row of each run]}} of LADDER; {} unless it has all these
    rungs."""
    try:
        rows = [*each(data.file(LADDER))]
    except NoData:
        return {}
    panels = {}
    for row in rows:
        panels.setdefault((row.head_dim, row.causal), {}).setdefault(row.variant, []).append(row)
    names = {rung["variant"] for pair in pairs for rung in pair}
    return panels if all(names <= panel.keys() for panel in panels.values()) else {}


@table("asides")
def asides(data):
    """What each aside gains over rung 13, where it should pay."""
    runs, used, base = {}, [], {}
    for row in each(data.file("hopper/asides.csv")):
        name, shape = row.variant.removeprefix("with_"), (row.head_dim, row.seqlen_k, row.causal)
        if name == RUNG:
            base[shape] = row
        elif (*shape[:1], row.batch, *shape[1:]) in SHAPES.get(name, []):
            runs.setdefault((name, shape), []).append(base[shape].median_s / row.median_s)
            used += [row, base[shape]]
    need(runs, "no measurement of the asides; common/reports/asides.py makes it")
    cells = []
    for name in ASIDES:
        story, *lines = text_of(name).split("\n")
        cells.append([f"`{name}`", story.removeprefix("Aside: "),
                      str(sum(line[:1] in ("+", "-") for line in lines[lines.index("") + 3:])),
                      "; ".join(f"{panel_text(shape[0], shape[2])}, {si(shape[1])} keys: "
                                f"{over_runs(ratios)}"
                                for (of, shape), ratios in runs.items() if of == name)])
    return (markdown(["aside", "what it changes", "lines", "times as fast as rung 13"], cells)
            + provenance(used))


@table("levers")
def levers(data):
    """What each change gained or lost, by head_dim: a line for each lever."""
    lines = read_lines(data.directory / "hopper/levers.csv").to_dict("records")
    cells = {}
    for line in lines:
        at = (line["lever"], line["head_dim"])
        text = f"{line['ratio']} ({'causal ' * (line['mask'] == 'causal')}{si(line['seqlen'])})"
        cells[at] = f"{cells[at]}, {text}" if at in cells else text
    dims = ["64", "128", "256"]
    return grid(["change", *(f"d = {dim}" for dim in dims)], cells,
                dict.fromkeys(line["lever"] for line in lines), dims)


@table(r"steps-(\d+)-(\d+)")
def steps(data, first, last):
    """Rungs A to B: what was expected and why, what came, and the counter beside it."""
    pairs = [*zip(STEPS, STEPS[1:])][max(int(first), 2) - 2:int(last) - 1]
    panels = Panels(data)
    keys = [key for key in ((64, 0), (128, 0), (128, 1)) if key in panels]
    try:
        counted = read_profile(data)
    except NoData:
        counted = {}

    run = one_run(data, pairs)
    keys = sorted(run) or keys

    def gain(key, *names):
        if run:
            before, after = (run[key][name] for name in names)
            return over_runs([b.median_s / a.median_s for b, a in zip(before, after)])
        lines = [panels.line(key, name) for name in names]
        both = lines[0].keys() & lines[1].keys()
        return f"{lines[0][max(both)].median_s / lines[1][max(both)].median_s:.2f}" \
            if both else ""
    cells = [[f"{number_of(step['variant'])} `{step['variant']}`", step["expected"],
              step["because"], *(gain(key, before["variant"], step["variant"]) for key in keys),
              seen(counted, before, step, 128.0)] for before, step in pairs]
    used = [row for panel in run.values() for line in panel.values() for row in line] \
        or need(panels.rows(keys, [step["variant"] for _, step in pairs]),
                "no measurement of these rungs")
    longest = si(max(row.seqlen_k for row in used))
    lines = markdown(["rung", "expected", "because",
                      *(f"measured, {panel_text(*key)}" for key in keys), "counted, d = 128"],
                     cells)
    lines[1] = "|" + " :-- |" * 3 + " --: |" * len(keys) + " :-- |"
    return ([f"Times as fast as the rung before, {longest} keys.", ""] + lines
            + provenance(used))
