"""tables_ladder.py: the tables of stage 5's ladder, and what its figures are made from too.

Attention of 16k tokens and 2048 columns over all heads, as peers.py measures it: rungs 1
and 2 in float32, the others in bfloat16.
"""
import functools
import re
import statistics

from asides import ASIDES, PATCHES, RUNG, kernel_of, room_of, rung_of, text_of
from asides import STEPS as INSIDE
from ladder import (GRADIENTS, IN_FLOAT, LAST, LAST_PORTABLE, ROOF, RUNGS, SPLIT, STEPS, listed,
                    number_of)
from registry import table
from results import Malformed, each, need, read_lines
from words import grid, listing, markdown, panel_text, shape_text, si, significant

PROFILE = "profile_05_flash_cuda.csv"
LADDER = "hopper/ladder.csv"  # all rungs in one process, 4k keys, in several rounds
# column of the profile: how its two values are introduced
COUNTERS = {"tensor_pct": "tensor cores busy", "exp_pct": "exponential unit busy",
            "fma_pct": "multiply-add units busy", "issue_pct": "issue slots used",
            "shared_pct": "shared memory busy", "warps_pct": "warps present",
            "clock_ghz": "clock"}


@functools.cache
def read_profile(data):
    """{(variant, head_dim): line} of what `make profile 5` counted, as texts."""
    lines = data.file(PROFILE, read_lines)
    if "tensor_pct" not in lines:
        raise Malformed(f"{PROFILE}: is not what `make profile 5` writes")
    return {(line.variant, float(line.head_dim)): line for line in each(lines)}


# --- The tables ---

@table("decode")
def decode(data):
    """One query: how fast rungs 1, 2 and the last ones, split-KV and the peers read K and V, each
    counted once."""
    rows = data.rows.query("op == 'attention' and device == 'gpu' and seqlen_q == 1 and "
                           "seqlen_k >= 8192 and stage in ('5', 'peer')")
    shown = {*IN_FLOAT, LAST_PORTABLE, LAST, SPLIT, f"{SPLIT}_f32"}
    rows = need(rows[(rows.stage == "peer") | rows.variant.isin(shown)],
                "no measurement of one query on a GPU")
    place = listed("5")
    rows = rows.assign(f32=rows.dtype == "f32", place=rows.variant.map(place).fillna(len(place) + 1))

    def problem(row):
        return f"{row.dtype}, {shape_text(row)}"

    def text(row):
        speed = (4 if row.f32 else 2) * row.batch * row.heads_kv * row.seqlen_k \
            * (row.head_dim + row.head_dim_v) / row.median_s / 1e9
        return f"{speed:.0f}" + f" ({100 * speed / row.ceiling:.0f} %)" * (row.ceiling_kind == "read")
    columns = dict.fromkeys(map(problem, each(rows.sort_values(
        ["f32", "batch", "heads_q", "heads_kv", "seqlen_k"], kind="stable"))))
    cells = {(row.variant, problem(row)): text(row) for row in each(rows.sort_values("place", kind="stable"))}
    return "GB/s of K and V (percent of the read ceiling).", grid("variant", cells, columns=columns), rows


@table("counters")
def counters(data):
    """What `make profile 5` counted in one launch of each rung."""
    counted, names = read_profile(data), RUNGS + [ROOF, SPLIT]
    lines = sorted((line for line in counted.values() if line.variant in names), key=lambda line: (
        line.variant == SPLIT, float(line.head_dim), names.index(line.variant)))
    as_it_is = {"tensor %": "tensor_pct", "exp %": "exp_pct", "fma %": "fma_pct",
                "issue %": "issue_pct", "shared %": "shared_pct", "conflicts %": "conflict_pct",
                "warps %": "warps_pct", "GHz": "clock_ghz"}
    return "", listing(lines, {
        "rung": lambda line: f"{number_of(line.variant)} {line.variant}"
        if line.variant in RUNGS else line.variant,
        "d": lambda line: line.head_dim,
        "TFLOP/s": lambda line: significant(float(line.gflops) / 1000),
        **{head: lambda line, column=column: getattr(line, column)
           for head, column in as_it_is.items()},
        "DRAM MB": lambda line: f"{float(line.bytes_measured) / 1e6:.0f}",
        "registers": lambda line: line.registers,
        "spilled bytes": lambda line: line.local_bytes}), counted.values()


def seen(counted, names, look_at):
    """'tensor cores busy 21 to 61 %' of the columns that a step says to look at."""
    out = []
    for column in look_at.split():
        values = [getattr(counted.get((name, 128.0)), column, "") for name in names]
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


def title_of(patch):
    return text_of(patch).split("\n")[0].partition(": ")[2]


def lines_of(patch):
    return str(sum(line[:1] in ("+", "-") for line in text_of(patch).split("\n--- ")[1].split("\n")[2:]))


