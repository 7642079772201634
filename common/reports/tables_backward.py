"""tables_backward.py: the tables of the backward pass, on a CPU and on a GPU."""
from peers_methods import ALL_PEERS, PEERS
from registry import table
from results import each, need, number_runs
from tables_cpu import PROBLEM
from tables_gpu import REGIMES, by_length, pairs_of, several
from words import (grid, in_brackets, markdown, panel_text, provenance, share_of, si,
                   significant)

BACKWARD, IN_ORDER = ["gradient_overlap", "gradient_wide_heads"], ["gradient_in_order"]
ORDERED_PEERS = [name for name in ALL_PEERS if name not in PEERS]
ORDERED_TEXT = "the best library in its deterministic mode"


@table("backward-gpu(?:-(sustained))?")
def backward_gpu(data, regime):
    """The backward pass by length: the last rung beside the best library, and the price of a fixed
    order of additions; backward-gpu-sustained: calls back to back."""
    regime = regime or "cold"
    rows = number_runs(data.file("backward/h200.csv").query("regime == @regime"))
    known = need(pairs_of(rows, BACKWARD, PEERS), "no measurement of the backward pass")
    price, others = pairs_of(rows, IN_ORDER, BACKWARD), pairs_of(rows, IN_ORDER, ORDERED_PEERS)
    ordered = {(panel_text(key[0], key[2]), key[3]): f"{significant(pair.ours.gflops / 1000)} ("
               + "; ".join(line[key].ratio() for line in (price, others) if key in line) + ")"
               for key, pair in price.items()}
    ours = "` and `".join(dict.fromkeys(pair.ours.variant for pair in known.values()))
    beside = f"; as {ORDERED_TEXT}" if others else ""
    return (["TFLOP/s (times as fast as the best library of the run; in order: times as fast as "
             f"`{ours}`{beside}{several(known.values())}), {regime}: {REGIMES[regime]}.", ""]
            + by_length(known, [("in order", ordered)]) + provenance(each(rows)))


@table("backward-ladder")
def backward_ladder(data):
    """Each rung of the backward ladder and each library at the longest length."""
    rows = data.file("backward/h200.csv").query("regime == 'cold'")
    rows = each(rows[rows.seqlen_k == rows.seqlen_k.max()])
    cells, names = {}, {}
    for row in sorted(rows, key=lambda row: (row.head_dim, row.causal)):
        works = panel_text(row.head_dim, row.causal)
        names[row.variant] = True
        cells[row.variant, works] = significant(row.gflops / 1000) + in_brackets(share_of(row))
    panels = list(dict.fromkeys(works for _, works in cells))
    return ([f"TFLOP/s (percent of the ceiling, a matrix product), {si(rows[0].seqlen_k)} keys.", ""]
            + grid(["variant", *panels], cells, names, panels) + provenance(rows))


@table("backward-cpu")
def backward_cpu(data):
    """The gradient on all cores by shape and threads: speed, share of the multiply-add peak and
    PyTorch's least time by ours.  Least times: others used the machine meanwhile."""
    rows = each(data.file("backward/cpu.csv"))
    peers = {tuple(getattr(row, c) for c in PROBLEM): row for row in rows if row.stage == "peer"}
    lines = {}
    for row in rows:
        peer = peers.get(tuple(getattr(row, c) for c in PROBLEM))
        if row.variant == "gradient_all_cores" and peer:
            speed = row.flops / row.min_s / 1e9
            lines.setdefault((row.head_dim, row.causal, row.seqlen_k), {})[row.threads] = [
                significant(speed), f"{100 * speed / row.ceiling:.0f} %",
                f"{peer.min_s / row.min_s:.2f}"]
    threads = sorted({n for line in lines.values() for n in line})
    cells = [[f"{d:.0f}", "causal" if causal else "none", si(n)] +
             [cell for t in threads for cell in line.get(t, [""] * 3)]
             for (d, causal, n), line in sorted(lines.items())]
    head = [text for t in threads for text in (
        f"GFLOP/s, {t:.0f} thread{'s' * (t > 1)}", "of the peak", "times PyTorch")]
    return markdown(["d", "mask", "keys", *head], cells) + provenance(rows)
