"""peers_shapes.py: the problems that peers_gpu.py measures, in parts.

A shape is (batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, causal).
"""
import argparse

LENGTHS = [128 << n for n in range(8)]


def tokens(seqlen, head_dim, causal):
    """About 16k tokens, about 2048 columns over all heads."""
    heads = max(1, 2048 // head_dim)
    return (max(1, 16384 // seqlen), heads, heads, seqlen, seqlen, head_dim, causal)


SHAPES = [tokens(n, d, c) for d in (64, 128, 256) for c in (0, 1) for n in LENGTHS]
DECODE = ([(16, 16, 16, 1, 8192, 128, 0), (16, 16, 16, 1, 65536, 128, 0),
           (16, 32, 4, 1, 8192, 128, 0)]
          + [(1, 16, 16, 1, n, 128, 0) for n in LENGTHS + [32768, 65536]])
FLOAT = ([tokens(n, d, c) for d in (64, 128) for c in (0, 1) for n in LENGTHS]
         + DECODE[:1] + [(1, 16, 16, 1, 8192, 128, 0), (16, 32, 4, 1, 8192, 128, 0)])
QUICK = [tokens(4096, d, c) for d in (64, 128) for c in (0, 1)] + DECODE[:1]
# lengths, groups and head dimensions at which no threshold or tile was chosen
UNTUNED = ([tokens(n, d, c) for d in (64, 128) for c in (0, 1)
            for n in (1000, 3000, 5000, 12345)]
           + [(4, 32, 8, 4096, 4096, 128, c) for c in (0, 1)]
           + [tokens(4096, d, c) for d in (80, 96, 192) for c in (0, 1)])
LAYOUTS = [tokens(n, d, c) for d in (64, 128) for c in (0, 1) for n in (1024, 8192)]


def pairs_of(shape):
    """Query-key pairs that are credited: all, or exactly half when causal and square."""
    b, hq, _, nq, nk, _, causal = shape
    if not causal:
        return b * hq * nq * nk
    if nq == nk:
        return b * hq * nq * nk / 2
    return b * hq * sum(max(0, min(nk, i + 1 + nk - nq)) for i in range(nq))


def flops_of(shape):
    """2 (head_dim + head_dim_v) per credited pair."""
    return 4.0 * shape[5] * pairs_of(shape)


def bytes_of(shape, dtype):
    """q, k, v and o, each once."""
    b, hq, hk, nq, nk, d, _ = shape
    return (4.0 if dtype == "f32" else 2.0) * d * b * (2 * hq * nq + 2 * hk * nk)


def is_decode(shape):
    """Few queries per key head: bound by reading K and V."""
    return shape[3] * (shape[1] // shape[2]) <= 16


def shape_of(text):
    """batch,heads_q,heads_kv,seqlen_q,seqlen_k,head_dim,causal"""
    shape = tuple(int(x) for x in text.split(","))
    if len(shape) != 7:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not seven numbers: {shape_of.__doc__}")
    return shape


def planned(parts, dtype):
    """(shape, dtype, regimes, layout) of every problem in the parts."""
    both, cold = ("cold", "sustained"), ("cold",)
    out = []
    if "lengths" in parts:
        out += [(s, dtype, both, "bhld") for s in SHAPES]
    if "untuned" in parts:
        out += [(s, dtype, both, "bhld") for s in UNTUNED]
    if "layouts" in parts:
        out += [(s, dtype, both, "blhd") for s in LAYOUTS]
    if "decode" in parts:
        out += [(s, dtype, cold, "bhld") for s in DECODE]
    if "float" in parts:
        out += [(s, "f32", cold, "bhld") for s in FLOAT]
    return out
