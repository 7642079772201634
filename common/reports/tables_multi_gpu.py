"""tables_multi_gpu.py: the tables of several GPUs and of several processes, from
notes/results/multi_gpu: times.csv, attempts.csv and ranks.csv."""
import csv
import statistics

from results import NoData, read_file, si
from tables_text import table


def problem_of(row):
    """A row's problem in words."""
    if row.seqlen_q == 1:
        return f"decoding: 1 query, {si(row.seqlen_k)} keys"
    if row.seqlen_q != row.seqlen_k:
        return f"{si(row.seqlen_q)} queries, {si(row.seqlen_k)} keys"
    return f"{si(row.seqlen_q)} x {si(row.seqlen_k)}" + (", causal" if row.causal else "")


def line_of(rows):
    """The cells of one problem: the rows of a shape, each method's latest."""
    times = {row.variant: row for row in rows}
    single = times.get("tuned") or times.get("split_kv")
    ours = [row for name, row in times.items()
            if row.stage == "5" and name.rsplit("-", 1)[-1].isdigit()]
    peers = [row for row in rows if row.stage == "peer"]
    best = min(ours, key=lambda row: row.median_s)
    others = [row for row in ours if row is not best]
    peer = min(peers, key=lambda row: row.median_s, default=None)
    return [problem_of(best),
            f"{1e3 * single.median_s:.2f} ms" if single else "does not fit",
            f"{best.variant.rsplit('-', 1)[0]}: {1e3 * best.median_s:.2f} ms",
            f"{single.median_s / best.median_s:.2f}" if single else "",
            ", ".join(f"{row.variant.rsplit('-', 1)[0]} {1e3 * row.median_s:.2f}"
                      for row in others),
            f"{1e3 * peer.median_s:.2f} ms ({peer.median_s / best.median_s:.2f})"
            if peer else ""]


def multi_gpu_table(directory):
    """A line for each problem."""
    path = directory / "multi_gpu" / "times.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    rows = read_file(path)
    shapes = {}
    for row in rows:
        key = (row.seqlen_q == 1, row.seqlen_q != row.seqlen_k, -row.seqlen_q, row.causal,
               row.seqlen_k)
        shapes.setdefault(key, []).append(row)
    gpus = int(max(row.threads for row in rows))
    row = rows[0]
    return ["16 heads, d = 128, bf16. Speed-up: one GPU's time over that of the fastest way. "
            "Peer: PyTorch's context_parallel in the same run (its time over ours).", ""] + \
        table(["problem", "one GPU", f"{gpus} GPUs", "speed-up", "other ways, ms", "peer"],
              [line_of(shapes[key]) for key in sorted(shapes)]) + \
        ["", f"*{gpus} x {row.machine}; {row.compiler}; commit {row.commit}; {row.date[:10]}.*"]


def turn_table(rows, turn):
    """A line for each way in which NCCL chose its number of blocks."""
    rows = [row for row in rows if row["turn"] == turn and not row["most_blocks"]]
    one = {row["causal"]: f"{float(row['one_gpu_ms']):.2f} ms (1)" for row in rows}
    lines = [["one GPU", one["0"], one["1"]]]
    for way in dict.fromkeys(row["way"] for row in rows):
        lines.append([way] + [f"{float(row['median_ms']):.2f} ms ({row['speed_up']})"
                              for row in rows if row["way"] == way])
    return table(["way", "full", "causal"], lines)


def blocks_table(rows):
    """A line for each way that was tried with fewer blocks, a column for each limit."""
    cells = {(row["way"], row["most_blocks"], row["causal"]): row
             for row in rows if row["turn"] == "1"}
    ways = dict.fromkeys(way for way, limit, _ in cells if limit)
    limits = sorted({limit for _, limit, _ in cells} - {""}, key=int) + [""]

    def speed_ups(way, limit):
        pair = [cells.get((way, limit, causal)) for causal in "01"]
        return ", ".join(row["speed_up"] for row in pair if row)
    copies = [cells["one kernel", limit, "0"]["copy_ms"] + " ms" for limit in limits]
    return table(["NCCL's blocks, at most"] + [limit or "no limit" for limit in limits],
                 [["the copy of the keys lasts"] + copies] +
                 [[way] + [speed_ups(way, limit) for limit in limits] for way in ways])


def attempts_table(directory):
    """What was tried on a ring of two GPUs: two turns, and limits on NCCL's blocks."""
    path = directory / "multi_gpu" / "attempts.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    row = rows[0]
    return ["64k x 64k, 16 heads, d = 128, bf16. In brackets: speed-up over one GPU in the "
            "same turn.", ""] + turn_table(rows, "1") + \
        ["", "Speed-up, full and causal:", ""] + blocks_table(rows) + \
        ["", "A second turn, with the copy engines:", ""] + turn_table(rows, "2") + \
        ["", f"*{row['gpus']} x {row['machine']}; {row['compiler']}; commit {row['commit']}; "
         f"{row['date'][:10]}; median of {row['reps']} calls.*"]


def ranks_table(directory):
    """A line for each mask: the threaded variant, and a rank on each core."""
    path = directory / "multi_gpu" / "ranks.csv"
    if not path.exists():
        raise NoData(f"no file {path}")
    rows = read_file(path)
    methods = list(dict.fromkeys(row.variant for row in rows))
    lines = []
    for causal in sorted({row.causal for row in rows}):
        times = {name: statistics.median(row.median_s for row in rows
                                         if (row.variant, row.causal) == (name, causal))
                 for name in methods}
        lines.append(["causal" if causal else "full"] +
                     [f"{1e3 * times[name]:.0f} ms" + ("" if name == "all_cores" else
                      f" ({times['all_cores'] / times[name]:.2f})") for name in methods])
    row = rows[0]
    return [f"{row.heads_q:.0f} heads, {si(row.seqlen_k)} queries and keys, "
            f"d = {row.head_dim:.0f}, f32. In brackets: times as fast as threads.", ""] + \
        table(["mask"] + [f"{row.threads:.0f} threads" if name == "all_cores" else
                          f"{name.rsplit('-', 1)[0]}, {name.rsplit('-', 1)[1]} ranks"
                          for name in methods], lines) + \
        ["", f"*{row.machine}; {row.compiler}; commit {row.commit}; {row.date[:10]}; "
         f"median of {len(rows) // len(methods) // len(lines)} rounds.*"]
