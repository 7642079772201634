"""problems.py: for each exercise the calls that judge it.  PROBLEMS: name -> cases(rng).

What an exercise counts is counted here: keys, rows and tiles are served on request, once, in the order
in which the exercise allows them."""
import numpy as np

from cases import (HEADS, INF, KEYS, NAIVE, ROWS, Case, attend, compare, divided, finite_most, fold,
                   head_call, of_heads, of_keys, of_rows, one_call, wanted)
from child import Wrong

F32 = np.float32


# --- stage 1 ---

def softmax_row(family, x, _):
    def f(x):
        y = np.exp(x)
        return y, np.cumsum(y)[-1:]
    return one_call(family, [x.size], [x], f, ["y", "l"])


def score_row(family, h, rng):
    q, k, v, bias, causal, scale = h
    i = int(rng.integers(len(q)))
    want = attend(*(x.astype(np.float64) for x in h[:3]), bias, causal, scale)[2][i]
    numbers, inputs = head_call(*h)
    large = finite_most(want)
    return Case(family, lambda child: {"s": child.call([*numbers, i], inputs, [len(k)])[0]},
                {"s": (want, 4e-6 * large + 2e-6)}, {"k": k, "q": q, "i": [i]})


def weighted_sum(family, s, v, _):
    w = np.exp(s)

    def f(w, v):
        l = np.cumsum(w)[-1:]
        return (w[:, None] * v).sum(axis=0) / l, l
    return one_call(family, [len(w), v.shape[1]], [w, v], f, ["o", "l"])


# --- stage 2 ---

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
    wants = wanted(f, [x], ["y"])
    return Case(family, lambda child: {"y": child.call([x.size], [x], [x.size])[0]}, wants, {"x": x})


def masked_sum(family, h, rng):
    q, k, v, bias, causal, scale = h
    i = int(rng.integers(len(q)))
    o, lse, s = attend(*(x.astype(np.float64) for x in h[:3]), bias, causal, scale)
    with np.errstate(all="ignore"):
        p = np.where(np.isneginf(s[i]), 0, np.exp(s[i] - lse[i])).astype(F32)
    numbers, (_, _, values, bias_in, _) = head_call(*h)
    return Case(family, lambda child: {"o": child.call([*numbers, i], [p, values, bias_in], [v.shape[1]])[0]},
                {"o": (o[i], 4e-6 * finite_most(v))}, {"v": v, "p": p})


# --- stage 3 ---

def online_step(family, x, _):
    """The state is kept here, so that there is one step and nothing else."""
    def play(child):
        state = np.array([-INF, 0], F32)
        for j in range(0, x.size, 2):
            state, = child.call([], [state, [x[j], x[j + 1] if j + 1 < x.size else -INF]], [2])
        return {"m": state[:1], "l": state[1:]}

    def f(x):
        m, l, _ = fold(x, np.zeros((x.size, 1), x.dtype))
        return [m], [l]
    wants = wanted(f, [x], ["m", "l"])
    if family == "nan_q":
        del wants["m"]  # l is NaN; what m is nobody says
    return Case(family, play, wants, {"x": x})


def running_mean(family, x, rng):
    if family == "near_max": x = rng.uniform(2.9e38, 3e38, x.size).astype(F32)
    if family == "opposite": x = (3e38 * np.where(np.arange(x.size) % 2, -1, 1)).astype(F32)

    def play(child):
        mu = np.zeros(1, F32)
        for k, e in enumerate(x, 1):
            mu, = child.call([k], [[mu[0], e]], [1])
        return {"mean": mu}
    return Case(family, play, {"mean": ([np.mean(x.astype(np.float64) / 4) * 4], 1e-6 * np.nan_to_num(np.abs(x)).max())},
                {"x": x})


class Served:
    """Keys with their scores, one after another, once.  After each that takes part the answer so far
    must arrive before the next is served."""

    def __init__(self, s, v):
        self.s, self.v, self.j, self.due = s, v, 0, False
        with np.errstate(all="ignore"):
            self.want = [divided(*fold(s[:j].astype(np.float64), v[:j].astype(np.float64)))[0]
                         for j in range(1, len(s) + 1)]

    def __call__(self, what, _a, _b, floats):
        if what == "k":
            if self.due:
                raise Wrong(f"key {self.j} asked for before the answer for key {self.j - 1} arrived")
            if self.j == len(self.s):
                return None
            self.due = not np.isneginf(self.s[self.j])
            self.j += 1
            return np.concatenate([self.s[self.j - 1:self.j], self.v[self.j - 1]])
        if what != "o" or not self.due:
            raise Wrong(f"an answer arrived where none is due (after key {self.j - 1})")
        self.due = False
        large = finite_most(self.v)
        compare(f"o after key {self.j - 1}", floats, self.want[self.j - 1],
                1e-3 * large if np.abs(self.s).max() > 1e3 else 2e-5 * large)
        return []


