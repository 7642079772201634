"""results.py: reads the CSV files that `bench` wrote, for the figures and tables.

One line is a measurement.  Of the same measurement made several times the latest counts.
"""
import argparse
import collections
import csv
import math
import pathlib
import re

TEXTS = ("stage variant op device dtype ceiling_kind date commit machine compiler "
         "flags").split()
NUMBERS = ("rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v "
           "causal threads median_s min_s reps bytes_predicted bytes_measured flops gbps "
           "gflops ceiling pct_ceiling peak_bytes max_err allowed_err").split()
ALWAYS = ("stage", "variant", "op", "device", "median_s")
STAGES = ("1", "2", "3", "4", "5", "peer", "roof")
SHAPE = "rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v".split()

# What a measurement computed, all but the length.  size: elements of a softmax, (query)
# tokens of a square attention in 16 bits or of 2048 columns over all heads, else the batch;
# queries: None when square.
Work = collections.namedtuple("Work", "op dtype size heads_q heads_kv head_dim "
                              "head_dim_v causal queries")


class Malformed(Exception):
    """A file that cannot be used; the text is the line to print."""


class NoData(Exception):
    """A figure or table that cannot be made; the text says what is missing."""


def read_number(where, column, text):
    """A number, or None when the field is empty."""
    if text.strip() == "":
        return None
    try:
        value = float(text)
    except ValueError:
        raise Malformed(f"{where}: {column} is '{text}', not a number") from None
    if not math.isfinite(value) and column != "max_err":
        raise Malformed(f"{where}: {column} is '{text}', not a finite number")
    return value


def read_file(path):
    """The measurements in one CSV file, a namespace each."""
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Malformed(f"{path}: cannot be read ({error})") from None
    if not lines:
        raise Malformed(f"{path}: is empty; `bench --csv` writes a header and lines")
    header = [column.strip() for column in lines[0]]
    for column in TEXTS + NUMBERS:
        if header.count(column) != 1:
            raise Malformed(f"{path}: has {header.count(column)} columns '{column}', "
                            "not one")
    if len(lines) == 1:
        raise Malformed(f"{path}: has a header and no measurements")
    out = []
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}:{number}"
        if len(line) != len(header):
            raise Malformed(f"{where}: has {len(line)} fields, the header {len(header)}")
        fields = dict(zip(header, line))
        row = argparse.Namespace(**{column: fields[column].strip() for column in TEXTS})
        for column in NUMBERS:
            setattr(row, column, read_number(where, column, fields[column]))
        for column in ALWAYS:
            if getattr(row, column) in (None, ""):
                raise Malformed(f"{where}: {column} is empty")
        row.stage = stage_of(where, row.stage)
        row.regime, row.layout = conditions_of(row)
        row.file = path.name
        row.length = row.seqlen_k if "attention" in row.op else row.cols
        out.append(row)
    return out


def stage_of(where, text):
    """'1' to '5' of '3' or '03_online_softmax'; 'peer'; 'roof'."""
    short = text.split("_")[0].lstrip("0")
    if short not in STAGES:
        raise Malformed(f"{where}: stage is '{text}', not 1 to 5, peer or roof")
    return short


def conditions_of(row):
    """(regime, layout) that the flags of a GPU's line say; unless they say otherwise one
    call at a time on a flushed cache, arrays [batch, heads, length, head_dim]."""
    said = row.flags.split("; ") if row.device == "gpu" else []
    return ("sustained" if "sustained" in said else "cold",
            "blhd" if "blhd" in said else "bhld")


def usual(rows):
    """The measurements of the usual conditions."""
    return [row for row in rows if (row.regime, row.layout) == ("cold", "bhld")]


def choose_machine(rows, machine, quiet=True):
    """Of the CPU and of the GPU the rows of one machine: of those whose name contains
    `machine` (where none does: of all) the one with the most rows.  Files cpu_*.csv hold
    further machines: they count where they are named, or where there is no other."""
    out = []
    for on_gpu in (False, True):
        mine = [row for row in rows if (row.device == "gpu") == on_gpu]
        first = [row for row in mine if not row.file.startswith("cpu_")] or mine
        named = [row.machine for row in (mine if machine else first)
                 if machine in row.machine] or [row.machine for row in first]
        if not named:
            continue
        chosen = max(sorted(set(named)), key=collections.Counter(named).get)
        out += [row for row in mine if row.machine == chosen]
        for other in sorted({row.machine for row in mine} - {chosen}):
            if not quiet:
                print(f"left out: the measurements of '{other}' (--machine chooses)")
    return out


