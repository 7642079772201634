"""peers_shapes.py: the problems that the peers*.py scripts measure, in parts.

A shape is (batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, causal[, head_dim_v]).
"""
import argparse

LENGTHS = [128 << n for n in range(8)]


def tokens(seqlen, head_dim, causal):
    """About 16k tokens, about 2048 columns over all heads."""
    heads = max(1, 2048 // head_dim)
    return (max(1, 16384 // seqlen), heads, heads, seqlen, seqlen, head_dim, causal)


LATENT = [(4, 16, 16, 4096, 4096, 192, c, 128) for c in (0, 1)]  # as MLA's prefill asks
DECODE = ([(16, 16, 16, 1, 8192, 128, 0), (16, 16, 16, 1, 65536, 128, 0),
           (16, 32, 4, 1, 8192, 128, 0)]
          + [(1, 16, 16, 1, n, 128, 0) for n in LENGTHS + [32768, 65536]])
# shapes, type, whether also sustained, layout; untuned: lengths, groups and head dimensions at
# which no threshold or tile was chosen
PARTS = {
    "lengths": ([tokens(n, d, c) for d in (64, 128, 256) for c in (0, 1) for n in LENGTHS],
                None, True, "bhld"),
    "untuned": ([tokens(n, d, c) for d in (64, 128) for c in (0, 1)
                 for n in (1000, 3000, 5000, 12345)]
                + [(4, 32, 8, 4096, 4096, 128, c) for c in (0, 1)]
                + [tokens(4096, d, c) for d in (80, 96, 192) for c in (0, 1)] + LATENT,
                None, True, "bhld"),
    "layouts": ([tokens(n, d, c) for d in (64, 128) for c in (0, 1) for n in (1024, 8192)],
                None, True, "blhd"),
    "decode": (DECODE, None, False, "bhld"),
    "float": ([tokens(n, d, c) for d in (64, 128) for c in (0, 1) for n in LENGTHS]
              + DECODE[:1] + [(1, 16, 16, 1, 8192, 128, 0), (16, 32, 4, 1, 8192, 128, 0)],
              "f32", False, "bhld"),
    "quick": ([tokens(4096, d, c) for d in (64, 128) for c in (0, 1)] + DECODE[:1],
              None, False, "bhld"),
    "backward": ([tokens(n, d, c) for d in (64, 128, 256) for c in (0, 1)
                  for n in LENGTHS[:1:-1]], None, True, "bhld")}


def planned(parts, dtype):
    """(shape, dtype, regimes, layout) of every problem in the parts."""
    return [(shape, own or dtype, ("cold", "sustained") if both else ("cold",), layout)
            for shapes, own, both, layout in map(PARTS.get, parts) for shape in shapes]


def dim_v(shape):
    """head_dim_v, head_dim unless it is there."""
    return shape[7] if len(shape) > 7 else shape[5]


def pairs_of(shape):
    """Query-key pairs that are credited: all, or exactly half when causal and square."""
    b, hq, _, nq, nk, _, causal, *_ = shape
    if not causal:
        return b * hq * nq * nk
    if nq == nk:
        return b * hq * nq * nk / 2
    return b * hq * sum(max(0, min(nk, i + 1 + nk - nq)) for i in range(nq))


def flops_of(shape, of_qk=2, of_v=2):
    """2 (head_dim + head_dim_v) per credited pair; of backward 6 and 4."""
    return float((of_qk * shape[5] + of_v * dim_v(shape)) * pairs_of(shape))


def bytes_of(shape, dtype):
    """q, k, v and o, each once."""
    b, hq, hk, nq, nk, d, *_ = shape
    return (4.0 if dtype == "f32" else 2.0) * b * (d + dim_v(shape)) * (hq * nq + hk * nk)


def is_decode(shape):
    """Few queries per key head: bound by reading K and V."""
    return shape[3] * (shape[1] // shape[2]) <= 16


def shape_of(text):
    """batch,heads_q,heads_kv,seqlen_q,seqlen_k,head_dim,causal[,head_dim_v]"""
    shape = tuple(int(x) for x in text.split(","))
    if len(shape) not in (7, 8):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not seven or eight numbers: {shape_of.__doc__}")
    return shape


def text_of(shape, dtype, layout):
    """'bf16 bhld b4 h16/16 4096x4096 d128 causal'."""
    b, hq, hk, nq, nk, d, causal, *_ = shape
    v = f"/{dim_v(shape)}" if dim_v(shape) != d else ""
    return f"{dtype} {layout} b{b} h{hq}/{hk} {nq}x{nk} d{d}{v}{' causal' if causal else ''}"