def one_loop(family, s, v, _):
    def play(child):
        served = Served(s, v)
        o, lse = child.call([v.shape[1]], [], [v.shape[1], 1], served)
        if served.j < len(s) or served.due:
            raise Wrong(f"{served.j} of {len(s)} keys were asked for" if not served.due else "the last answer is missing")
        return {"o": o, "lse": lse}

    def f(s, v):
        o, lse = divided(*fold(s, v))
        return o, [lse]
    return Case(family, play, wanted(f, [s, v], ["o", "lse"], finite_most(s)), {"s": s, "v": v})


# --- stage 4 ---

def merge(family, s, v, rng):
    """Chunks are folded here and merged by calls; o is divided by l."""
    chunk, d_v = int(rng.choice([5, 8, 16])), v.shape[1]

    def element(s, v):
        m, l, o = fold(s, v)
        return np.array([m, l], F32), divided(m, l, o)[0].astype(F32)

    def play(child):
        ml, o = np.array([-INF, 0], F32), np.zeros(d_v, F32)
        for first in range(0, len(s), chunk):
            ml, o = child.call([d_v], [ml, o, *element(s[first:first + chunk], v[first:first + chunk])], [2, d_v])
        with np.errstate(all="ignore"):
            return {"o": o, "lse": ml[:1] + np.log(ml[1:])}

    def f(s, v):
        o, lse = divided(*fold(s, v))
        return o, [lse]
    return Case(family, play, wanted(f, [s, v], ["o", "lse"], finite_most(s)), {"s": s, "v": v})


