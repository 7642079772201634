"""multi_gpu_model.py: a model of time over ranks, fitted on what was measured with one and two GPUs.

    one GPU       T(1)  = t0 + flops / f                 f, t0: a line through the lengths
    ring          T(R)  = t0 + sum over R steps of max(compute, copy)
                  compute = t1 + t2 n / R + flops / (R R f)
                  t1, t2: what a step of two GPUs took more, a line through the lengths n
                  copy    = a + bytes of a rank / b      b: the copy of the 64k ring, a: below
    tree          T(R)  = keys / (R m) + a log2 R        m, a: one and two GPUs, one query

Between any two ranks the link is assumed to be as fast as the one that was measured, for a
ring of neighbours; the latency of a gather to grow with log2 of the ranks.
"""
import math
import statistics

from results import NoData, read_file

HEADS, DIM = 16, 128
KEY_BYTES = 2 * 2 * HEADS * DIM  # of k and v, bf16


def read_times(path):
    """The measurements of times.csv."""
    if not path.exists():
        raise NoData(f"no file {path}")
    return read_file(path)


def flops_of(queries, keys, causal):
    """As the tables count them: half of a square when causal."""
    return 4.0 * HEADS * DIM * queries * keys * (0.5 if causal else 1.0)


def line_through(points):
    """Least squares y = a + b x with relative weights: (a, b)."""
    weights = [(1 / y**2, x, y) for x, y in points]
    w = sum(v[0] for v in weights)
    mx = sum(v[0] * v[1] for v in weights) / w
    my = sum(v[0] * v[2] for v in weights) / w
    b = sum(v[0] * (v[1] - mx) * (v[2] - my) for v in weights) / \
        sum(v[0] * (v[1] - mx)**2 for v in weights)
    return my - b * mx, b


class Model:
    """The parameters, and times in seconds."""

    def __init__(self, rows, timeline):
        self.rows = rows
        single = [(flops_of(r.seqlen_q, r.seqlen_k, r.causal), r.median_s) for r in rows
                  if r.variant == "tuned" and r.seqlen_q == r.seqlen_k]
        copies = [1e-3 * (float(x["end_ms"]) - float(x["begin_ms"])) for x in timeline
                  if x["what"] == "copy"]
        decode = {n: [r.median_s for r in rows if r.variant == name and r.seqlen_q == 1
                      and r.seqlen_k == 1 << 20] for n, name in ((1, "split_kv"), (2, "tree-2"))}
        if len(single) < 2 or not copies or not decode[1] or not decode[2]:
            raise NoData("times.csv lacks the lengths, the copies or decoding")
        self.t0, slope = line_through(single)
        self.t0 = max(self.t0, 0.0)
        self.rate = 1 / slope
        one, two = statistics.median(decode[1]), statistics.median(decode[2])
        self.memory = KEY_BYTES * (1 << 20) / one
        self.latency = max(two - one / 2, 1e-6)
        self.link = KEY_BYTES * 32768 / (statistics.median(copies) - self.latency)
        extra = [(r.seqlen_q, r.median_s - self.t0 - flops_of(r.seqlen_q, r.seqlen_k, r.causal)
                  / (2 * self.rate)) for r in rows
                 if r.variant == "ring-2" and r.seqlen_q == r.seqlen_k]
        each, self.row = line_through(extra)
        self.step = max(each / 2, 0.0)

    def ring(self, length, ranks, causal):
        """Queries and keys of one length, cut between the ranks."""
        compute = self.step + self.row * length / ranks + \
            flops_of(length, length, causal) / (ranks**2 * self.rate)
        copy = self.latency + KEY_BYTES * length / (ranks * self.link)
        if ranks == 1:
            return self.t0 + flops_of(length, length, causal) / self.rate
        return self.t0 + compute + (ranks - 1) * max(compute, copy)

    def ring_decode(self, keys, ranks):
        """One query whose keys travel: every rank's keys pass through the link."""
        read = KEY_BYTES * keys / (ranks * self.memory)
        copy = self.latency + KEY_BYTES * keys / (ranks * self.link)
        return read + (ranks - 1) * max(read, copy)

    def tree(self, queries, keys, ranks):
        """Few queries: each rank reads its keys, then a gather."""
        return queries * KEY_BYTES * keys / (ranks * self.memory) + \
            self.latency * math.log2(ranks)

    def measured(self, causal, queries, keys):
        """(ranks, seconds) of the measurements of this shape."""
        names = {"tuned": 1, "split_kv": 1, "ring-2": 2, "tree-2": 2}
        return [(names[r.variant], r.median_s) for r in self.rows if r.variant in names
                and (r.causal, r.seqlen_q, r.seqlen_k) == (causal, queries, keys)]

    def assumptions(self):
        """What a reader must know of the lines."""
        return (f"Fitted: {1e-12 * self.rate:.0f} TFLOP/s a GPU, {1e-9 * self.link:.0f} GB/s a "
                f"link, {1e-12 * self.memory:.2f} TB/s of memory, {1e6 * self.latency:.0f} us a "
                f"gather, {1e6 * self.step:.0f} us and {1e9 * self.row:.0f} ns a row more a step."
                "\nAssumed, not measured: every neighbour is linked as these two GPUs are, "
                "nobody shares a link, and a gather takes log2(ranks) times\nas long as between "
                "two. Between hosts links are slower: the ring then stops scaling sooner. 16 "
                "heads, d = 128, bf16.")
