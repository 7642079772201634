"""The calls that judge the exercises of stage 1.  PROBLEMS: name -> cases(rng)."""
import numpy as np

from cases import (HEADS, NAIVE, Case, exact, head, head_call, largest, of_heads, of_keys, of_rows, one_call, scores,
                   wanted)


def softmax_row(family, x, _):
    def f(x):
        y = np.exp(x)
        return y, np.cumsum(y)[-1:]
    return one_call(family, [x.size], [x], wanted(f, [x], ["y", "l"]), {"x": x})


def score_row(family, h, rng):
    q, k, _, bias, _, scale = h
    i = int(rng.integers(len(q)))
    want, (numbers, inputs) = exact(h)[2][i], head_call(*h)
    with np.errstate(invalid="ignore"):
        large = np.abs(q[i]) @ np.abs(k.T) * scale + (0 if bias is None else np.abs(bias[i]))
    large = np.nan_to_num(large, posinf=0)
    return one_call(family, [*numbers, i], inputs, {"s": (want, 4e-6 * large)}, {"k": k, "q": q, "i": [i]})


def weighted_sum(family, s, v, _):
    w = np.exp(s)

    def f(w, v):
        l = np.cumsum(w)[-1:]
        return (w[:, None] * v).sum(axis=0) / l, l
    return one_call(family, [len(w), v.shape[1]], [w, v], wanted(f, [w, v], ["o", "l"]), {"w": w, "v": v})


def breaks(s):
    """What happens to rows of scores, and at which key: FINE 0, TOO_LARGE 1, NOTHING_LEFT 2."""
    with np.errstate(all="ignore"):
        l = np.cumsum(np.exp(s.astype(np.float32)), axis=-1, dtype=np.float32)
    at = np.where(np.isinf(l[:, -1]), np.isinf(l).argmax(axis=1), s.shape[1])
    return np.stack([np.select([np.isinf(l[:, -1]), l[:, -1] == 0], [1, 2], 0), at], axis=1).astype(float)


def a1_naive(rng):
    """Rows; heads, whose first column makes some scores large or tiny; the largest score."""
    def row(family, x):
        want = breaks(x[None])[0]
        allowed = 4e-6 if want[0] == 0 else np.inf
        y = np.exp(x.astype(float) - x.max())

        def play(child):
            y, report = child.call([x.size], [x], [x.size, 2])
            return {"what and at": report, "y": y if want[0] == 0 else np.zeros_like(y)}
        return Case(family, play, {"what and at": (want, 0), "y": (y / y.sum() * (want[0] == 0), allowed)}, {"x": x})

    def of_head(family, size, targets):
        q, k, v, _, _, scale = head("random", rng, size, 0)
        if targets is not None:
            q[:, 0], k[:, 0] = rng.permutation(np.resize([0, 1, 1], len(q))), targets(len(k)) / scale
            q[:, 1:] *= 0.1
        o, lse, s = exact((q, k, v, None, 0, scale))
        want = breaks(s)
        fine = want[:, 0] == 0
        numbers, inputs = head_call(q, k, v, None, 0, scale)

        def play(child):
            o, lse, n, report = child.call(numbers[:6] + [1], inputs, [len(q) * v.shape[1], len(q), 1, 2 * len(q)])
            o, lse = o.reshape(len(q), -1), lse.copy()
            return {"broken": n, "what and at": report, "o": np.where(fine[:, None], o, 0), "lse": np.where(fine, lse, 0)}
        return Case(family, play, {
            "broken": ([(~fine).sum()], 0), "what and at": (want, 0),
            "o": (o * fine[:, None], 1e-5 * largest(v)), "lse": (np.where(fine, lse, 0), 2e-5)}, {"q": q, "k": k})

    for recipe in NAIVE[:6]:
        for n in (1, 7, 150): yield row("fine", scores(recipe, rng, n))
    for n in (1, 2, 40, int(rng.integers(3, 150))):
        x = rng.uniform(-60, 60, n).astype(np.float32)
        x[rng.integers(n)] = 95
        yield row("term_breaks", x)
        yield row("sum_breaks", np.concatenate([x.clip(-60, 60), np.full(5, 88, np.float32)]))
        yield row("nothing_left", rng.uniform(-400, -110, n).astype(np.float32))
        yield one_call("largest", [n, 0, 0, 0, 0, 0, 2], [], {
            "x": ([np.log(float(np.finfo(np.float32).max) / n)], 4e-3)}, {f"{n} scores": [n]})
        size = tuple(int(x) for x in rng.integers(2, 24, 4))
        yield of_head("head", size, None)
        yield of_head("head_breaks", size, lambda n: np.where(np.arange(n) == n // 2, 120, 1))
        yield of_head("head_breaks", size, lambda n: np.full(n, -150))


PROBLEMS = {
    "a1_naive": a1_naive,
    "softmax_row": of_rows(softmax_row, NAIVE),
    "score_row": of_heads(score_row, [x for x in HEADS if x not in ("nan_v", "inf_v", "nan_v_far")]),
    "weighted_sum": of_keys(weighted_sum, ["random", "ascending", "descending", "outlier", "shift_20", "mask_some"]),
}
