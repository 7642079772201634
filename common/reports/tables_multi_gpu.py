"""tables_multi_gpu.py: the tables of several GPUs and of several processes, from
notes/results/multi_gpu/times.csv and ranks.csv."""
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
