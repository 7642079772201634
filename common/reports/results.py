"""results.py: the CSV files that `bench` wrote as pandas tables, for figures and tables.

The header of a file is its schema: columns are found by name, and one that a file lacks is
empty.  A column of text that is not in TEXTS holds numbers; an empty number is 0, an empty
error NaN.  Of the same measurement made several times the latest counts.
"""
import collections
import csv
import functools
import pathlib
import sys

import pandas as pd

from accept import accepted
from ladder import listed
from measurements import KINDS
from words import si

TEXTS = [column for column, kind in KINDS.items() if kind == "TEXT"]
NUMBERS = [column for column, kind in KINDS.items() if kind != "TEXT"]
SHAPE = "rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v".split()
ERRORS = ("max_err", "allowed_err")
ALWAYS = ("stage", "variant", "op", "device", "median_s")
STAGES = ("1", "2", "3", "4", "5", "peer", "roof")
CONDITIONS = ["op", "dtype", "device", "causal", "layout"]
KIND = CONDITIONS + SHAPE + ["stage", "variant", "threads", "regime", "machine"]
PLACES = {"gpu": "GPU", "cpu": "CPU"}  # kernels executed on the CPU are their own kind
# the last rungs beside the libraries, measured more often than the whole ladder: a run of its
# own, because runs differ by more than two rungs do
LAST_RUNGS = pathlib.Path("hopper", "last_rungs.csv")

# What a measurement computed, all but the length.  size: elements of a softmax, (query)
# tokens of a square attention in 16 bits or of 2048 columns over all heads, else the batch;
# queries: None when square.
Work = collections.namedtuple("Work", "op dtype size heads_q heads_kv head_dim "
                              "head_dim_v causal queries")


class Malformed(Exception):
    """A file that cannot be used; the text is the line to print."""


class NoData(Exception):
    """A figure or table that cannot be made; the text says what is missing."""


def need(rows, why):
    """rows, or NoData when there are none."""
    if not len(rows):
        raise NoData(why)
    return rows


