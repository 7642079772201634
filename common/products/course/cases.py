"""cases.py: the inputs on which an exercise is judged, and the right answers, in NumPy.

Independent of the C code: this is a second reference, in float64.  A case has a family,
`attention-ascending`, which says what about its numbers is hard; common/core/verification/cases.h
explains the words.  A result is right where

    |got - want| <= 2 err + small,   err: the error of the plain computation in float32

and NaN and infinity stand exactly where they belong."""
import collections

import numpy as np

U = 2.0 ** -24  # half the distance of two floats, relative
UNWRITTEN = np.float32(-1.6947395e38).view(np.uint32)  # what memory holds before it is written


class Wrong(collections.namedtuple("Wrong", "why where got want allowed", defaults=("", 0, 0, 0))):
    """What is wrong with a result: why, and of which element: where, got, want, allowed."""

    def __str__(self):
        return f"{self.where}: {self.why}" if self.where else self.why


class Case:
    """name, family, inputs (option -> array), flags, and for each output want and allowed."""

    def __init__(self, family, inputs, flags, outputs):
        self.family, self.inputs, self.flags, self.outputs = family, inputs, flags, outputs
        shape = "x".join(str(n) for n in next(iter(inputs.values())).shape)
        self.name = f"{family}-{shape}" + ("-causal" if "--causal" in flags else "")
        self.size = sum(x.size for x in inputs.values())

    def wrong(self, got):
        """got: output -> array.  None, or Wrong."""
        for name, (want, allowed) in self.outputs.items():
            here = got[name]
            if here.shape != want.shape or here.dtype != np.float32:
                return Wrong(f"{name} has another shape")
            with np.errstate(invalid="ignore", over="ignore"):
                error = np.abs(here.astype(np.float64) - want)
                good = (error <= allowed) | (here == want) | (np.isnan(want) & np.isnan(here))
            if good.all():
                continue
            at = tuple(int(i) for i in np.argwhere(~good)[0])
            value = here[at]
            why = "an element that was not written" if value.view(np.uint32) == UNWRITTEN else \
                "NaN where a number belongs" if np.isnan(value) else \
                "a number where NaN belongs" if np.isnan(want[at]) else "the error is too large"
            return Wrong(why, f"{name}[{', '.join(map(str, at))}]", float(value), float(want[at]),
                         float(np.broadcast_to(allowed, want.shape)[at]))
        return None


# --- the right answers ---

def softmax(x, log=False):
    """Rows of x; the type of x is that of all steps.  A row without a visible score gives 0."""
    with np.errstate(all="ignore"):
        m = x.max(axis=-1, keepdims=True)
        m = np.where(np.isneginf(m), x.dtype.type(0), m)
        w = np.exp(x - m)
        l = np.cumsum(w, axis=-1)[..., -1:]  # one term after another, as a loop adds
        if log:
            return np.where(l == 0, x.dtype.type(-np.inf), x - m - np.log(l))
        return np.where(l == 0, x.dtype.type(0), w / np.where(l == 0, x.dtype.type(1), l))


def attend(q, k, v, bias, causal, scale):
    """o and lse of one head.  What a masked row of k or v holds does not matter."""
    f, n_q, n_k = q.dtype.type, len(q), len(k)
    with np.errstate(all="ignore"):
        s = f(scale) * (q @ k.T) + (f(0) if bias is None else bias.astype(q.dtype))
        hidden = np.zeros((n_q, n_k), bool) if bias is None else np.isneginf(bias)
        if causal:
            hidden |= np.arange(n_k) > np.arange(n_q)[:, None] + n_k - n_q
        s[hidden] = -np.inf
        m = s.max(axis=1, keepdims=True)
        w = np.exp(s - np.where(np.isneginf(m), f(0), m))
        l = w.sum(axis=1, keepdims=True)
        bad = ~np.isfinite(v)
        o = w @ np.where(bad, f(0), v)
        o[(~np.isneginf(s)).astype(f) @ bad.astype(f) > 0] = np.nan
        o = np.where(l == 0, f(0), o / np.where(l == 0, f(1), l))
        return o, (m + np.log(l))[:, 0], s


def error_of(exact, plain):
    """The largest error where both are numbers."""
    with np.errstate(invalid="ignore"):
        return np.nanmax(np.where(np.isfinite(exact), np.abs(plain - exact), 0), initial=0)


def inputs_of(q, k, v, bias, causal, scale, **more):
    return {"q": q, "k": k, "v": v, **({} if bias is None else {"bias": bias}), **more}, \
        ["--scale", repr(float(np.float32(scale)))] + ["--causal"] * causal


