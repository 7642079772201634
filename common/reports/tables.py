"""tables.py: rewrites the tables of measurements in the Markdown files from CSV.

    python3 common/reports/tables.py [--results DIR] [--machine TEXT] [--check] [FILE.md ...]

A table stands between the lines

    <!-- table:NAME begin -->
    <!-- table:NAME end -->

in README.md, NN_*/README.md, notes/*.md or the files given.  NAME is one of

    attention     attention by length, the best variant of each stage
    softmax       softmax by length, likewise
    memory        peak memory of attention by length
    ladder        stage 5 and its peers in 16 bits, TFLOP/s by head_dim and causal
    ladder-f32    the same in float32
    hopper        the last Hopper rung: TFLOP/s and the ratio to cuDNN, by length
    headline      the same at the longest length, head_dim 128, in one sentence
    file-NAME     notes/results/NAME.csv as it stands
    gpu-traffic   GPU softmax: traversals predicted and counted, time, by variant
    gpu-rows      GPU softmax by row length and type: percent of a copy, ours and PyTorch
    stages        a line a stage: idea, passes, bytes; memory and speed of its plain and
                  of its fastest attention, at the longest length that all have done
    stage-N-OP    every variant of stage N doing OP (softmax, attention, ...) at its
                  largest length, square if it can be: time, rate, share of the
                  ceiling, bytes, error; in stages 1 to 4 the CPU's variants come first
    crossover, roofs, decode, gpu-memory, counters, steps-A-B
                  stage 5's ladder: see tables_ladder.py
    limits-OP     softmax or attention on the CPU: each variant of stages 1 to 4 that was
                  measured on most shapes, and its share of the ceiling

The same CSV gives the same bytes.  Exit status: 0; 1 with --check when a file would
change, or when a table lacks its data; 2 bad usage, a malformed CSV or a mark that is
unknown or has no partner.
"""
import argparse
import collections
import csv
import os
import pathlib
import re
import sys

import tables_ladder
from results import (Malformed, NoData, best_lines, describe_work, listed,
                     read_results, same_work, si, where_of, work_of)

MARK = re.compile(r"<!-- table:(\S+) (begin|end) -->")


