"""results.py: the CSV files that `bench` wrote as pandas tables, for figures and tables.

The header of a file is its schema: columns are found by name, and one that a file lacks is
empty.  A column of text that is not in TEXTS holds numbers; an empty number is 0, an empty
error NaN.  Of the same measurement made several times the latest counts.
"""
import csv
import functools
import pathlib
import sys

import pandas as pd

from measurements import KINDS

TEXTS = [column for column, kind in KINDS.items() if kind == "TEXT"]
SHAPE = "rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v".split()
PROBLEM = ["op", "dtype", *SHAPE, "causal", "threads"]
KIND = [*PROBLEM, "device", "layout", "stage", "variant", "regime", "machine"]
STAGES = ("1", "2", "3", "4", "5", "peer", "roof")
# the last rungs beside the libraries, in several runs: more often than the whole ladder
LAST_RUNGS = pathlib.Path("hopper", "last_rungs.csv")
# what the lessons compare, measured in one go
LESSONS = pathlib.Path("cpu_lessons.csv")


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
        header, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines())
        rows = pd.DataFrame(lines, columns=header)
    except (OSError, ValueError, csv.Error) as error:
        raise Malformed(f"{path}: cannot be read ({error})") from None
    if rows.empty:
        raise Malformed(f"{path}: has a header and no measurements")
    short = rows.isna().any(axis=1)
    if short.any():
        raise Malformed(f"{path}:{short.idxmax() + 2}: has fewer fields than the header")
    return rows


def read_file(path):
    """The measurements in one CSV file, and what follows from them: stage is '1' to '5',
    'peer' or 'roof'; regime and layout are said by the flags of a GPU's line.  A wrong result
    is not published: a file that has one cannot be used."""
    rows = read_lines(path)
    for column in ("stage", "variant", "op", "device", "median_s"):
        if column not in rows or (rows[column] == "").any():
            raise Malformed(f"{path}: '{column}' is empty or missing")
    rows = rows.reindex(columns=[*rows, *(c for c in KINDS if c not in rows)], fill_value="")
    compared = rows.max_err != ""
    for column in rows.columns.difference(TEXTS):
        numbers = pd.to_numeric(rows[column], errors="coerce").astype(float)
        if (bad := numbers.isna() & (rows[column] != "")).any():
            raise Malformed(f'{path}:{bad.idxmax() + 2}: {column} is "{rows[column][bad.idxmax()]}", no number')
        rows[column] = numbers
    wrong = compared & ~(rows.max_err <= rows.allowed_err.fillna(sys.float_info.max))
    if wrong.any():
        raise Malformed(f"{path}:{wrong.idxmax() + 2}: a wrong result is not published")
    errors = rows[["max_err", "allowed_err"]]
    stage = rows.stage.str.split("_").str[0].str.lstrip("0")
    if not stage.isin(STAGES).all():
        raise Malformed(f"{path}: stage is '{stage[~stage.isin(STAGES)].iloc[0]}', not 1 to 5, "
                        "peer or roof")
    flags = rows["flags"].where(rows.device == "gpu", "")
    return rows.fillna(0.0).assign(
        **errors, stage=stage,
        regime=flags.str.contains("sustained").map({True: "sustained", False: "cold"}),
        layout=flags.str.contains("blhd").map({True: "blhd", False: "bhld"}),
        length=rows.seqlen_k.where(rows.seqlen_k > 0, rows.cols))


# --- Choosing ---

def number_runs(rows):
    """The measurements with `run`: 0 for the latest of each kind, 1 for the one before it.  A file
    that is kept has lines of one machine code: who changes a kernel measures its file anew."""
    rows = rows[rows.reps > 0].sort_values("date", kind="stable")
    return rows.assign(run=rows.groupby(KIND, sort=False).cumcount(ascending=False))


def middle_run(rows, by):
    """Of the lines that agree in the columns `by`, one a run, the one with the median time; in the
    order of the first of each."""
    kinds = rows.groupby(by, sort=False)
    place = rows.sort_values("median_s", kind="stable").groupby(by).cumcount().reindex(rows.index)
    order = kinds.ngroup()[place == kinds.median_s.transform("size") // 2]
    return rows.loc[order.sort_values().index]


def latest_of(rows):
    """The latest measurement of each kind, with the bytes that a profile counted.  A line
    of `make profile` has no repeats: only its bytes count."""
    counted = rows[rows.reps == 0].sort_values("date").drop_duplicates(KIND, keep="last")
    latest = number_runs(rows).query("run == 0").merge(
        counted[[*KIND, "bytes_measured"]], "left", KIND, suffixes=("", "_counted"))
    return latest.assign(bytes_measured=latest.bytes_measured_counted.fillna(latest.bytes_measured))


class Data:
    """The measurements in a directory, of one CPU and one GPU.

        all           the latest of each kind
        rows          of these the cold ones with arrays [batch, heads, length, head_dim]
        lessons       those of a CPU, of LESSONS where it is there
        stages        these on a CPU, and the rows of other devices
        beside_peers  16-bit attention of many queries on a GPU, in both regimes and all layouts,
                      every `run`; of LAST_RUNGS where it is there

    `machine` is another GPU than the H200.  Its files have its name: backward/h100.csv,
    hopper/h100_hard.csv.
    """

    def __init__(self, directory, machine=""):
        self.directory, self.machine = directory, machine

    def path(self, name):
        """Where a file below the directory is, of this machine."""
        path = self.directory / name
        if not self.machine:
            return path
        return path.with_name(path.name.replace("h200", self.machine) if "h200" in path.name
                              else f"{self.machine}_{path.name}")

    @functools.cached_property
    def all(self):
        files = [path for path in sorted(self.directory.glob(f"{self.machine}*.csv"))
                 if not path.name.startswith("cpu_")]  # which hold further machines, or LESSONS
        if not files:
            raise Malformed(f"{self.directory}: has no .csv files; `make bench` writes them")
        rows = pd.concat([read_file(path) for path in files], ignore_index=True)
        return latest_of(rows)

    @functools.cached_property
    def rows(self):
        return self.all.query("regime == 'cold' and layout == 'bhld'")

    @functools.cached_property
    def lessons(self):
        alone = self.path(LESSONS)
        return latest_of(read_file(alone)) if alone.exists() else self.rows.query("device == 'cpu'")

    @functools.cached_property
    def stages(self):
        return pd.concat([self.lessons, self.rows.query("device != 'cpu'")], ignore_index=True)

    @functools.cached_property
    def beside_peers(self):
        last = self.path(LAST_RUNGS)
        rows = read_file(last) if last.exists() else self.all
        return number_runs(rows.query(
            "op == 'attention' and device == 'gpu' and dtype == 'bf16' and gflops > 0 and "
            "seqlen_q == seqlen_k and stage in ('5', 'peer')"))

    def file(self, name, read=read_file):
        """A file below the directory."""
        path = self.path(name)
        if not path.exists():
            raise NoData(f"no file {path}")
        return read(path)


# What all stages do, and in words
SAME_WORK = "op == 'attention' and dtype == 'f32' and batch == 1 and heads_q == 1 and " \
    "head_dim == 64 and causal == 0 and seqlen_q == seqlen_k"
SAME_WORK_TEXT = "attention, f32, batch 1, 1 head, head_dim 64"