def attention_case(family, q, k, v, bias, causal, scale, roundings=0):
    """q (batch, heads_q, n_q, d), k and v (batch, heads_kv, n_k, .), bias (n_q, n_k) or None; roundings:
    what those of a 16-bit computation may add to the error, relative to v."""
    batch, heads, n_q, _ = q.shape
    o, o_allowed = np.empty((batch, heads, n_q, v.shape[3])), np.empty((batch, heads, 1, 1))
    lse, lse_allowed = np.empty((batch, heads, n_q)), np.empty((batch, heads, 1))
    for b, h in np.ndindex(batch, heads):
        g = h // (heads // k.shape[1])
        parts = q[b, h], k[b, g], v[b, g]
        exact = attend(*(x.astype(np.float64) for x in parts), bias, causal, scale)
        err, err_lse = map(error_of, exact[:2], attend(*parts, bias, causal, scale)[:2])
        s = exact[2][np.isfinite(exact[2])]
        seen = v[b, g][np.isfinite(v[b, g])]
        large, most = np.abs(s).max(initial=0), max(1, np.abs(seen).max(initial=0))
        o[b, h], lse[b, h] = exact[:2]
        o_allowed[b, h] = 2 * err + (2e-6 + roundings) * most + 2 * U * large * most
        lse_allowed[b, h] = 2 * err_lse + 2e-6 + roundings + 4 * U * large
    return Case(family, *inputs_of(q, k, v, bias, causal, scale), {"o": (o, o_allowed), "lse": (lse, lse_allowed)})


def gradients(q, k, v, do, bias, causal, scale):
    """dq, dk, dv; the same with all terms positive; the largest score.  What is hidden has no part."""
    found, sizes, large = [np.zeros_like(x) for x in (q, k, v)], [np.zeros_like(x) for x in (q, k, v)], 0
    for b, h in np.ndindex(q.shape[:2]):
        g = h // (q.shape[1] // k.shape[1])
        o, lse, s = attend(q[b, h], k[b, g], v[b, g], bias, causal, scale)
        hidden = np.isneginf(s)
        s = np.where(hidden, 0, s)
        p = np.where(hidden, 0, np.exp(np.where(hidden, 0, s - lse[:, None])))
        unseen = hidden.all(axis=0)[:, None]
        k_b, v_b, q_b, do_b = np.where(unseen, 0, k[b, g]), np.where(unseen, 0, v[b, g]), q[b, h], do[b, h]
        for sums, sign, of in ((found, -1, lambda x: x), (sizes, 1, np.abs)):
            D = of(do_b * o).sum(axis=1, keepdims=True)
            ds = p * (of(do_b) @ of(v_b).T + sign * D) * q.dtype.type(scale)
            sums[0][b, h] = ds @ of(k_b)
            sums[1][b, g] += ds.T @ of(q_b)
            sums[2][b, g] += p.T @ of(do_b)
        large = max(large, np.abs(s).max(initial=0))
    return found, sizes, large


def backward_case(family, q, k, v, do, bias, causal, scale):
    exact, sizes, large = gradients(*(x.astype(np.float64) for x in (q, k, v, do)), bias, causal, scale)
    plain, _, _ = gradients(q, k, v, do, bias, causal, scale)
    return Case(family, *inputs_of(q, k, v, bias, causal, scale, do=do), {
        name: (want, 2 * error_of(want, got) + (2e-6 + 8 * U * large) * size)
        for name, want, got, size in zip(("dq", "dk", "dv"), exact, plain, sizes)})


def rows_case(family, op, x):
    exact = x.astype(np.float64)
    if op == "mean":
        with np.errstate(all="ignore"):
            want = (exact / x.shape[1]).sum(axis=1)
            allowed = 1e-6 * np.abs(np.nan_to_num(exact)).max(axis=1)
    else:
        want, plain = softmax(exact, op == "logsoftmax"), softmax(x, op == "logsoftmax")
        allowed = 2 * error_of(want, plain) + 2e-6
        if op == "logsoftmax":
            allowed = allowed + 4 * U * np.abs(np.where(np.isfinite(want), want, 0))
    flags = {"softmax": [], "logsoftmax": ["--log"], "mean": ["--op", "mean"]}[op]
    return Case(f"{op}-{family}", {"x": x}, flags, {"y": (want, allowed)})


# --- the numbers ---