def expected_of(patch):
    """What was expected before the measurement, where the patch says it."""
    return re.sub(r"(?s).*Expected: ([\d. to]+\d).*|.*", r"\1", text_of(patch), count=1)


@table("steps-inside-(hopper|backward|asides)")
def steps_inside(data, which):
    """How much faster each rung is with one of its ideas than without it; and rung 13 with each of rung
    14's, in the last line with all."""
    rows = data.file("hopper/asides.csv" if which == "asides" else f"{which}/steps.csv")
    times = {key: [*some.median_s] for key, some in rows.groupby(["variant", "head_dim", "causal", "seqlen_k"])}
    names = ASIDES if which == "asides" else sorted(
        (name for name in INSIDE if room_of(name) == which), key=lambda name: rung_of(name)[0])
    pairs = {name: (rung_of(name)[1], kernel_of(name))[::1 if which == "asides" else -1] for name in names}
    shapes = sorted({key[1:] for key in times}, key=lambda key: (key[0], key[2], key[1]))

    def cell(name, shape):
        before, after = (times.get((variant, *shape)) for variant in pairs[name])
        return over_runs([b / a for b, a in zip(before, after)]) if before and after else ""
    if which == "asides":
        pairs[LAST] = RUNG, LAST
    return "Times as fast with the step as without it.", listing([*pairs], {
        "rung": lambda name: str(len(RUNGS) if which == "asides" else int(rung_of(name)[0].rpartition("/")[2][:2])),
        "step": lambda name: f"`{name}`: " + (title_of(name) if name in PATCHES else "all of them, and what else it has"),
        "lines": lambda name: lines_of(name) if name in PATCHES else "",
        **({} if which == "asides" else {"expected": expected_of}),
        **{f"{panel_text(*shape[:2])}, {si(shape[2])}": lambda name, shape=shape: cell(name, shape)
           for shape in shapes}}), rows


@table("stalls")
def stalls(data):
    """For what the warps of each rung wait, in cycles between two instructions of a warp."""
    lines = each(data.file("hopper/stalls.csv", read_lines))
    reasons = {"issue": "selected", "fixed latency": "wait", "global memory, mbarrier": "long_scoreboard",
               "shared memory": "short_scoreboard", "barrier": "barrier", "wgmma": "gmma",
               "busy unit": "math_pipe_throttle", "full queue": "mio_throttle",
               "other warp": "not_selected"}
    return "", listing([line for line in lines if line.variant in RUNGS], {
        "rung": lambda line: f"{number_of(line.variant)} {line.variant}", "µs": lambda line: line.us,
        **{f"{text} (`{name}`)": lambda line, name=name: getattr(line, name)
           for text, name in reasons.items()}}), lines


@table("levers")
def levers(data):
    """What each change gained or lost, by head_dim: a line for each lever."""
    usual, others, cells = ["64", "128", "256"], "80, 96, 192", {}
    for line in each(data.file("hopper/levers.csv", read_lines)):
        at = line.head_dim if line.head_dim in usual else others
        cells.setdefault((line.lever, at), []).append(
            f"{line.ratio} ({'causal ' * (line.mask == 'causal')}{si(line.seqlen)})")
    return "", grid("change", {at: ", ".join(texts) for at, texts in cells.items()},
                    columns=[*usual, others], head="d = {}".format), []


@table(r"steps-(\d+)-(\d+)|backward-steps")
def steps(data, first, last):
    """Rungs A to B, or those of the backward ladder at the longest length: what was expected and why, what
    came in each run, and the counter beside it."""
    rungs, file = (STEPS, LADDER) if first else (GRADIENTS, "backward/ladder.csv")
    rows, lines = data.file(file).sort_values(["head_dim", "causal"], kind="stable"), []
    times = {(name, panel_text(*panel)): [*some.median_s] for (name, *panel), some in rows.groupby(
        ["variant", "head_dim", "causal"], sort=False)}
    panels, numbers = dict.fromkeys(panel for _, panel in times), {x["variant"]: n for n, x in enumerate(rungs, 1)}

    def gain(over, name, panel):
        before = next((times[old, panel] for old in over if (old, panel) in times), ())
        ratios = [b / a for b, a in zip(before, times.get((name, panel), ()))]
        return over_runs(ratios) if ratios else ""
    for above, rung in [*zip(rungs, rungs[1:])][max(int(first or 0), 2) - 2:int(last or 99) - 1]:
        name, over = rung["variant"], (above["variant"] if first else rung["over"]).split()
        lines.append({"rung": f"{numbers[name]} `{name}`", "over": " or ".join(str(numbers[old]) for old in over),
                      "expected": rung["expected"], "because": rung["because"],
                      **{panel: gain(over, name, panel) for panel in panels},
                      **({"counted, d = 128": seen(read_profile(data), (*over, name), rung["look_at"])} if first else {})})
    return (f"Times as fast as the rung that it is compared with, {si(rows.seqlen_k.max())} keys.",
            markdown([*lines[0]], [[*line.values()] for line in lines]), rows)
