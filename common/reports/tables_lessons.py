"""tables_lessons.py: the table of a lesson: its variants on one softmax and one attention, the
same in all lessons.  For tables.py.
"""
import collections

from results import NoData, si
from tables_text import provenance, seconds, significant, table

# The variants that each lesson compares, (stage, variant): the plain ones of the lessons
# before it, then its own.
LESSONS = {
    "1": [("1", "naive"), ("1", "simd"), ("1", "threads")],
    "2": [("1", "naive"), ("2", "recompute"), ("2", "reload"), ("2", "simd"),
          ("2", "overlapped"), ("2", "threads")],
    "3": [("1", "naive"), ("2", "recompute"), ("3", "online"), ("3", "divide_once"),
          ("3", "simd"), ("3", "streaming"), ("3", "two_pass"), ("3", "one_look"),
          ("3", "threads")],
    "4": [("1", "naive"), ("3", "divide_once"), ("4", "fold"), ("4", "tiled"),
          ("4", "microkernel"), ("4", "all_cores")],
}


def lesson_table(rows, stage):
    """A line a variant; all lines of all lessons did the same softmax and attention."""
    all_lessons = {key for keys in LESSONS.values() for key in keys}
    chosen = [row for row in rows if row.device == "cpu" and row.dtype == "f32"
              and (row.stage, row.variant) in all_lessons]
    same = {}
    for op, wanted in (("softmax", lambda row: row.rows == 1),
                       ("attention", lambda row: row.seqlen_q == row.seqlen_k
                        and row.head_dim == 64 and not row.causal and row.heads_q == 1
                        and row.variant != "reload")):  # it does softmax only
        done = collections.defaultdict(dict)
        for row in chosen:
            if row.op == op and wanted(row):
                done[row.length][row.stage, row.variant] = row
        if done:  # the longest that most of them did
            same[op] = done[max(done, key=lambda length: (len(done[length]), length))]
    if set(same) != {"softmax", "attention"}:
        raise NoData(f"no softmax of one row, or no attention with d = 64, for lesson {stage}")
    cells = []
    for key in LESSONS[stage]:
        one, two = same["softmax"].get(key), same["attention"].get(key)
        if not one and not two:
            continue
        cells.append([key[0], f"`{key[1]}`"] + ["" if not row else text(row)
                     for row, text in (
                         (one, lambda row: seconds(row.median_s)),
                         (two, lambda row: seconds(row.median_s)),
                         (two, lambda row: significant(row.gflops)),
                         (two, lambda row: significant(row.peak_bytes / (1 << 20))))])
    first = {op: next(iter(same[op].values())) for op in same}
    used = [row for op in same for key, row in same[op].items() if key in LESSONS[stage]]
    return ([f"Softmax of one row of {si(first['softmax'].length)} floats; attention of "
             f"{si(first['attention'].length)} queries and as many keys, one head, d = 64, "
             "float32.", ""]
            + table(["stage", "variant", "softmax", "attention", "GFLOP/s",
                     "memory, MiB"], cells) + provenance(used))