RISE = {"ascending": (-30, 30), "descending": (30, -30)}
SHIFT = {"shift_20": -20, "shift_200": -200, "shift_up": 1e4, "low": -1e5, "equal": 0}
ROWS = ["random", "wide", "range_80", "equal", "ascending", "descending", "outlier", "shift_20",
        "shift_200", "shift_up", "low", "large", "vast", "mask_some", "mask_row", "mask_first",
        "nan_q"]
HEADS = ["random", "wide", "ascending", "descending", "outlier", "shift_20", "shift_200", "low",
         "large", "zero_q", "markers", "mask_some", "mask_row", "mask_first", "nan_q", "nan_k",
         "inf_k", "nan_v", "inf_v", "nan_v_far"]
BACKWARD = ["random", "wide", "ascending", "descending", "outlier", "shift_20", "shift_200", "zero_q", "markers",
            "mask_some", "mask_row", "mask_first", "nan_k", "inf_k", "nan_v", "inf_v"]
MEANS = ["random", "near_max", "opposite", "equal", "shift_200"]
IN_HALF = {"random", "ascending", "descending", "outlier", "shift_20", "markers", "mask_some", "mask_row",
           "mask_first", "nan_q", "nan_k", "nan_v", "inf_v"}
BEYOND_60 = {"wide", "range_80", "shift_200", "shift_up", "low", "large", "vast", "nan_q"}