def read_all(directory, machine="", roofs=False):
    """Every measurement under directory, also of other machines; machine is a part of the
    name of at least one."""
    files = sorted(directory.glob("*.csv"))
    if not files:
        raise Malformed(f"{directory}: has no .csv files; `make bench` writes them")
    rows = [row for path in files for row in read_file(path)]
    if not any(machine in row.machine for row in rows):
        raise Malformed(f"{directory}: no measurement of a machine '{machine}'")
    return [row for row in rows if roofs or row.stage != "roof"]


def read_results(directory, machine, roofs=False):
    """The usual measurements of one machine, the latest of each kind; roofs, kernels that
    leave a part of the work out, only where they are asked for."""
    rows = choose_machine(read_all(directory, machine, roofs), machine, quiet=False)
    return usual(still_listed(latest_of(rows)))


def latest_of(rows):
    """The latest measurement of each kind, with the bytes that a profile counted.  A line
    of `make profile` has no repeats: only its bytes count."""
    latest = {}
    for row in sorted(rows, key=lambda row: (not row.reps, row.date)):
        shape = tuple(getattr(row, column) for column in SHAPE)
        key = (row.stage, row.variant, row.op, row.device, row.dtype, row.threads,
               row.causal, row.regime, row.layout, row.machine, shape)
        if row.reps:
            latest[key] = row
        elif key in latest:
            latest[key].bytes_measured = row.bytes_measured
    return list(latest.values())


MOST_PERCENT = 105  # a share above this is none: see ceiling_exceeded() in common/measurement
CACHED, WRONG = "†", "‡"
MARKS = {CACHED: "ceiling wrong or model wrong: a cache served a pass",
         WRONG: "ceiling wrong or model wrong"}


def mark_of(row):
    """'' or the mark of a share of the ceiling that cannot be one."""
    if not row.pct_ceiling or row.pct_ceiling <= MOST_PERCENT:
        return ""
    if row.ceiling_kind == "copy" and row.ceiling and row.rows and row.cols:
        size = 4 if row.dtype == "f32" else 2
        once = 2 * size * row.rows * row.cols / row.median_s / 1e9  # x read, y written
        if 100 * once <= MOST_PERCENT * row.ceiling:
            return CACHED
    return WRONG


def share_of(row, kind=""):
    """'98 %', '98 % of fma' or '187 %† of copy'; '' when no ceiling was measured."""
    if not row.pct_ceiling:
        return ""
    return f"{row.pct_ceiling:.0f} %{mark_of(row)}" + (f" of {kind}" if kind else "")


def footnotes(lines):
    """Lines of Markdown that explain the marks in the lines of a table."""
    text = "\n".join(lines)
    notes = [f"{mark} {why}" for mark, why in MARKS.items() if mark in text]
    return ["", "*" + "; ".join(notes) + ".*"] if notes else []


def work_of(row):
    if "softmax" in row.op and not row.seqlen_k:
        return Work(row.op, row.dtype, (row.rows or 0) * (row.cols or 0), *[None] * 6)
    square = row.seqlen_q == row.seqlen_k
    tokens = square and (row.dtype != "f32" or row.heads_q * row.head_dim == 2048)
    return Work(row.op, row.dtype, row.batch * row.seqlen_q if tokens else row.batch,
                row.heads_q, row.heads_kv, row.head_dim, row.head_dim_v, row.causal,
                None if square else row.seqlen_q)


