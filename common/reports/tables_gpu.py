"""tables_gpu.py: the last rung beside the libraries, every rung at one length, and softmax, on a
GPU.  For tables.py.
"""
import collections
import math

from ladder import LAST, RUNGS
from results import NoData, share_of, si, work_of
from tables_text import provenance, seconds, significant, table


def ladder_table(rows, f32=False):
    """A line a variant, a column a type, head dimension and mask, at the longest length."""
    chosen = [row for row in rows if row.op == "attention" and row.device == "gpu"
              and row.stage in ("5", "peer") and row.gflops
              and row.seqlen_q == row.seqlen_k and (row.dtype == "f32") == f32]
    if not chosen:
        raise NoData("no measurement of stage 5 on a GPU")
    chosen = [row for row in chosen if is_tuned(
        (row.head_dim, row.causal, row.length, row.heads_q, row.heads_kv))] or chosen
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
    place = {name: n for n, name in enumerate(RUNGS)}
    for row in sorted(chosen, key=lambda row: (row.stage == "peer",
                                               place.get(row.variant, len(place)))):
        lines[row.variant][work_of(row) + (row.length,)] = row
    cells = []
    for name, line in lines.items():
        cells.append([name])
        for work in works:
            share = f" ({share_of(line[work])})" \
                if work in line and line[work].pct_ceiling else ""
            cells[-1].append(significant(line[work].gflops / 1000) + share
                             if work in line else "")
    header = [f"d = {w[5]:.0f}{', causal' if w[7] else ''}, {si(w[9])} keys"
              for w in works]
    types = ", ".join(sorted({row.dtype for row in chosen}))
    return ([f"TFLOP/s (percent of the ceiling), {types}, cold.", ""]
            + table(["variant"] + header, cells) + provenance(chosen))


BEST_PEERS = ("pytorch-cudnn", "flash-attention-3")
SHORT = {"pytorch-cudnn": "cuDNN", "flash-attention-3": "FlashAttention-3"}
REGIMES = {"cold": "one call at a time, the L2 cache flushed before it",
           "sustained": "calls back to back"}


def beside_peers(every, regime="cold", layout="bhld"):
    """The last rung and the faster of cuDNN and FlashAttention-3 on 16-bit problems of many
    queries: {(head_dim, causal, length, heads_q, heads_kv): (our row, the peer's row)}."""
    known = {}
    for row in every:
        if row.op == "attention" and row.dtype == "bf16" and row.gflops and row.reps \
                and (row.regime, row.layout) == (regime, layout) \
                and row.variant in (LAST, *BEST_PEERS) \
                and row.seqlen_q == row.seqlen_k and row.head_dim == row.head_dim_v:
            key = (row.head_dim, row.causal or 0, row.length, row.heads_q, row.heads_kv,
                   row.batch)
            known.setdefault(key, {})[row.variant] = row
    out = {}
    for key, line in sorted(known.items()):
        peers = [line[name] for name in BEST_PEERS if name in line]
        if LAST in line and peers:
            out[key[:5]] = line[LAST], min(peers, key=lambda row: row.median_s)
    if not out:
        raise NoData(f"no measurement of the last rung beside cuDNN, {regime}, {layout}")
    return out


def is_tuned(key):
    """Whether lengths, heads and head_dim are those that the ladder was measured at."""
    head_dim, _, length, heads_q, heads_kv = key
    return head_dim in (64, 128, 256) and heads_q == heads_kv and math.log2(length) % 1 == 0


def peers_text(pairs):
    """'cuDNN' or 'the better of cuDNN and FlashAttention-3', whatever was measured."""
    names = [SHORT[name] for name in BEST_PEERS
             if any(peer.variant == name for _, peer in pairs)]
    return names[0] if len(names) == 1 else f"the better of {' and '.join(names)}"


def hopper_table(every, regime="cold"):
    """A line a head dimension and mask, a column a length."""
    known = {key: pair for key, pair in beside_peers(every, regime).items() if is_tuned(key)}
    lengths = sorted({key[2] for key in known})
    cells = []
    for head_dim, causal in sorted({key[:2] for key in known}):
        line = {key[2]: pair for key, pair in known.items() if key[:2] == (head_dim, causal)}
        cells.append([f"d = {head_dim:.0f}{', causal' if causal else ''}"]
                     + [f"{significant(line[n][0].gflops / 1000)} "
                        f"({line[n][1].median_s / line[n][0].median_s:.2f})"
                        if n in line else "" for n in lengths])
    return ([f"TFLOP/s (times as fast as {peers_text(known.values())}), {regime}: "
             f"{REGIMES[regime]}.", ""]
            + table(["bf16"] + [si(length) for length in lengths], cells)
            + provenance([row for pair in known.values() for row in pair]))


