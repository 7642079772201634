"""The calls that judge the exercises of stage 2.  PROBLEMS: name -> cases(rng)."""
import numpy as np

from cases import (HEADS, INF, ROWS, Case, attend, finite_most, fold, head_call, head_wants, largest, of_heads, of_rows,
                   one_call, scores, wanted)

F32 = np.float32


def safe_row(family, x, _):
    def f(x):
        s = -x
        m, l, _ = fold(s, np.zeros((s.size, 1), s.dtype))
        return (np.zeros_like(x) if l == 0 else np.exp(s - m) / l,)
    return one_call(family, [x.size], [-x], f, ["y"], large=finite_most(x) if family != "vast" else 1)


def log_row(family, x, _):
    def f(x):
        m, l, _ = fold(x, np.zeros((x.size, 1), x.dtype))
        return (np.full_like(x, INF) if l == 0 else np.log(l) - (x - m),)
    wants = wanted(f, [x], ["y"], sizes={"y": 1})
    return Case(family, lambda child: {"y": child.call([x.size], [x], [x.size])[0]}, wants, {"x": x})


def masked_sum(family, h, rng):
    q, k, v, bias, causal, scale = h
    i = int(rng.integers(len(q)))
    o, lse, s = attend(*(x.astype(np.float64) for x in h[:3]), bias, causal, scale)
    with np.errstate(all="ignore"):
        p = np.where(np.isneginf(s[i]), 0, np.exp(s[i] - lse[i])).astype(F32)
    numbers, (_, _, values, bias_in, _) = head_call(*h)
    return Case(family, lambda child: {"o": child.call([*numbers, i], [p, values, bias_in], [v.shape[1]])[0]},
                {"o": (o[i], 4e-6 * largest(v))}, {"v": v, "p": p})


def a2_safe(rng):
    def row(family, x):
        """naive: what the first assignment says: FINE, or what breaks it."""
        def f(x):
            m, l, _ = fold(x, np.zeros((x.size, 1), x.dtype))
            return np.zeros_like(x) if l == 0 else np.exp(x - m) / l, [m + np.log(l)]
        naive = {"naive_breaks": 1 if x.max() > 0 else 2}.get(family, 0)
        wants = wanted(f, [x], ["y", "lse"], finite_most(x)) | {"the first assignment's report": (naive, 0)}

        def play(child):
            what, y, lse = child.call([x.size, 0, 0, 0, 0, 0, 0], [x], [1, x.size, 1])
            return {"y": y, "lse": lse, "the first assignment's report": what}
        return Case(family, play, wants, {"x": x})

    def log_row_of(family, x):
        def f(x):
            m, l, _ = fold(x, np.zeros((x.size, 1), x.dtype))
            return ((x - (0 if np.isneginf(m) else m)) - (0 if l == 0 else np.log(l)),)
        return Case(family, lambda child: {"y": child.call([x.size, 0, 0, 0, 0, 0, 1], [x], [x.size])[0]},
                    wanted(f, [x], ["y"], sizes={"y": 1}), {"x": x})

    for n in (1, 8, 100, int(rng.integers(2, 150))):
        yield row("row", scores("random", rng, n))
        yield row("naive_breaks", scores("random", rng, n) + np.float32(120))
        yield row("naive_breaks", scores("random", rng, n) - np.float32(250))
        for recipe in ("wide", "shift_up", "mask_row"):
            yield log_row_of(f"log_{recipe}", scores(recipe, rng, n))
    yield from of_heads(a2_head, HEADS)(rng)


def a2_head(family, h, _):
    numbers, inputs = head_call(*h)
    return Case(family, lambda child: dict(zip(("o", "lse"), child.call([*numbers, 2], inputs, [
        len(h[0]) * h[2].shape[1], len(h[0])]))), head_wants(h), {"q": h[0], "k": h[1], "v": h[2]})


PROBLEMS = {
    "a2_safe": a2_safe,
    "safe_row": of_rows(safe_row, ROWS),
    "log_row": of_rows(log_row, ROWS),
    "masked_sum": of_heads(masked_sum, [x for x in HEADS if x not in ("nan_q", "nan_k", "inf_k")]),
}