def same_work(rows):
    """The measurements of the work (all but the length) that most stages have done, peers
    not counted; of equals with as many queries as keys, float32, without causal mask, softmax
    from main memory, the most lengths."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[work_of(row)].append(row)
    if not groups:
        raise NoData("no measurements of it")

    def worth(work):
        group = groups[work]
        lengths = len({row.length for row in group})
        return (len({row.stage for row in group} - {"peer"}), work.queries is None,
                work.dtype == "f32", not work.causal, lengths > 1,
                work.size if "softmax" in work.op else 0, lengths, str(work))

    return groups[max(groups, key=worth)]


def describe_work(row):
    """'attention, f32, batch 1, 8 heads, head_dim 64'."""
    work = work_of(row)
    if "softmax" in work.op and not row.seqlen_k:
        return f"{work.op}, {work.dtype}, {si(work.size)} elements"
    heads = f"{row.heads_q:.0f} heads" if row.heads_q == row.heads_kv else \
        f"{row.heads_q:.0f} query and {row.heads_kv:.0f} key heads"
    heads = heads.replace("1 heads", "1 head") if heads.startswith("1 h") else heads
    tokens = work.queries is None and (work.dtype != "f32"
                                       or work.heads_q * work.head_dim == 2048)
    size = f"{si(work.size)} tokens" if tokens else f"batch {work.size:.0f}"
    one = "" if work.queries is None else f", {work.queries:.0f} query"
    causal = ", causal" if work.causal else ""
    return f"{work.op}, {work.dtype}, {size}, {heads}, head_dim {work.head_dim:.0f}" \
           f"{one}{causal}"


def where_of(row):
    """'CPU' or 'GPU'; kernels executed on the CPU are their own kind."""
    return {"gpu": "GPU", "cpu": "CPU"}.get(row.device, "on CPU")


def best_lines(rows, column, biggest=False):
    """For every stage and device its best variant: {label: rows by length}, where best is
    the variant with the most lengths and of these the one best at its last length."""
    lines = collections.defaultdict(lambda: collections.defaultdict(dict))
    for row in rows:
        value = getattr(row, column)
        if value is None or not value > 0 or row.length is None:
            continue
        known = lines[row.stage, where_of(row)][row.variant].get(row.length)
        if known is None or row.median_s < known.median_s:
            lines[row.stage, where_of(row)][row.variant][row.length] = row
    out = {}
    for (stage, where), variants in sorted(lines.items()):
        def worth(name):
            last = getattr(variants[name][max(variants[name])], column)
            return max(variants[name]), len(variants[name]), last if biggest else -last
        chosen = variants.items() if stage == "peer" else \
            [(name := max(variants, key=worth), variants[name])]
        for name, points in chosen:
            label = f"{stage} {name}" if stage != "peer" else name
            out[f"{label} ({where})"] = [points[n] for n in sorted(points)]
    if not out:
        raise NoData(f"no measurement has {column}")
    return out


def listed(stage):
    """The variants of a stage in the order of its list, which is the order of its ideas:
    {name: place}."""
    here = next(pathlib.Path(".").glob(f"0{stage}_*"), None)
    texts = {path.name: path.read_text(encoding="utf-8")
             for pattern in ("variants.h", "*.c", "*.cu", "*/*.c", "*/*.cu", "*/*/*.cu")
             for path in here.glob(pattern)} if here else {}
    names = dict(re.findall(r'const struct variant (\w+) = \{\s*\.name = "(\w+)"',
                            "\n".join(texts.values())))
    block = re.search(r"\bvariants\[\] = \{(.*?)\};",
                      texts.get("variants.h") or texts.get("variants.c") or texts.get("stage.cu", ""), re.S)
    listing = re.sub(r'#include "(\w+\.h)"', lambda name: re.sub(
        r"^RUNG\((\w+)", r"&\1", (here / name[1]).read_text(encoding="utf-8"), flags=re.M),
                     block[1]) if block else ""
    symbols = re.findall(r"^\s*&(\w+)", listing, re.M)
    return {names.get(symbol, symbol): place for place, symbol in enumerate(symbols)}


def still_listed(rows):
    """rows without the variants of stages 1 to 4 that their stage does not list any more."""
    known = {stage: listed(stage) for stage in "1234"}
    return [row for row in rows if not known.get(row.stage)
            or row.variant in known[row.stage]]


def si(value):
    """'4k' for 4096; powers of two in units of 1024."""
    value = int(value)
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= unit and value % unit == 0:
            return f"{value // unit}{name}"
    return str(value)