def combine(family, s, v, rng):
    parts, d_v = int(rng.choice([1, 3, 4, 7])), v.shape[1]
    cuts = [len(s) * t // parts for t in range(parts + 1)]
    found = [fold(s[a:b], v[a:b]) for a, b in zip(cuts, cuts[1:])]
    ml = np.array([x[:2] for x in found], F32)
    o = np.array([divided(*x)[0] for x in found], F32)

    def f(s, v):
        o, lse = divided(*fold(s, v))
        return o, [lse]
    return Case(family, lambda child: dict(zip(("o", "lse"), child.call([parts, d_v], [ml, o], [d_v, 1]))),
                wanted(f, [s, v], ["o", "lse"], finite_most(s)), {"m and l of the parts": ml, "o": o})


def ragged_tiles(rng):
    """Of the tiles only the first may be short; what is asked for is all there is to judge."""
    def case(family, n, size):
        first = [0, *range((n - 1) % size + 1, n, size)] if n else []
        want = [(a, b - a) for a, b in zip(first, [*first[1:], n])]

        def play(child):
            got = []

            def serve(what, a, b, _):
                if what != "t" or len(got) >= len(want):
                    raise Wrong("more tiles than there are keys")
                got.append((a, b))
                if got[-1] != want[len(got) - 1]:
                    raise Wrong(f"tile {len(got) - 1} begins at key {a} and has {b} keys; "
                                f"it should begin at {want[len(got) - 1][0]} and have {want[len(got) - 1][1]}")
                return []
            child.call([n, size], [], [], serve)
            if len(got) < len(want):
                raise Wrong(f"{len(got)} of {len(want)} tiles, and then no more")
            return {}
        return Case(family, play, {}, {f"{n} keys in tiles of {size}": [n]})

    for size in (16, 24, 32, int(rng.integers(2, 40))):
        yield case("none", 0, size)
        for n in (1, size - 1): yield case("short", n, size)
        for n in (size, 3 * size): yield case("full", n, size)
        for n in (size + 1, 2 * size - 1, int(rng.integers(size + 1, 9 * size))): yield case("ragged", n, size)


class Tiles:
    """Tiles of k and v for one block of queries after another, each tile once a block."""

    def __init__(self, h, br, bc):
        self.h, self.br, self.bc, self.i_0, self.seen = h, br, bc, 0, set()
        self.o = np.full((len(h[0]), h[2].shape[1]), np.nan, F32)
        self.lse = np.full(len(h[0]), np.nan, F32)

    def __call__(self, what, a, b, floats):
        q, k, v, _, causal, _ = self.h
        if what == "f":
            if a < 0 or a % self.bc or a >= len(k) or b != min(self.bc, len(k) - a):
                raise Wrong(f"keys {a} to {a + b - 1} are no tile of {self.bc} keys")
            if a in self.seen:
                raise Wrong(f"the tile at key {a} was fetched twice for the queries from {self.i_0} on")
            self.seen.add(a)
            return np.concatenate([k[a:a + b].ravel(), v[a:a + b].ravel()])
        rows = min(self.br, len(q) - self.i_0)
        if what != "o" or (a, b) != (self.i_0, rows):
            raise Wrong(f"rows {a} to {a + b - 1} of o where {self.i_0} to {self.i_0 + rows - 1} belong")
        seen = min(len(k), max(0, self.i_0 + rows + len(k) - len(q))) if causal else len(k)
        if missing := [x for x in range(0, seen, self.bc) if x not in self.seen]:
            raise Wrong(f"rows {a} to {a + b - 1} of o without the tile at key {missing[0]}")
        floats = floats.reshape(rows, -1)
        self.o[a:a + b], self.lse[a:a + b] = floats[:, :-1], floats[:, -1]
        self.i_0, self.seen = a + b, set()
        return []


def head_wants(h):
    q, k, v, bias, causal, scale = h
    o, lse, s = attend(*(x.astype(np.float64) for x in (q, k, v)), bias, causal, scale)
    o_32, lse_32, _ = attend(q, k, v, bias, causal, scale)
    with np.errstate(all="ignore"):
        err, err_lse = (2 * np.nanmax(np.where(np.isfinite(x), np.abs(y - x), 0), initial=0)
                        for x, y in ((o, o_32), (lse, lse_32)))
    large = finite_most(s)
    return {"o": (o, err + (4e-6 + 2 * large * 2 ** -24) * finite_most(v)),
            "lse": (lse, err_lse + 4e-6 + 4 * large * 2 ** -24)}


def tile(family, h, rng):
    br, bc = int(rng.choice([6, 8, 12])), int(rng.choice([8, 16, 24]))
    numbers, (q, _, _, bias, scale) = head_call(*h)

    def play(child):
        tiles = Tiles(h, br, bc)
        child.call([*numbers, br, bc], [q, [], [], bias, scale], [], tiles)
        if tiles.i_0 < len(q):
            raise Wrong(f"the rows of o from {tiles.i_0} on are missing")
        return {"o": tiles.o, "lse": tiles.lse}
    return Case(family, play, head_wants(h), {"q": h[0], "k": h[1], "v": h[2]})


def zigzag(rng):
    """Each chunk belongs to one rank, and all ranks have the same work."""
    def case(family, ranks):
        def play(child):
            mine = [[int(np.nan_to_num(child.call([ranks, rank, which], [], [1])[0][0], nan=-1)) for which in (0, 1)]
                    for rank in range(ranks)]
            taken = sorted(x for pair in mine for x in pair)
            if taken != list(range(2 * ranks)):
                raise Wrong(f"with {ranks} ranks the chunks {taken} are computed")
            return {"work of each rank": np.array([sum(2 * c + 1 for c in pair) for pair in mine], F32)}
        return Case(family, play, {"work of each rank": (np.full(ranks, 4.0 * ranks), 0)}, {f"{ranks} ranks": [ranks]})
    yield case("one", 1)
    for ranks in (2, 3, 4, 5): yield case("few", ranks)
    for ranks in (8, int(rng.integers(9, 30))): yield case("many", ranks)


def gradient(family, h, rng):
    q, k, v, bias, causal, scale = h
    do = rng.standard_normal((len(q), v.shape[1])).astype(F32)

    def f(q, k, v, do):
        o, lse, s = attend(q, k, v, bias, causal, scale)
        hidden = np.isneginf(s)
        with np.errstate(all="ignore"):
            p = np.where(hidden, 0, np.exp(np.where(hidden, 0, s - lse[:, None])))
        unseen = hidden.all(axis=0)[:, None]
        k, v = np.where(unseen, 0, k), np.where(unseen, 0, v)
        ds = p * (do @ v.T - (do * o).sum(axis=1, keepdims=True)) * q.dtype.type(scale)
        return ds @ k, ds.T @ q, p.T @ do
    o, lse, s = attend(*(x.astype(np.float64) for x in (q, k, v)), bias, causal, scale)
    wants = wanted(f, [q, k, v, do], ["dq", "dk", "dv"])
    most = finite_most(q, do) * finite_most(k, v) * finite_most(v, do)  # of the terms that cancel
    wants = {x: (want, allowed + (2e-6 + 2 ** -22 * finite_most(s)) * most) for x, (want, allowed) in wants.items()}
    numbers, inputs = head_call(*h)
    return Case(family, lambda child: dict(zip(wants, child.call(
        numbers, [*inputs, do, o, lse], [q.size, k.size, v.size]))), wants, {"q": q, "k": k, "v": v, "do": do})


# --- stage 5 ---

def causal_mask(rng):
    def case(family, n_q, n_k, causal):
        i = np.arange(n_q)
        want = np.clip(i + 1 + n_k - n_q, 0, n_k) if causal else np.full(n_q, n_k)
        return Case(family, lambda child: {"keys": child.call([n_q, n_k, causal], [], [n_q])[0]},
                    {"keys": (want, 0)}, {f"{n_q} queries, {n_k} keys": i})
    for n_q, n_k in ((1, 1), (5, 9), (33, 40), tuple(map(int, rng.integers(1, 70, 2)))):
        yield case("all", n_q, n_k, 0)
    for n in (1, 2, 31, 64): yield case("square", n, n, 1)
    for n_q, n_k in ((1, 7), (3, 8), (40, 100)): yield case("more_keys", n_q, n_k, 1)
    for n_q, n_k in ((7, 1), (8, 3), (65, 17)): yield case("more_queries", n_q, n_k, 1)


def load_tile(rng):
    """Tiles one after another into the same shared memory.  Every thread reads what others loaded."""
    def case(family, n_k, d, d_v):
        k, v = rng.standard_normal((n_k, d)).astype(F32), rng.standard_normal((n_k, d_v)).astype(F32)

        def play(child):
            back_k, back_v, counts = child.call([n_k, d, d_v], [k, v], [k.size, v.size, 3])
            most, sectors = k.size + v.size, -(-k.size // 8) - (-v.size // 8) + 4 * (n_k // 16 + 1) * (2 + (d + d_v) // 32)
            if counts[0] > most:
                raise Wrong(f"{counts[0]:g} elements were loaded, {most} are needed: each once, by one thread")
            if counts[1] > 2 * sectors:
                raise Wrong(f"{counts[1]:g} pieces of 32 bytes were moved, {sectors} suffice where neighbouring "
                            "threads load neighbouring elements")
            return {"k": back_k, "v": back_v}
        return Case(family, play, {"k": (k, 0), "v": (v, 0)}, {"k": k, "v": v})
    for n, d, d_v in ((16, 32, 32), (16, 64, 48)): yield case("one_tile", n, d, d_v)
    for n, d, d_v in ((48, 32, 32), (64, 64, 16)): yield case("many_tiles", n, d, d_v)
    for n, d, d_v in ((1, 1, 1), (5, 33, 7), (39, 20, 31), (17, *map(int, rng.integers(1, 60, 2)))):
        yield case("ragged", n, d, d_v)


def push_tile(family, s, v, rng):
    """Some queries, each in a thread of its own; all have the same values."""
    n_q = int(rng.integers(1, 40))
    s = np.array([np.where(rng.random(len(s)) < 0.1, -INF, s) if i else s for i in range(n_q)], F32)
    if family == "nan_v":
        s[:, np.isnan(v).any(axis=1)] = -INF

    def f(s, v):
        rows = [divided(*fold(row, v)) for row in s]
        return np.array([o for o, _ in rows]), np.array([x for _, x in rows])
    wants = wanted(f, [s, v], ["o", "lse"], finite_most(s))
    return Case(family, lambda child: dict(zip(wants, child.call(
        [n_q, len(v), v.shape[1]], [s, v], [n_q * v.shape[1], n_q]))), wants, {"s": s, "v": v})


PROBLEMS = {
    "softmax_row": of_rows(softmax_row, NAIVE), "score_row": of_heads(score_row, [
        x for x in HEADS if x not in ("nan_v", "inf_v", "nan_v_far")]),
    "weighted_sum": of_keys(weighted_sum, ["random", "ascending", "descending", "outlier", "shift_20", "mask_some"]),
    "safe_row": of_rows(safe_row, ROWS), "log_row": of_rows(log_row, ROWS), "masked_sum": of_heads(masked_sum, [
        x for x in HEADS if x not in ("nan_q", "nan_k", "inf_k")]),
    "online_step": of_rows(online_step, ROWS, [2, 3, 64]),
    "running_mean": of_rows(running_mean, ["random", "near_max", "opposite", "equal", "shift_200", "nan_q"], [1, 2, 5, 60]),
    "one_loop": of_keys(one_loop), "merge": of_keys(merge), "combine": of_keys(combine),
    "ragged_tiles": ragged_tiles, "tile": of_heads(tile, HEADS), "zigzag": zigzag,
    "gradient": of_heads(gradient, [x for x in HEADS if x not in ("nan_q", "nan_v_far")]),
    "causal_mask": causal_mask, "load_tile": load_tile, "push_tile": of_keys(push_tile, [
        x for x in KEYS if x != "nan_v_far"]),
}
