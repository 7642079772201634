"""tables_cpu.py: our fastest CPU variant beside PyTorch on the same shape, type and threads."""
from results import NoData, share_of, si
from tables_text import provenance, rate, seconds, significant, table

SHAPE = ("op dtype rows cols batch heads_q heads_kv seqlen_q seqlen_k head_dim head_dim_v "
         "causal threads").split()


def shape_text(row):
    """'softmax 1024 x 64', 'attention 16 heads x 2k, d = 64, causal, bf16'."""
    if "softmax" in row.op:
        return f"{row.op} {si(row.rows)} × {si(row.cols)}"
    heads = f"{row.heads_q:.0f} head" + ("s" if row.heads_q > 1 else "")
    return (f"{row.op} {heads}, {si(row.seqlen_q)} × {si(row.seqlen_k)}, d = "
            f"{row.head_dim:.0f}{', causal' if row.causal else ''}, {row.dtype}")


def speed(row):
    return rate(row.gflops) if row.gflops else f"{significant(row.gbps)} GB/s"


def peers_table(rows):
    """A line a shape, type and number of threads that PyTorch was measured on."""
    rows = [row for row in rows if row.device == "cpu"]
    key = lambda row: tuple(getattr(row, column) for column in SHAPE)  # noqa: E731
    fastest = {}
    for row in sorted(rows, key=lambda row: -row.median_s):
        if row.stage != "peer":
            fastest[key(row)] = row
    cells, used = [], []
    for peer in sorted((row for row in rows if row.stage == "peer"),
                       key=lambda row: (row.op, row.dtype != "f32", row.rows or 0, row.cols or 0,
                                        row.heads_q or 0, row.head_dim or 0, row.causal or 0,
                                        row.threads)):
        ours = fastest.get(key(peer))
        if not ours:
            continue
        used += [ours, peer]
        cells.append([shape_text(peer), f"{peer.threads:.0f}", f"{ours.stage} {ours.variant}",
                      seconds(ours.median_s), speed(ours) if ours.gflops else "",
                      share_of(ours, ours.ceiling_kind), seconds(peer.median_s),
                      f"{peer.median_s / ours.median_s:.2f}"])
    if not cells:
        raise NoData("no measurement of PyTorch on the CPU")
    return table(["what", "threads", "stage, variant", "median", "rate", "ceiling", "PyTorch",
                  "times as fast as PyTorch"], cells) + provenance(used)
