"""cases.py: inputs, right answers in float64, and how an answer is compared with them.

A case has a family, `mask_row`, which says what about its numbers is hard.  The judge keeps inputs and
answers; play(child) makes the calls.  An output is right where

    |got - want| <= allowed = 2 (error of the plain computation in float32) + a few roundings

in shares of the terms' size, so that it scales with the values, and NaN and infinity stand exactly where they belong."""
import numpy as np

from child import UNWRITTEN, Wrong

U = 2.0 ** -24  # half the distance of two floats, relative
TINY = 2.0 ** -120  # what lies below the least normal float may be flushed, and divided by a small sum
OF_CHILD = np.uint32(0xff00dead)  # what child.c leaves where nothing is written
INF = np.inf


class Case:
    """play(child): name -> what came; wants: name -> (want, allowed); show: the inputs, by name; on_gpu: where
    there is one."""

    def __init__(self, family, play, wants, show=None, on_gpu=False):
        self.family, self.play, self.wants, self.show, self.on_gpu = family, play, wants, show or {}, on_gpu
        self.size = sum(np.size(x) for x in self.show.values())
        shape = "x".join(str(n) for n in np.shape(next(iter(self.show.values()), ())))
        self.name = f"{family}-{shape}" if shape else family

    def judge(self, child):
        """Raises Wrong."""
        got = self.play(child)
        for name, (want, allowed) in self.wants.items():
            compare(name, got[name], want, allowed)


