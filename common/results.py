"""results.py: reads the CSV files that `bench` wrote, for plot.py and tables.py.

One line is a measurement.  Of the same measurement made several times the latest counts.
"""
import argparse
import collections
import csv
import math

TEXTS = ("stage variant op device dtype ceiling_kind date commit machine compiler "
         "flags").split()
NUMBERS = ("rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v "
           "causal threads median_s min_s reps bytes_predicted bytes_measured flops gbps gflops "
           "ceiling pct_ceiling peak_bytes max_err allowed_err").split()
ALWAYS = ("stage", "variant", "op", "device", "median_s")
STAGES = ("1", "2", "3", "4", "5", "peer")
WORK = "dtype batch heads_q heads_kv head_dim head_dim_v causal".split()


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
        row.length = row.seqlen_k if "attention" in row.op else row.cols
        out.append(row)
    return out


def stage_of(where, text):
    """'1' to '5' of '3' or '03_online_softmax'; 'peer'."""
    short = text.split("_")[0].lstrip("0")
    if short not in STAGES:
        raise Malformed(f"{where}: stage is '{text}', not 1 to 5 or peer")
    return short


def read_results(directory, machine):
    """All measurements of one machine under directory, the latest of each kind."""
    files = sorted(directory.glob("*.csv"))
    if not files:
        raise Malformed(f"{directory}: has no .csv files; `make bench` writes them")
    rows = [row for path in files for row in read_file(path)]
    counts = collections.Counter(row.machine for row in rows if machine in row.machine)
    if not counts:
        raise Malformed(f"{directory}: no measurement of a machine '{machine}'")
    chosen = counts.most_common(1)[0][0]
    for other in sorted({row.machine for row in rows} - {chosen}):
        print(f"left out: the measurements of '{other}' (--machine chooses)")
    latest = {}
    rows = [row for row in rows if row.machine == chosen]
    for row in sorted(rows, key=lambda row: row.date):
        work = (row.rows, row.cols, row.seqlen_q, row.seqlen_k, row.threads)
        latest[(row.stage, row.variant, row.op, row.device, work)
               + tuple(getattr(row, column) for column in WORK)] = row
    return list(latest.values())


def work_of(row):
    return tuple(getattr(row, column) for column in WORK)


def same_work(rows):
    """The measurements of the work (all but the length) that most stages have done."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[work_of(row)].append(row)
    if not groups:
        raise NoData("no measurements of it")

    def worth(work):
        group = groups[work]
        return (len({row.stage for row in group}), work[0] == "f32", not group[0].causal,
                len({row.length for row in group}), str(work))

    return groups[max(groups, key=worth)]


def describe_work(row):
    if "attention" not in row.op:
        return f"{row.op}, {row.dtype}"
    heads = f"{row.heads_q:.0f} heads" if row.heads_q == row.heads_kv else \
        f"{row.heads_q:.0f} query and {row.heads_kv:.0f} key heads"
    causal = ", causal" if row.causal else ""
    return f"attention, {row.dtype}, batch {row.batch:.0f}, {heads}, " \
           f"head_dim {row.head_dim:.0f}{causal}"


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


def si(value):
    """'4k' for 4096; powers of two in units of 1024."""
    value = int(value)
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= unit and value % unit == 0:
            return f"{value // unit}{name}"
    return str(value)