def scores(recipe, rng, rows, n):
    """x (rows, n) of a recipe for rows of scores."""
    x = rng.standard_normal((rows, n))
    if recipe == "wide": x *= 30
    if recipe == "range_80": x = rng.uniform(-80, 80, (rows, n))
    if recipe == "equal": x[:] = 3
    if recipe in RISE: x = np.broadcast_to(np.linspace(*RISE[recipe], n), (rows, n)).copy()
    if recipe == "outlier": x[:, rng.integers(n)] += 20
    if recipe in SHIFT and recipe != "equal": x += SHIFT[recipe]
    if recipe == "large": x *= 1e4
    if recipe == "vast": x *= 1e30
    if recipe == "near_max": x = rng.uniform(2.9e38, 3e38, (rows, n))
    if recipe == "opposite": x = 3e38 * np.where(np.arange(n) % 2, -1, 1) * np.ones((rows, 1))
    if recipe in ("mask_some", "mask_row"):
        x[rng.random((rows, n)) < 1 / 3] = -np.inf
        x[:, rng.integers(n)] = 0.5
    if recipe == "mask_row": x[rng.integers(rows)] = -np.inf
    if recipe == "mask_first": x[:, :max(1, n // 3) if n > 1 else 0] = -np.inf
    if recipe == "nan_q": x[rng.integers(rows), rng.integers(n)] = np.nan
    return x.astype(np.float32)


def heads(recipe, rng, shape, causal, op, half):
    """A case of attention or of its gradients.   shape: batch, heads_q, heads_kv, n_q, n_k, d, d_v;
    half: numbers that float16 holds."""
    batch, heads_q, heads_kv, n_q, n_k, d, d_v = shape
    q, k, v = (rng.standard_normal(x).astype(np.float32) for x in (
        (batch, heads_q, n_q, d), (batch, heads_kv, n_k, d), (batch, heads_kv, n_k, d_v)))
    scale = np.float32(rng.choice([1 / np.sqrt(d), 0.3 / np.sqrt(d)]))
    bias, at = None, int(rng.integers(n_k))
    wanted = np.linspace(*RISE[recipe], n_k) if recipe in RISE else \
        20.0 * (np.arange(n_k) == at) if recipe == "outlier" else \
        np.full(n_k, SHIFT[recipe]) if recipe in SHIFT else \
        -200.0 * (np.arange(n_k) == at) if recipe == "nan_v_far" else None
    if wanted is not None:  # the first column of q and k makes these scores
        q[..., 1:] *= 0.3
        q[..., 0], k[..., 0] = 1, wanted / scale
    if recipe == "wide": q *= 30
    if recipe == "large": q, k, v = 100 * q, 100 * k, 1e4 * v
    if recipe in ("zero_q", "markers"): q[:] = 0
    if recipe == "zero_q": v *= 100
    if recipe == "markers":
        v[:] = 0
        v[..., np.arange(n_k), np.arange(n_k) % d_v] = n_k
    if recipe.startswith("mask") or recipe[3:] in ("_k", "_v"):
        bias = rng.standard_normal((n_q, n_k)).astype(np.float32)
    if recipe in ("mask_some", "mask_row"):
        bias[rng.random((n_q, n_k)) < 1 / 3] = -np.inf
        bias[:, 0] = 0
    if recipe == "mask_row": bias[int(rng.integers(n_q))] = -np.inf
    if recipe == "mask_first" and n_k > 1: bias[:, :max(1, n_k // 2 if not causal else 1)] = -np.inf
    if recipe == "nan_q": q[..., int(rng.integers(n_q)), 0] = np.nan
    if recipe[3:] in ("_k", "_v"): bias[:, at] = -np.inf
    if recipe in ("nan_k", "inf_k"): k[..., at, :] = np.nan if recipe == "nan_k" else np.inf
    if recipe in ("nan_v", "inf_v"): v[..., at, :] = np.nan if recipe == "nan_v" else np.inf
    if recipe == "nan_v_far": v[..., at, :] = np.nan
    if recipe == "random" and rng.random() < 0.4:
        bias = rng.standard_normal((n_q, n_k)).astype(np.float32)
    if op == "backward":
        do = rng.standard_normal((batch, heads_q, n_q, d_v)).astype(np.float32)
        return backward_case(f"backward-{recipe}", q, k, v, do, bias, causal, scale)
    if half:
        q, k, v = (x.astype(np.float16).astype(np.float32) for x in (q, k, v))
    return attention_case(f"attention-{recipe}", q, k, v, bias, causal, scale, 4e-3 if half else 0)


RANDOM_ROWS = [(1, 1), (3, 2), (2, 3), (4, 7), (5, 64), (3, 129), (2, 1000)]
OTHER_ROWS = [(3, 5), (3, 67), (2, 300)]
RANDOM_HEADS = [((1, 1, 1, 1, 1, 1, 1), 0), ((1, 1, 1, 1, 2, 2, 1), 0), ((1, 1, 1, 2, 3, 1, 2), 1),
                ((1, 2, 1, 16, 33, 8, 5), 1), ((2, 4, 2, 7, 64, 16, 16), 0),
                ((1, 1, 1, 33, 47, 64, 64), 1), ((1, 3, 3, 5, 100, 32, 40), 0),
                ((1, 1, 1, 1, 130, 16, 16), 1), ((1, 2, 2, 24, 24, 4, 12), 1)]
OTHER_HEADS = [((1, 1, 1, 2, 4, 1, 1), 0), ((1, 2, 1, 9, 70, 16, 12), 0), ((1, 1, 1, 33, 40, 8, 8), 1)]


def drawn_shape(rng):
    heads_kv, group = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    n_q, n_k, d, d_v = (int(x) for x in rng.integers(1, (40, 100, 48, 48)))
    return (int(rng.integers(1, 3)), heads_kv * group, heads_kv, n_q, max(n_q, n_k), d, d_v), \
        int(rng.integers(2))


def cases_of(op, max_score, masked_rows, isolates_v, seed, draw=0, half=False):
    """All cases of an exercise, as its descriptor promises.  seed: a number; draw: hidden ones; half:
    all arrays are float16."""
    recipes = {"attention": HEADS, "backward": BACKWARD, "mean": MEANS}.get(op, ROWS)
    recipes = [x for x in recipes if (max_score > 60 or x not in BEYOND_60)
               and (masked_rows or x != "mask_row")
               and (isolates_v or x not in ("nan_v", "inf_v", "nan_v_far")) and (not half or x in IN_HALF)]
    found, on_heads = [], op in ("attention", "backward")
    plan = [(recipe, shape) for recipe in recipes for shape in
            ((RANDOM_HEADS if on_heads else RANDOM_ROWS) if recipe == "random" else
             OTHER_HEADS if on_heads else OTHER_ROWS)]
    rng = np.random.default_rng([seed, 0])
    plan += [(recipes[int(rng.integers(len(recipes)))],
              drawn_shape(rng) if on_heads else (int(rng.integers(1, 6)), int(rng.integers(2, 400))))
             for _ in range(draw)]
    if masked_rows and on_heads:
        plan.append(("random", ((1, 1, 1, 65, 17, 4, 3), 1)))  # queries that see no key
    for i, (recipe, shape) in enumerate(plan, 1):
        rng = np.random.default_rng([seed, i])
        found.append(heads(recipe, rng, *shape, op, half) if on_heads else
                     rows_case(recipe, op, scores(recipe, rng, *shape)))
        found[-1].name += "" if i <= len(plan) - draw else f"-hidden{i}"
    return found