def compare(name, got, want, allowed):
    want = np.asarray(want, np.float64)
    got = np.asarray(got, np.float32).reshape(want.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        good = (np.abs(got.astype(np.float64) - want) <= allowed) | (got == want) | (np.isnan(want) & np.isnan(got))
    if good.all():
        return
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    value = got[at]
    why = UNWRITTEN if value.view(np.uint32) == OF_CHILD else \
        "NaN where a number belongs" if np.isnan(value) else \
        "a number where NaN belongs" if np.isnan(want[at]) else "the error is too large"
    raise Wrong(why, f"{name}[{', '.join(map(str, at))}]" if at else name, float(value), float(want[at]),
                float(np.broadcast_to(allowed, want.shape)[at]))


def largest(*arrays):
    """The largest finite |number| of them."""
    return max(float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in map(np.asarray, arrays))


def finite_most(*arrays):
    return max(1.0, largest(*arrays))


def wanted(f, inputs, names, large=1.0, sizes=None):
    """What f gives in float64, and what is allowed: a share of each element's size, which is twice that of
    the plain computation and a few roundings.  The size of o is that of its terms, f of the absolute values
    (the last input); of a logarithm, whose errors are absolute, |want| + 1; else |want|, plus sizes[name].
    large: the largest score, whose rounding every computation has."""
    with np.errstate(all="ignore"):
        doubles = [np.asarray(x, np.float64) for x in inputs]
        exact, terms = f(*doubles), f(*doubles[:-1], np.abs(doubles[-1]))
        plain = f(*(np.asarray(x, np.float32) for x in inputs))
        found = {}
        for name, want, term, got in zip(names, exact, terms, plain):
            want, more = np.asarray(want), (sizes or {}).get(name, float(name == "lse"))
            size = np.asarray(term) if name == "o" else np.abs(want) + more
            share = np.where(size > 1e-30, np.abs(np.asarray(got, np.float64) - want) / size, 0)
            share = share[np.isfinite(share)].max(initial=0)
            found[name] = want, (2 * share + 4e-6 + 4 * U * large) * np.nan_to_num(size, posinf=0.0) + TINY
        return found


def one_call(family, numbers, inputs, wants, show=None):
    """A case of one call, whose outputs are those of wants, in their order."""
    lengths = [np.size(want) for want, _ in wants.values()]

    def play(child):
        return dict(zip(wants, child.call(numbers, inputs, lengths)))
    return Case(family, play, wants, show or {f"input {i}": x for i, x in enumerate(inputs) if np.size(x)})


# --- the right answers; the type of the inputs is that of all steps ---

def fold(s, v=None):
    """Keys with scores s (n) and values v (n, d_v): m, l = sum exp(s - m), and o, not divided.  A
    masked key (-inf) takes no part."""
    f = s.dtype.type
    m = s.max(initial=f(-INF))
    keep = ~np.isneginf(s)
    with np.errstate(all="ignore"):
        w = np.exp(s - (f(0) if np.isneginf(m) else m))
        l = np.cumsum(w)[-1] if len(w) else f(0)
        return m, l, None if v is None else (w[keep, None] * v[keep]).sum(axis=0)


def divided(m, l, o):
    """o and lse."""
    with np.errstate(all="ignore"):
        return (np.zeros_like(o) if l == 0 else o / l), m + np.log(l)


def attend(q, k, v, bias, causal, scale):
    """o, lse and the scores of one head."""
    f, n_q, n_k = q.dtype.type, len(q), len(k)
    with np.errstate(all="ignore"):
        s = f(scale) * (q @ k.T) + (f(0) if bias is None else bias.astype(q.dtype))
        hidden = np.zeros((n_q, n_k), bool) if bias is None else np.isneginf(bias)
        if causal:
            hidden |= np.arange(n_k) > np.arange(n_q)[:, None] + n_k - n_q
        s[hidden] = -INF
        rows = [divided(*fold(row, v)) for row in s]
    return np.array([o for o, _ in rows]), np.array([x for _, x in rows]), s


def exact(h):
    """The same in float64, of a head as head() makes it."""
    return attend(*(x.astype(np.float64) for x in h[:3]), *h[3:])


def head_wants(h):
    """o and lse of a head."""
    return wanted(lambda q, k, v: attend(q, k, v, *h[3:])[:2], h[:3], ["o", "lse"], finite_most(exact(h)[2]))


def key_wants(s, v):
    """o and lse of the keys of a query, or of several with a row of scores each."""
    def f(s, v):
        found = [divided(*fold(row, v)) for row in np.atleast_2d(s)]
        return np.array([o for o, _ in found]), np.array([lse for _, lse in found])
    return wanted(f, [s, v], ["o", "lse"], finite_most(s))


def head_case(family, h, more=()):
    """One call for o and lse of a head; more: numbers behind those of the head."""
    numbers, inputs = head_call(*h)
    return one_call(family, [*numbers, *more], inputs, head_wants(h), {"q": h[0], "k": h[1], "v": h[2]})


def in_parts(s, v, n):
    """m and l (n, 2) and o, not divided, (n, d_v) of n parts of the keys; some may be empty."""
    cuts = [len(s) * t // n for t in range(n + 1)]
    found = [fold(s[a:b], v[a:b]) for a, b in zip(cuts, cuts[1:])]
    return np.array([x[:2] for x in found], np.float32), np.array([x[2] for x in found], np.float32)


# --- the numbers ---

RISE = {"ascending": (-30, 30), "descending": (30, -30)}
SHIFT = {"shift_20": -20, "shift_200": -200, "shift_up": 1e4, "low": -1e5}
NAIVE = ["random", "equal", "ascending", "descending", "outlier", "shift_20", "mask_some", "mask_first"]
BEYOND_60 = ["wide", "range_80", "shift_200", "shift_up", "low", "large", "vast", "mask_row", "nan_q"]
ROWS = NAIVE + BEYOND_60
KEYS = ["random", "wide", "ascending", "descending", "outlier", "shift_20", "shift_200", "low", "large",
        "mask_some", "mask_row", "mask_first", "nan_q", "nan_v", "nan_v_far"]
HEADS = ["random", "wide", "ascending", "descending", "outlier", "shift_20", "shift_200", "zero_q", "markers",
         "mask_some", "mask_row", "mask_first", "nan_q", "nan_k", "inf_k", "nan_v", "inf_v", "nan_v_far"]
LENGTHS, OTHER = [1, 2, 3, 7, 64, 129, 300], [5, 67, 200]  # of a random row, of the others
SIZES = [(1, 1, 1, 1), (1, 2, 2, 1), (2, 3, 1, 2), (9, 33, 8, 5), (7, 64, 16, 16), (33, 47, 16, 20),
         (1, 130, 16, 16), (24, 24, 4, 12)]  # seqlen_q, seqlen_k, head_dim, head_dim_v
OTHER_SIZES = [(2, 4, 1, 1), (9, 40, 16, 12), (20, 25, 8, 8)]


def scores(recipe, rng, n):
    """A row of scores, float32."""
    x = rng.standard_normal(n)
    if recipe == "wide": x *= 30
    if recipe == "range_80": x = rng.uniform(-80, 80, n)
    if recipe == "equal": x[:] = 3
    if recipe in RISE: x = np.linspace(*RISE[recipe], n)
    if recipe == "outlier": x[rng.integers(n)] += 20
    if recipe in SHIFT: x += SHIFT[recipe]
    if recipe == "large": x *= 1e4
    if recipe == "vast": x *= 1e30
    if recipe == "mask_some":
        x[rng.random(n) < 1 / 3] = -INF
        x[rng.integers(n)] = 0.5
    if recipe == "mask_row": x[:] = -INF
    if recipe == "mask_first": x[:max(1, n // 3) if n > 1 else 0] = -INF
    if recipe == "nan_q": x[rng.integers(n)] = np.nan
    return x.astype(np.float32)


def keys(recipe, rng, n, d_v):
    """Scores and values of a query's keys.  nan_v: NaN behind a masked key; nan_v_far: where the
    weight underflows, so it must show."""
    s, v = scores(recipe, rng, n), rng.standard_normal((n, d_v)).astype(np.float32)
    at = int(rng.integers(n))
    if recipe == "nan_v":
        s[at], v[at] = -INF, np.nan
    if recipe == "nan_v_far":
        s[at] -= 200
        v[at, 0] = np.nan
    return s, v


def head(recipe, rng, size, causal):
    """q, k, v, bias (or None), causal, scale of one head."""
    n_q, n_k, d, d_v = size
    q, k, v = (rng.standard_normal(x).astype(np.float32) for x in ((n_q, d), (n_k, d), (n_k, d_v)))
    scale, bias, at = np.float32(rng.choice([1, 0.3]) / np.sqrt(d)), None, int(rng.integers(n_k))
    target = scores(recipe, rng, n_k) if recipe in (*RISE, *SHIFT, "outlier") else \
        -200.0 * (np.arange(n_k) == at) if recipe == "nan_v_far" else None
    if target is not None:  # the first column of q and k makes these scores
        q[:, 1:] *= 0.3
        q[:, 0], k[:, 0] = 1, target / scale
    if recipe == "wide": q *= 30
    if recipe in ("zero_q", "markers"): q[:] = 0
    if recipe == "markers":
        v[:] = 0
        v[np.arange(n_k), np.arange(n_k) % d_v] = n_k
    if recipe.startswith("mask") or recipe[3:] in ("_k", "_v") or (recipe == "random" and rng.random() < 0.4):
        bias = rng.standard_normal((n_q, n_k)).astype(np.float32)
    if recipe in ("mask_some", "mask_row"): bias = np.array([scores("mask_some", rng, n_k) for _ in q])
    if recipe == "mask_row": bias[int(rng.integers(n_q))] = -INF
    if recipe == "mask_first" and n_k > 1: bias[:, :max(1, n_k // 2 if not causal else 1)] = -INF
    if recipe == "nan_q": q[int(rng.integers(n_q)), 0] = np.nan
    if recipe[3:] in ("_k", "_v"): bias[:, at] = -INF
    if recipe[3:] == "_k": k[at] = np.nan if recipe[0] == "n" else INF
    if recipe[3:] == "_v": v[at] = np.nan if recipe[0] == "n" else INF
    if recipe == "nan_v_far": v[at] = np.nan
    return q, k, v, bias, int(causal), scale


def problem(make, recipes, sizes, draw):
    """For each recipe and each of its sizes make(family, what is drawn, rng)."""
    def cases(rng):
        for recipe in recipes:
            for i, size in enumerate(sizes(recipe == "random", lambda *limits: int(rng.integers(*limits)))):
                yield make(recipe, *draw(recipe, rng, size, i), rng)
    return cases


def of_rows(make, recipes, lengths=None):
    return problem(make, recipes, lambda is_random, drawn: [*(lengths or (LENGTHS if is_random else OTHER)), drawn(2, 150)],
                   lambda recipe, rng, n, _: [scores(recipe, rng, n)])


def of_keys(make, recipes=tuple(KEYS)):
    return problem(make, recipes, lambda is_random, drawn: [*(LENGTHS[:-1] if is_random else [5, 40]), drawn(2, 90)],
                   lambda recipe, rng, n, _: keys(recipe, rng, n, int(rng.integers(1, 20))))


def of_heads(make, recipes=tuple(HEADS), sizes=tuple(SIZES)):
    return problem(make, recipes, lambda is_random, drawn: [
        *(sizes if is_random else OTHER_SIZES), (*sorted([drawn(1, 30), drawn(1, 30)]), drawn(1, 24), drawn(1, 24))],
                   lambda recipe, rng, size, i: [head(recipe, rng, size, i % 2 == 1)])


def head_call(q, k, v, bias, causal, scale):
    """Numbers and inputs as head_of() of exercise.h wants them."""
    empty = np.zeros(0, np.float32)
    return [len(q), len(k), q.shape[1], v.shape[1], causal, bias is not None], \
        [q, k, v, empty if bias is None else bias, [scale]]