def significant(value, digits=3):
    """'1234', '12.3', '0.00123': at least so many digits, never an exponent."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - int(f"{abs(value):e}".split("e")[1]))
    return f"{value:.{places}f}"


def seconds(value):
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * scale >= 1 or unit == "µs":
            return f"{significant(value * scale)} {unit}"


def table(header, lines):
    """Markdown: the first column and those of prose left, the others right."""
    prose = [max((len(line[c]) for line in lines), default=0) > 40
             for c in range(len(header))]
    rule = [":--" if left or not c else "--:" for c, left in enumerate(prose)]
    return ["| " + " | ".join(cells) + " |" for cells in [header, rule] + lines]


def provenance(rows):
    """The sentence under a table that says where it comes from."""
    def joined(column):
        return ", ".join(sorted({str(getattr(row, column)) for row in rows
                                 if getattr(row, column)}))
    days = sorted({row.date[:10] for row in rows if row.date})
    when = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "unknown date"
    return ["", f"*{joined('machine')}; {joined('compiler')}; commit {joined('commit')}; "
            f"{when}.*"]


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


def ladder_table(rows, f32=False):
    """A line a variant, a column a type, head dimension and mask, at the longest length."""
    chosen = [row for row in rows if row.op == "attention" and row.device == "gpu"
              and row.stage in ("5", "peer") and row.gflops
              and row.seqlen_q == row.seqlen_k and (row.dtype == "f32") == f32]
    if not chosen:
        raise NoData("no measurement of stage 5 on a GPU")
    most = {}  # the largest work of a type, head_dim and mask stands for the others
    for row in chosen:
        kind = (row.dtype, row.head_dim, row.causal)
        most[kind] = max(most.get(kind, 0), row.batch * row.heads_q * row.seqlen_q)
    chosen = [row for row in chosen if most[row.dtype, row.head_dim, row.causal]
              == row.batch * row.heads_q * row.seqlen_q]
    widths = collections.defaultdict(set)
    for row in chosen:
        widths[work_of(row)].add(row.length)
    chosen = [row for row in chosen if row.length == max(widths[work_of(row)])]
    works = sorted({work_of(row) + (row.length,) for row in chosen},
                   key=lambda work: (work[5], str(work)))
    lines = collections.defaultdict(dict)
    place = listed("5")
    for row in sorted(chosen, key=lambda row: (row.stage == "peer",
                                               place.get(row.variant, len(place)))):
        lines[row.variant][work_of(row) + (row.length,)] = row
    cells = []
    for name, line in lines.items():
        cells.append([name])
        for work in works:
            share = f" ({line[work].pct_ceiling:.0f} %)" \
                if work in line and line[work].pct_ceiling else ""
            cells[-1].append(significant(line[work].gflops / 1000) + share
                             if work in line else "")
    header = [f"d = {w[5]:.0f}{', causal' if w[7] else ''}, {si(w[9])} keys"
              for w in works]
    types = ", ".join(sorted({row.dtype for row in chosen}))
    return ([f"TFLOP/s (percent of the ceiling), {types}.", ""]
            + table(["variant"] + header, cells) + provenance(chosen))


def beside_cudnn(rows):
    """The last Hopper rung and cuDNN: {(head_dim, causal, length, variant): row}."""
    chosen = [row for row in rows if row.op == "attention" and row.dtype == "bf16"
              and row.variant in ("optimistic", "pytorch-cudnn")
              and row.seqlen_q == row.seqlen_k and row.head_dim == row.head_dim_v]
    return {(row.head_dim, row.causal, row.length, row.variant): row for row in chosen}


def hopper_table(rows):
    """A line a head dimension and mask, a column a length."""
    known = beside_cudnn(rows)
    lengths = sorted({key[2] for key in known})
    cells = []
    for head_dim, causal in sorted({key[:2] for key in known}):
        cells.append([f"d = {head_dim:.0f}{', causal' if causal else ''}"])
        for length in lengths:
            ours, peer = (known.get((head_dim, causal, length, name))
                          for name in ("optimistic", "pytorch-cudnn"))
            cells[-1].append(f"{significant(ours.gflops / 1000)} "
                             f"({peer.median_s / ours.median_s:.2f})"
                             if ours and peer else "")
    if not cells:
        raise NoData("no measurement of the last Hopper rung beside cuDNN")
    return (["TFLOP/s (times cuDNN's speed in the same rounds).", ""]
            + table(["bf16"] + [si(length) for length in lengths], cells)
            + provenance(known.values()))


def headline(rows):
    """One sentence: head_dim 128 at the longest length, without mask, and with one if it
    was measured."""
    known = beside_cudnn(rows)
    ends = []
    for causal in (0, 1):
        ours = {n: row for (d, c, n, name), row in known.items() if (d, c, name)
                == (128, causal, "optimistic") and (d, c, n, "pytorch-cudnn") in known}
        if not ours and not causal:
            raise NoData("no measurement of the last Hopper rung beside cuDNN at d = 128")
        if not ours:
            continue
        row = ours[max(ours)]
        ratio = known[128, causal, row.length, "pytorch-cudnn"].median_s / row.median_s
        ends.append(f"{significant(row.gflops / 1000)} TFLOP/s, {ratio:.2f} times cuDNN's")
    with_mask = "".join(f"; with a causal mask {end}" for end in ends[1:])
    return [f"The last kernel on one {row.machine} in bf16, d = 128, {si(row.length)} keys: "
            f"**{ends[0]}** in the same rounds{with_mask}."]


def file_table(where, name):
    """A CSV file as it stands."""
    path = pathlib.Path("notes/results") / f"{name}.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
        raise Malformed(f"{where}: {path} is not a table")
    header = [re.sub("_us$", ", µs", cell).replace("_", " ") for cell in lines[0]]
    return table(header, lines[1:])


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
        rate = f"{significant(row.gflops)} GFLOP/s" if row.gflops else \
            f"{significant(row.gbps)} GB/s" if row.gbps else ""
        share = f"{row.pct_ceiling:.0f} % of {row.ceiling_kind}" \
            if row.pct_ceiling else ""
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
        cells.append([variant, where, dtype, size, seconds(row.median_s), rate, share,
                      traffic, error])
    header = ["variant", "where", "type", "length", "median", "rate", "ceiling",
              "MB predicted / measured", "error / allowed"]
    return table(header, cells) + provenance(chosen)


# What theory counts: passes over a row of softmax, the bytes of an element that move, and
# those of a score of attention beyond q, k, v and o.
COUNTS = {
    "1": ("[1 naive](01_naive/README.md)", "`exp(x) / sum`, and it overflows", 2, 12, 20),
    "2": ("[2 safe](02_safe_softmax/README.md)", "subtract the maximum: one pass more",
          3, 16, 24),
    "3": ("[3 online](03_online_softmax/README.md)",
          "maximum and sum in one pass, corrected on the way", 2, 12, 0),
    "4": ("[4 monoid](04_monoid_tiled_cpu/README.md)",
          "the correction is a monoid: split, merge, tile, all cores", 2, 12, 0),
    "5": ("[5 flash](05_flash_cuda/README.md)",
          "the same fold on a GPU, up a ladder of twelve kernels", "–", "–", 0),
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
    for stage, (name, idea, passes, element, score) in COUNTS.items():
        mine, place = [row for row in chosen if row.stage == stage], listed(stage)
        plain = min(mine, key=lambda row: place.get(row.variant, len(place)))
        best = max(mine, key=lambda row: row.gflops)
        speeds = [f"{significant(row.gflops)} (`{row.variant}`)" for row in (plain, best)]
        cells.append([name, idea, str(passes), str(element), str(score),
                      significant(best.peak_bytes / (1 << 20)), *speeds])
    what = describe_work(chosen[0])
    return (table(["stage", "idea", "passes", "bytes an element", "bytes a score",
                   "memory, MiB", "GFLOP/s, plain", "fastest"], cells)
            + ["", f"Passes and bytes by theory, of softmax and of attention beyond q, k, v "
               f"and o; memory and speed measured: {what}, {si(max(common))} keys."]
            + provenance([row for row in chosen if row.stage in COUNTS]))


def gpu_softmax(rows):
    chosen = [row for row in rows if row.op == "softmax" and row.device == "gpu"
              and row.stage in ("1", "2", "3", "peer") and row.cols and row.median_s]
    if not chosen:
        raise NoData("no measurement of softmax on a GPU")
    return chosen


def gpu_traffic_table(rows):
    """At the shape where most variants have counters."""
    chosen = [row for row in gpu_softmax(rows) if row.dtype == "f32"]
    shapes = collections.Counter((row.rows, row.cols) for row in chosen
                                 if row.bytes_measured)
    if not shapes:
        raise NoData("no GPU softmax has bytes_measured")
    shape = shapes.most_common(1)[0][0]
    chosen = [row for row in chosen if (row.rows, row.cols) == shape and row.reps]
    one = shape[0] * shape[1] * 4
    cells = [[row.variant, f"{row.bytes_predicted / one:.2f} G",
              f"{row.bytes_measured / one:.2f} G" if row.bytes_measured else "",
              seconds(row.median_s), f"{row.pct_ceiling:.0f} %"]
             for row in sorted(chosen, key=lambda row: row.stage)]
    return ([f"[{si(shape[0])}, {si(shape[1])}] floats, G = {one / 1e9:.3f} GB.", ""]
            + table(["variant", "predicted", "counted", "median",
                     "predicted bytes / time, of a copy's"], cells) + provenance(chosen))


def gpu_rows_table(rows):
    """Time of a copy over time of the softmax, the same shape and round."""
    chosen = [row for row in gpu_softmax(rows) if row.rows > 1]
    known = {(row.variant, row.dtype, row.cols): row for row in chosen}
    dtypes = [t for t in ("f32", "f16", "bf16") if ("copy", t) in
              {key[:2] for key in known}]
    names = [("gpu_one_pass", "ours"), ("pytorch-softmax", "PyTorch")]

    def share(name, dtype, cols):
        one, copy = known.get((name, dtype, cols)), known.get(("copy", dtype, cols))
        return f"{100 * copy.median_s / one.median_s:.0f} %" if one and copy else ""
    lengths = sorted({cols for name, _, cols in known if name == "gpu_one_pass"})
    cells = [[si(cols)] + [share(name, dtype, cols) for dtype in dtypes
                           for name, _ in names] for cols in lengths]
    return (table(["row length"] + [f"{dtype} {text}" for dtype in dtypes
                                    for _, text in names], cells)
            + provenance([row for row in chosen if row.variant == "gpu_one_pass"]))


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
        share = f" ({row.pct_ceiling:.0f} %)" if row.pct_ceiling else ""
        lines[row.stage, row.variant, row.threads][shape_text(row)] = \
            f"{significant(speed)}{share}"
    lines = {key: line for key, line in lines.items() if 2 * len(line) > len(shapes)}
    if not lines:
        raise NoData(f"no CPU variant did {op} on most shapes")
    names = [f"{stage} {variant}, {threads:.0f} thread{'s' if threads > 1 else ''}"
             for stage, variant, threads in lines]
    unit = ("ns an element" if op == "softmax" else
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


def make_table(where, name, rows, directory):
    """The lines of the table called name."""
    lines = tables_ladder.make(name, rows, directory, sys.modules[__name__])
    if lines:
        return lines
    rows = [row for row in rows if row.stage != "roof"]
    fixed = {"stages": stages_table, "attention": attention_table, "softmax": softmax_table,
             "memory": memory_table, "ladder": ladder_table,
             "ladder-f32": lambda rows: ladder_table(rows, f32=True),
             "gpu-traffic": gpu_traffic_table, "gpu-rows": gpu_rows_table,
             "hopper": hopper_table, "headline": headline}
    if name in fixed:
        return fixed[name](rows)
    if name in ("limits-softmax", "limits-attention"):
        return limits_table(rows, name.split("-")[1])
    if name.startswith("file-"):
        return file_table(where, name[len("file-"):])
    match = re.fullmatch(r"stage-([1-5])-([a-z_]+)", name)
    if not match:
        raise Malformed(f"{where}: no table '{name}'; there are {', '.join(fixed)}, "
                        "crossover, roofs, decode, gpu-memory, counters, steps-A-B, "
                        "file-NAME, limits-OP and stage-N-OP")
    return stage_table(rows, *match.groups())


def rewrite(path, text, rows, directory, missing):
    """text with every table made anew; a table without data stays and is added to
    missing."""
    out, old, name, begun = [], [], None, 0
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}:{number}"
        mark = MARK.fullmatch(line.strip())
        if mark and (mark[2] == "begin") != (name is None):
            raise Malformed(f"{where}: '{line.strip()}' has no partner")
        if mark and mark[2] == "begin":
            name, begun, old = mark[1], number, []
            out.append(line)
        elif mark:
            if mark[1] != name:
                raise Malformed(f"{where}: table '{name}' ends as '{mark[1]}'")
            try:
                out += make_table(where, name, rows, directory)
            except NoData as error:
                missing.append(f"{where}: table '{name}' left as it is: {error}")
                out += old
            out.append(line)
            name = None
        else:
            (out if name is None else old).append(line)
    if name is not None:
        raise Malformed(f"{path}:{begun}: table '{name}' has no end mark")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description="Rewrites tables in Markdown from CSV.")
    parser.add_argument("--results", type=pathlib.Path, default="notes/results")
    parser.add_argument("--machine", default="", help="part of the machine's name")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if "
                        "a file would change")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    here = pathlib.Path(".")
    files = arguments.files or [path for pattern in ("README.md", "[0-9]*/README.md",
                                                     "notes/*.md")
                                for path in sorted(here.glob(pattern))]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    texts = {path: text for path, text in texts.items() if "<!-- table:" in text}
    if not texts:
        print("tables.py: no file has a table")
        return 0
    rows = read_results(arguments.results, arguments.machine, roofs=True)
    missing, status = [], 0
    new = {path: rewrite(path, text, rows, arguments.results, missing)
           for path, text in texts.items()}
    for path, text in new.items():
        if text == texts[path]:
            continue
        print(f"tables.py: {path} {'would change' if arguments.check else 'rewritten'}")
        status = 1 if arguments.check else status
        if not arguments.check:
            beside = path.with_name(f".{path.name}.tmp")
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, path)
    for line in missing:
        print(f"tables.py: {line}", file=sys.stderr)
    return 1 if missing else status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Malformed as error:
        print(f"tables.py: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"tables.py: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
