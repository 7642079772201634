"""accept.py: when a result may be published: its error is at most the allowed one.

A NaN is never accepted.  For all scripts that measure; the rule of acceptance is that of common/core/verification.
"""
import math

ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


def accepted(error, allowed):
    """Whether error <= allowed; a NaN on either side is not."""
    return bool(error <= allowed)


def allowed_error(dtype, plain_error, largest_o, weighted):
    """The rule of acceptance of attention: twice the error of the plain computation in that type, and
    in f32 sum p_j |e_j| |v_j - o| of notes/numerics.md (weighted), in 16 bits one rounding of the output."""
    return 2 * plain_error + (weighted if dtype == "f32" else ROUNDOFF[dtype] * largest_o)


def weighted_errors(p, s, most, v, o):
    """The largest sqrt(sum p_j e_j^2 sum p_j (v_j - o)^2), at least sum p_j |e_j| |v_j - o|, by Cauchy
    and Schwarz; e_j: of exp and its argument, and of the score, a few roundings of its size.   p (n, keys)
    weights, s their scores, most (n, 1) the largest, v (keys, dv), o (n, dv)"""
    e = (4.1 + 4 * (most - s) + 4 * s.abs()).where(p > 0, 0 * p)
    spread = (p @ v**2 - o**2).clamp(min=0)
    return ROUNDOFF["f32"] * float(((p * e**2).sum(-1, keepdim=True) * spread).sqrt().max())


def sampled(shape):
    """(batch, head, rows) that are compared: of the first and the last head the last 256
    queries, which see most keys."""
    rows = slice(max(0, shape.seqlen_q - 256), shape.seqlen_q)
    return [(0, 0, rows), (shape.batch - 1, shape.heads_q - 1, rows)]


def reference(torch, shape, dtype, q, k, v, left=None, softcap=0.0, sinks=None):
    """For each sample (float64 result, allowed error); left: the keys before its own that a query
    sees; sinks: one for each query head."""
    out, nq, nk = [], shape.seqlen_q, shape.seqlen_k
    j = torch.arange(nk, device=q.device)[None]
    for batch, head, rows in sampled(shape):
        kv = head // (shape.heads_q // shape.heads_kv)
        i = torch.arange(nq, device=q.device)[rows, None] + nk - nq
        hidden = (j > i) & bool(shape.causal)
        if left is not None:
            hidden = hidden | (j < i - left)

        def attention(kind, scale=1 / math.sqrt(q.shape[-1])):
            s = q[batch, head, rows].to(kind) @ k[batch, kv].to(kind).T * scale
            s = softcap * torch.tanh(s / softcap) if softcap else s
            s.masked_fill_(hidden, -math.inf)
            most = s.max(-1, keepdim=True).values
            p = torch.exp(s - most)
            total = p.sum(-1, keepdim=True)
            if sinks is not None:
                total = total + torch.exp(sinks[head].to(kind) - most)
            if kind == torch.float32 and dtype != "f32":
                p = p.to(q.dtype).to(kind)  # the plain 16-bit computation rounds P and o
            o = p @ v[batch, kv].to(kind) / total
            if kind == torch.float32:
                return o.to(q.dtype), 0
            return o, weighted_errors((p / total).nan_to_num(nan=0.0), s, most, v[batch, kv].to(kind),
                                      o.nan_to_num(nan=0.0)) if dtype == "f32" else 0
        want, weighted = attention(torch.float64)
        want = want.nan_to_num(nan=0.0)  # a row that sees no key is 0
        plain, _ = attention(torch.float32)
        error = float((plain.double().nan_to_num(nan=0.0) - want).abs().max())
        out.append((want, allowed_error(dtype, error, float(want.abs().max()),
                                        weighted)))
    return out


def nearest(results, known):
    """(largest error, allowed error) of the result that comes nearest to its limit; known: (float64
    result, allowed error) of each."""
    pairs = [(float((x.double() - want).abs().max()), allowed)
             for x, (want, allowed) in zip(results, known)]
    wrong = [pair for pair in pairs if not accepted(*pair)]
    return wrong[0] if wrong else max(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] else 0)


def compare(shape, o, known):
    """The same of o beside reference()."""
    return nearest([o[place] for place in sampled(shape)], known)


def gradients(torch, shape, q, k, v, d_o, kind):
    """dq, dk, dv of one head, (rows, head_dim) each; float32: p and ds rounded as 16-bit kernels do."""
    scale = 1 / math.sqrt(shape.head_dim)
    rounded = (lambda x: x) if kind == torch.float64 else (lambda x: x.to(q.dtype).to(kind))
    q, k, v, d_o = (x.to(kind) for x in (q, k, v, d_o))
    s = q @ k.T * scale
    if shape.causal:
        s.masked_fill_(torch.ones(s.shape, dtype=torch.bool, device=s.device).triu(1), -math.inf)
    p = s.softmax(-1)
    del s
    sums = (d_o * rounded(p @ v)).sum(-1, keepdim=True)
    ds = rounded(p * (d_o @ v.T - sums))
    return ds @ k * scale, ds.T @ q * scale, rounded(p).T @ d_o


def gradients_reference(torch, shape, dtype, arrays):
    """[(float64 result, allowed error)] of dq, dk and dv of the first head: twice the error of a plain
    computation in 16 bits, and a rounding."""
    one = [x.detach()[0, 0] for x in arrays]
    want, plain = (gradients(torch, shape, *one, kind) for kind in (torch.float64, torch.float32))
    return [(w, 2 * float((x.double() - w).abs().max()) + 2 * ROUNDOFF[dtype] * float(w.abs().max()))
            for w, x in zip(want, plain)]