def guarded(name, work):
    """The exit status of work(); 2 with one line where a file cannot be used."""
    try:
        return work()
    except Malformed as error:
        print(f"{name}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"{name}: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


def each(rows):
    """The rows as tuples with names, a list."""
    return list(rows.itertuples(index=False))


# --- Reading ---

def read_lines(path):
    """A CSV file as a table of texts."""
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Malformed(f"{path}: cannot be read ({error})") from None
    if not lines:
        raise Malformed(f"{path}: is empty; `bench --csv` writes a header and lines")
    header, *lines = [[cell.strip() for cell in line] for line in lines]
    for column in header:
        if header.count(column) != 1:
            raise Malformed(f"{path}: has {header.count(column)} columns '{column}', not one")
    if not lines:
        raise Malformed(f"{path}: has a header and no measurements")
    for number, line in enumerate(lines, 2):
        if len(line) != len(header):
            raise Malformed(f"{path}:{number}: has {len(line)} fields, the header {len(header)}")
    return pd.DataFrame(lines, columns=header)


def numbers(path, texts, column):
    """The numbers of a column; Malformed names the first text that is none."""
    values = pd.to_numeric(texts, errors="coerce").astype(float)
    bad = (texts != "") & (values.isna() | values.abs().eq(float("inf")))
    if column == "max_err":  # may be NaN, and is then never published
        bad &= values.isna() & ~texts.str.lower().isin(("nan", "-nan"))
    if bad.any():
        at = bad.idxmax()
        raise Malformed(f"{path}:{at + 2}: {column} is '{texts[at]}', not a finite number")
    return values if column in ERRORS else values.fillna(0.0)


def read_file(path):
    """The measurements in one CSV file, and what follows from them: stage is '1' to '5',
    'peer' or 'roof'; regime and layout are said by the flags of a GPU's line."""
    rows = read_lines(path)
    for column in ALWAYS:
        if column not in rows:
            raise Malformed(f"{path}: has no column '{column}'")
        if (rows[column] == "").any():
            raise Malformed(f"{path}:{(rows[column] == '').idxmax() + 2}: {column} is empty")
    rows = rows.reindex(columns=[*rows, *(c for c in TEXTS + NUMBERS if c not in rows)],
                        fill_value="")
    said = rows.max_err != ""
    for column in rows.columns.difference(TEXTS):
        rows[column] = numbers(path, rows[column], column)
    short = rows.stage.str.split("_").str[0].str.lstrip("0")
    if not short.isin(STAGES).all():
        at = (~short.isin(STAGES)).idxmax()
        raise Malformed(f"{path}:{at + 2}: stage is '{rows.stage[at]}', not 1 to 5, peer or roof")
    flags = [text.split("; ") if device == "gpu" else []
             for text, device in zip(rows["flags"], rows.device)]
    rows = rows.assign(
        stage=short, file=path.name, on=rows.device.map(PLACES).fillna("on CPU"),
        regime=["sustained" if "sustained" in said else "cold" for said in flags],
        layout=["blhd" if "blhd" in said else "bhld" for said in flags],
        length=rows.seqlen_k.where(rows.seqlen_k > 0, rows.cols),
        wrong=[text and not accepted(error, allowed) for text, error, allowed in
               zip(said, rows.max_err, rows.allowed_err.fillna(float("inf")))])
    return rows.assign(work=[work_of(row) for row in each(rows)])


# --- Choosing ---

def choose_machine(rows, machine, quiet=True):
    """Of the CPU and of the GPU the rows of one machine: of those whose name contains
    `machine` (where none does: of all) the one with the most rows.  Files cpu_*.csv hold
    further machines: they count where they are named, or where there is no other."""
    chosen = []
    for mine in (rows[rows.device != "gpu"], rows[rows.device == "gpu"]):
        if mine.empty:
            continue
        first = mine[~mine.file.str.startswith("cpu_")]
        first = mine if first.empty else first
        named = (mine if machine else first).machine
        named = named[named.str.contains(machine, regex=False)]
        named = (first.machine if named.empty else named).value_counts().sort_index()
        chosen.append(mine[mine.machine == named.idxmax()])
        for other in sorted({*mine.machine} - {named.idxmax()}):
            if not quiet:
                print(f"left out: the measurements of '{other}' (--machine chooses)")
    return pd.concat(chosen) if chosen else rows


def latest_of(rows):
    """The latest measurement of each kind, with the bytes that a profile counted.  A line
    of `make profile` has no repeats: only its bytes count."""
    rows = rows.assign(counted=rows.reps == 0).sort_values(["counted", "date"], kind="stable")
    rows = rows.assign(place=rows.groupby(KIND, sort=False).ngroup())
    latest, counted = (some.drop_duplicates("place", keep="last").set_index("place")
                       for some in (rows[rows.reps > 0], rows[rows.reps == 0]))
    bytes_measured = counted.bytes_measured.reindex(latest.index).fillna(latest.bytes_measured)
    return latest.assign(bytes_measured=bytes_measured).sort_index()


def latest_run(rows, others):
    """rows and others; of a problem that both have measured only the later file's, because a ratio
    of two sessions is none."""
    both = pd.concat([rows.assign(run=0), others.assign(run=1)], ignore_index=True)
    problem = CONDITIONS + SHAPE
    both["newest"] = both.groupby(problem + ["run"]).date.transform("max")
    return both[both.newest == both.groupby(problem).newest.transform("max")]


def number_runs(rows):
    """The measurements with `run`: 0 for the latest of each kind, 1 for the one before it of the
    same commit."""
    rows = rows[rows.reps > 0].sort_values("date", kind="stable")
    rows = rows[rows.commit == rows.groupby(KIND, sort=False).commit.transform("last")]
    return rows.assign(run=rows.groupby(KIND, sort=False).cumcount(ascending=False))


def still_listed(rows):
    """rows without the variants of stages 1 to 4 that their stage does not list any more."""
    return rows[[stage not in "1234" or not listed(stage) or variant in listed(stage)
                 for stage, variant in zip(rows.stage, rows.variant)]]


class Data:
    """The measurements in a directory, of one CPU and one GPU.

        all           the latest of each kind, of every machine
        rows          of the chosen machines: cold, arrays [batch, heads, length, head_dim]
        with_roofs    and kernels that leave a part of the work out
        beside_peers  in both regimes and all layouts, every `run`; of a problem that
                      last_rungs.csv has measured later that file's
    """

    def __init__(self, directory, machine="", quiet=True):
        self.directory, self.machine, self.quiet = directory, machine, quiet

    @functools.cached_property
    def read(self):
        files = sorted(self.directory.glob("*.csv"))
        if not files:
            raise Malformed(f"{self.directory}: has no .csv files; `make bench` writes them")
        rows = pd.concat([read_file(path) for path in files], ignore_index=True)
        if not rows.machine.str.contains(self.machine, regex=False).any():
            raise Malformed(f"{self.directory}: no measurement of a machine '{self.machine}'")
        return rows

    @functools.cached_property
    def all(self):
        return still_listed(latest_of(self.read))

    @functools.cached_property
    def with_roofs(self):
        return choose_machine(self.all, self.machine, self.quiet).query(
            "regime == 'cold' and layout == 'bhld'")

    @functools.cached_property
    def rows(self):
        return self.with_roofs[self.with_roofs.stage != "roof"]

    @functools.cached_property
    def both_runs(self):
        newer = self.directory / LAST_RUNGS
        rows = latest_run(self.read, read_file(newer)) if newer.exists() else self.read
        return number_runs(still_listed(rows))

    @functools.cached_property
    def beside_peers(self):
        rows = choose_machine(self.both_runs, self.machine)
        return rows[rows.stage != "roof"]

    def at(self, machine):
        """The same of other machines."""
        other = Data(self.directory, machine or self.machine)
        other.all, other.both_runs = self.all, self.both_runs
        if not self.read.machine.str.contains(machine, regex=False).any():
            raise Malformed(f"no measurement of a machine '{machine}'")
        return other

    def refuse_wrong(self):
        """A wrong result is not published."""
        for rows in (self.all, self.both_runs):
            for row in each(rows[rows.wrong.astype(bool)])[:1]:
                raise Malformed(f"{self.directory}: {row.variant} of {row.date}: error "
                                f"{row.max_err:g}, allowed {row.allowed_err:g}: a wrong result "
                                "is not published")

    def file(self, name, read=read_file):
        """A file below the directory."""
        path = self.directory / name
        if not path.exists():
            raise NoData(f"no file {path}")
        return read(path)


# --- The same work ---

def is_square(rows):
    return rows.seqlen_q == rows.seqlen_k


def work_of(row):
    if "softmax" in row.op and not row.seqlen_k:
        return Work(row.op, row.dtype, row.rows * row.cols, *[None] * 6)
    square = row.seqlen_q == row.seqlen_k
    tokens = square and (row.dtype != "f32" or row.heads_q * row.head_dim == 2048)
    return Work(row.op, row.dtype, row.batch * row.seqlen_q if tokens else row.batch,
                row.heads_q, row.heads_kv, row.head_dim, row.head_dim_v, row.causal,
                None if square else row.seqlen_q)


def same_work(rows):
    """The measurements of the work (all but the length) that most stages have done, peers
    not counted; of equals with as many queries as keys, float32, without causal mask, softmax
    from main memory, the most lengths."""
    groups = dict(list(need(rows, "no measurements of it").groupby("work", sort=False)))

    def worth(work):
        lengths = groups[work].length.nunique()
        return (len({*groups[work].stage} - {"peer"}), work.queries is None,
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


def best_lines(rows):
    """For every stage and device its best variant: {label: rows by length}, where best is
    the variant with the most lengths and of these the one fastest at its last length."""
    rows, out = rows[(rows.median_s > 0) & (rows.length > 0)], {}
    for (stage, on), mine in need(rows, "no measurement has median_s").groupby(["stage", "on"]):
        lines = {name: line.sort_values("median_s", kind="stable").drop_duplicates("length")
                 .sort_values("length") for name, line in mine.groupby("variant", sort=False)}

        def worth(name, lines=lines):
            last = lines[name].iloc[-1]
            return last.length, len(lines[name]), -last.median_s
        for name in lines if stage == "peer" else [max(lines, key=worth)]:
            label = name if stage == "peer" else f"{stage} {name}"
            out[f"{label} ({on})"] = each(lines[name])
    return out
