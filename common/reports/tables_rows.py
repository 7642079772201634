"""tables_rows.py: stage 1's two softmax kernels on a GPU, with few and with many blocks.  For
tables.py.

gpu_thread_per_row reads and writes scattered addresses, and it has few blocks where the matrix
has few rows.  The accesses of gpu_block_per_row are coalesced.  Shapes with the same number of elements tell the two
causes apart.  Times are those of results.py; counters, and the time of a shape that was only
counted, are those of `make profile 1`.
"""
import collections
import csv
import pathlib
import re

from results import NoData, read_file, si
from tables_text import provenance, seconds, significant, table

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "01_naive/gpu/rows.cu"
PROFILE = "profile_01_naive.csv"
SCATTERED, COALESCED = "gpu_thread_per_row", "gpu_block_per_row"
TYPES = ("f32", "f16")
# column of the profile: its header here, and what is added to the number
COUNTED = {"sectors_per_load": ("sectors per load", ""),
           "l1_hit_pct": ("of these from L1", " %"), "l1_pct": ("L1 busy", " %"),
           "active_pct": ("multiprocessors with work", " %")}


def blocks_of(row):
    """Blocks of the launch: a block has a row, or each of its threads."""
    if row.variant == COALESCED:
        return row.rows
    threads = int(re.search(r"#define THREADS (\d+)", SOURCE.read_text(encoding="utf-8"))[1])
    return -(-row.rows // threads)


def one_of(row):
    """G: the bytes of one pass over the matrix."""
    return row.rows * row.cols * (4 if row.dtype == "f32" else 2)


def is_here(row):
    return row.variant in (SCATTERED, COALESCED) and row.op == "softmax" \
        and row.device == "gpu" and row.dtype in TYPES


def key_of(row):
    return row.dtype, row.variant, row.rows


def read_counted(directory, machine):
    """{key: (row, its line with all columns)} of the profile; {} without one."""
    path = directory / PROFILE
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return {key_of(row): (row, line) for row, line in zip(read_file(path), lines)
            if is_here(row) and row.machine == machine}


def measured(rows):
    """{key: row} at the shapes at which both kernels were measured."""
    rows = [row for row in rows if is_here(row) and row.reps]
    shapes = [{(row.dtype, row.rows, row.cols) for row in rows if row.variant == name}
              for name in (SCATTERED, COALESCED)]
    both = shapes[0] & shapes[1]
    out = {key_of(row): row for row in rows if (row.dtype, row.rows, row.cols) in both}
    if len({blocks_of(row) for row in out.values() if row.variant == SCATTERED}) < 2:
        raise NoData("stage 1 was not measured on a GPU with few and with many blocks")
    return out


def in_order(known):
    """The rows of each type: scattered accesses first, most blocks first."""
    return sorted(known.values(), key=lambda row: (TYPES.index(row.dtype),
                                                   row.variant == COALESCED, -row.rows))


def shape_of(row):
    return f"[{si(row.rows)}, {si(row.cols)}]"


def line_of(row, counted, line):
    """The cells of a kernel at a shape, without and with what was counted there; `counted` and
    `line` are None where nothing was."""
    copy = 2 * one_of(row) / row.ceiling / 1e9 if row.ceiling else None
    cells = [row.variant, row.dtype, shape_of(row), f"{blocks_of(row):.0f}",
             seconds(row.median_s) + ("" if row.reps else ", one launch"),
             significant(row.median_s / copy) if copy else ""]
    moved = counted and counted.bytes_measured
    return cells, [f"{moved / one_of(row):.2f} G" if moved else ""] + [
        line[name] + unit if line and line.get(name) else ""
        for name, (_, unit) in COUNTED.items()]


def factors(known):
    """[(what changes, {type: how many times slower})]: one cause at a time."""
    out = collections.defaultdict(dict)
    for dtype in TYPES:
        mine = {name: sorted((row for row in known.values() if (row.dtype, row.variant)
                              == (dtype, name)), key=blocks_of)
                for name in (SCATTERED, COALESCED)}
        if len(mine[SCATTERED]) < 2:
            continue
        few, many = mine[SCATTERED][0], mine[SCATTERED][-1]
        fewest = blocks_of(few)
        beside = {row.rows: row for row in mine[COALESCED]}

        def slower(slow, fast, text, dtype=dtype):
            if slow and fast:
                out[text][dtype] = significant(slow.median_s / fast.median_s, 2)
        scattered = "scattered instead of coalesced accesses"
        slower(many, beside.get(many.rows), f"{scattered}, {shape_of(many)}")
        slower(few, many, f"{fewest:.0f} blocks instead of {blocks_of(many):.0f}, scattered "
               "accesses")
        slower(few, beside.get(fewest), f"{scattered}, {fewest:.0f} blocks each")
        slower(beside.get(fewest), beside.get(few.rows), f"{fewest:.0f} blocks instead of "
               f"{few.rows:.0f}, coalesced accesses")
        slower(few, beside.get(few.rows), f"both: the two kernels at {shape_of(few)}")
    return list(out.items())


def rows_table(rows, directory):
    """A line a kernel and shape; below it the factor that each cause takes."""
    known = measured(rows)
    counted = read_counted(directory, next(iter(known.values())).machine)
    elements = {row.rows * row.cols for row in known.values()}
    for key, (row, _) in counted.items():
        if row.rows * row.cols in elements:
            known.setdefault(key, row)
    header, cells = ["kernel", "type", "shape", "blocks", "time", "copies"], []
    for row in in_order(known):
        always, more = line_of(row, *counted.get(key_of(row), (None, None)))
        cells.append(always + (more if counted else []))
    if counted:
        header += ["counted"] + [name for name, _ in COUNTED.values()]
    types = [dtype for dtype in TYPES if any(row.dtype == dtype for row in known.values())]
    change = [[text] + [times.get(dtype, "") for dtype in types]
              for text, times in factors(known)]
    return (table(header, cells) + [""] + table(["slower by this factor"] + types, change)
            + provenance([*known.values(), *(row for row, _ in counted.values())]))