def untuned_table(every):
    """A line a shape that nothing was tuned on: speed and ratio in both regimes."""
    known = {regime: {} for regime in REGIMES}
    for regime in REGIMES:
        try:
            known[regime] = {key: pair for key, pair in beside_peers(every, regime).items()
                             if not is_tuned(key)}
        except NoData:
            pass
    keys = sorted({key for line in known.values() for key in line})
    if not keys:
        raise NoData("no measurement of the untuned shapes; peers_gpu.py --parts untuned")
    cells = []
    for key in keys:
        head_dim, causal, length, heads_q, heads_kv = key
        heads = f"{heads_q:.0f} heads" + (f" on {heads_kv:.0f}" if heads_q != heads_kv else "")
        cells.append([f"{length:.0f} keys, d = {head_dim:.0f}, {heads}"
                      + (", causal" if causal else "")])
        for regime in REGIMES:
            pair = known[regime].get(key)
            cells[-1].append(f"{significant(pair[0].gflops / 1000)} "
                             f"({pair[1].median_s / pair[0].median_s:.2f})" if pair else "")
    pairs = [pair for line in known.values() for pair in line.values()]
    return ([f"TFLOP/s (times as fast as {peers_text(pairs)}), bf16.", ""]
            + table(["shape", *REGIMES], cells)
            + provenance([row for pair in pairs for row in pair]))


def layouts_table(every):
    """Arrays stored as [batch, length, heads, head_dim]: used as they lie."""
    known = beside_peers(every, "cold", "blhd")
    cells = [[f"d = {key[0]:.0f}{', causal' if key[1] else ''}, {si(key[2])} keys",
              significant(ours.gflops / 1000), significant(peer.gflops / 1000),
              f"{peer.median_s / ours.median_s:.2f}"]
             for key, (ours, peer) in known.items()]
    return (["TFLOP/s, bf16, cold.", ""]
            + table(["arrays [batch, length, heads, head_dim]", "ours",
                     peers_text(known.values()), "ratio"], cells)
            + provenance([row for pair in known.values() for row in pair]))


def headline(every):
    """One sentence: head_dim 128 without mask, of the lengths from 4k on the one at which
    both medians are nearest to their minima."""
    known = {key: pair for key, pair in beside_peers(every).items()
             if key[:2] == (128, 0) and key[2] >= 4096 and is_tuned(key)}
    if not known:
        raise NoData("no measurement of the last rung beside cuDNN at d = 128")
    key = min(known, key=lambda key: max(row.median_s / (row.min_s or row.median_s)
                                         for row in known[key]))
    ours, peer = known[key]
    return [f"On one {ours.machine} the last kernel reaches "
            f"**{significant(ours.gflops / 1000)} TFLOP/s, "
            f"{peer.median_s / ours.median_s:.2f} times as fast as {SHORT[peer.variant]}** "
            f"(bf16, head_dim 128, {si(key[2])} keys, no mask; {REGIMES['cold']})."]


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
              seconds(row.median_s), share_of(row)]
             for row in sorted(chosen, key=lambda row: row.stage)]
    return ([f"[{si(shape[0])}, {si(shape[1])}] floats, G = {one / 1e9:.3f} GB.", ""]
            + table(["variant", "predicted", "counted", "median",
                     "predicted bytes / time, of a copy's"], cells) + provenance(chosen))


def ours_of(rows):
    """Our softmax that was measured at most row lengths, of equals the fastest."""
    done = collections.defaultdict(dict)
    for row in rows:
        if row.stage in "123":
            done[row.variant][row.dtype, row.cols] = row.median_s
    return min(done, key=lambda name: (-len(done[name]), sum(done[name].values())))


def gpu_rows_table(rows):
    """Time of a copy over time of the softmax, the same shape and round."""
    chosen = [row for row in gpu_softmax(rows) if row.rows > 1]
    known = {(row.variant, row.dtype, row.cols): row for row in chosen}
    dtypes = [t for t in ("f32", "f16", "bf16") if ("copy", t) in
              {key[:2] for key in known}]
    ours = ours_of(chosen)
    names = [(ours, "ours"), ("pytorch-softmax", "PyTorch")]

    def share(name, dtype, cols):
        one, copy = known.get((name, dtype, cols)), known.get(("copy", dtype, cols))
        return f"{100 * copy.median_s / one.median_s:.0f} %" if one and copy else ""
    lengths = sorted({cols for name, _, cols in known if name == ours})
    cells = [[si(cols)] + [share(name, dtype, cols) for dtype in dtypes
                           for name, _ in names] for cols in lengths]
    return (table(["row length"] + [f"{dtype} {text}" for dtype in dtypes
                                    for _, text in names], cells)
            + provenance([row for row in chosen if row.variant == ours]))
