"""The calls that judge the exercises of stage 2.  PROBLEMS: name -> cases(rng)."""
import numpy as np

from cases import (HEADS, ROWS, exact, finite_most, fold, head_call, head_case, largest, of_heads, of_rows,
                   one_call, scores, wanted)

F32 = np.float32


def softmax(x):
    m, l, _ = fold(x)
    return (np.zeros_like(x) if l == 0 else np.exp(x - m) / l), [m + np.log(l)]


def log_softmax(x):
    m, l, _ = fold(x)
    return ((x - (0 if np.isneginf(m) else m)) - (0 if l == 0 else np.log(l)),)


def safe_row(family, x, _):
    return one_call(family, [x.size], [-x], wanted(lambda x: softmax(-x)[:1], [-x], ["y"], finite_most(x) if
                                                   family != "vast" else 1))


def log_row(family, x, _):
    wants = wanted(lambda x: (-log_softmax(x)[0],), [x], ["y"], sizes={"y": 1})
    return one_call(family, [x.size], [x], wants, {"x": x})


def masked_sum(family, h, rng):
    v, i, (o, lse, s) = h[2], int(rng.integers(len(h[0]))), exact(h)
    with np.errstate(all="ignore"):
        p = np.where(np.isneginf(s[i]), 0, np.exp(s[i] - lse[i])).astype(F32)
    numbers, (_, _, values, bias_in, _) = head_call(*h)
    return one_call(family, [*numbers, i], [p, values, bias_in], {"o": (o[i], 4e-6 * largest(v))}, {"v": v, "p": p})


def a2_safe(rng):
    def row(family, x):
        """naive: what the first assignment says: FINE, or what breaks it."""
        naive = {"naive_breaks": 1 if x.max() > 0 else 2}.get(family, 0)
        wants = {"the first assignment's report": (naive, 0)} | wanted(softmax, [x], ["y", "lse"], finite_most(x))
        return one_call(family, [x.size, 0, 0, 0, 0, 0, 0], [x], wants, {"x": x})

    for n in (1, 8, 100, int(rng.integers(2, 150))):
        yield row("row", scores("random", rng, n))
        yield row("naive_breaks", scores("random", rng, n) + np.float32(120))
        yield row("naive_breaks", scores("random", rng, n) - np.float32(250))
        for recipe in ("wide", "shift_up", "mask_row"):
            x = scores(recipe, rng, n)
            yield one_call(f"log_{recipe}", [n, 0, 0, 0, 0, 0, 1], [x], wanted(log_softmax, [x], ["y"], sizes={"y": 1}),
                           {"x": x})
    yield from of_heads(lambda family, h, _: head_case(family, h, [2]))(rng)


PROBLEMS = {
    "a2_safe": a2_safe,
    "safe_row": of_rows(safe_row, ROWS),
    "log_row": of_rows(log_row, ROWS),
    "masked_sum": of_heads(masked_sum, [x for x in HEADS if x not in ("nan_q", "nan_k", "inf_k")]),
}
