"""The calls that judge the exercises of stage 4.  PROBLEMS: name -> cases(rng)."""
import os

import numpy as np

from cases import (HEADS, INF, SIZES, Case, attend, compare, divided, exact, finite_most, fold, head, head_call, head_case,
                   head_wants, in_parts, key_wants, largest, of_heads, of_keys, one_call, wanted)
from child import Wrong

F32 = np.float32


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
    return Case(family, play, key_wants(s, v), {"s": s, "v": v})


def combine(family, s, v, rng):
    parts, d_v = int(rng.choice([1, 3, 4, 7])), v.shape[1]
    ml, o = in_parts(s, v, parts)
    o = np.array([divided(*ml[t], o[t])[0] for t in range(parts)])
    return one_call(family, [parts, d_v], [ml, o], key_wants(s, v), {"m and l of the parts": ml, "o": o})


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
    o, lse, s = exact(h)
    most = largest(do) * largest(v)  # of the terms that cancel
    wants = wanted(f, [q, k, v, do], ["dq", "dk", "dv"], 4 * finite_most(s),  # s by another order of its sum, then exp
                   {"dq": most * largest(k), "dk": most * largest(q), "dv": largest(do)})
    numbers, inputs = head_call(*h)
    return one_call(family, numbers, [*inputs, do, o, lse], wants, {"q": q, "k": k, "v": v, "do": do})


def smooth_keys(rng):
    """The keys that come are also attended to: o must be what it was, and lse with the shift."""
    def case(family, n_q, n_k, d, offset):
        q, k, v = (rng.standard_normal(x).astype(F32) for x in ((n_q, d), (n_k, d), (n_k, d)))
        k += (offset * rng.standard_normal(d)).astype(F32)
        scale = F32(d ** -0.5)
        numbers, inputs = head_call(q, k, v, None, 0, scale)

        def f(q, k):
            mean = k.mean(axis=0)
            return k - mean, q.dtype.type(scale) * (q @ mean)
        wants = wanted(f, [q, k], ["k", "shift"], 1, {"k": largest(k), "shift": d ** 0.5 * largest(q) * largest(k)})
        o, lse, _ = exact((q, k, v, None, 0, float(scale)))
        wants |= {"o": (o, 1e-3 * largest(v)), "lse": (lse, 1e-3 * finite_most(lse))}

        def play(child):
            smooth, shift = child.call(numbers, inputs, [k.size, n_q])
            o, lse, _ = exact((q, smooth.reshape(k.shape), v, None, 0, float(scale)))
            return {"k": smooth, "shift": shift, "o": o, "lse": lse + shift}
        return Case(family, play, wants, {"q": q, "k": k})

    for d in (1, 8): yield case("one_key", 2, 1, d, 1)
    for size in ((1, 2, 1), (3, 7, 4), (5, 64, 16), (9, int(rng.integers(65, 300)), 32)):
        yield case("random", *size, 0)
        yield case("offset", *size, 30)


def quantise_row(rng):
    def case(family, x):
        x = np.asarray(x, F32)
        scale = largest(x) / 127 or 1.0

        def play(child):
            codes, (got, bound) = child.call([len(x)], [x], [len(x), 2])
            if not np.all((codes == np.rint(codes)) & (np.abs(codes) <= 127)):
                raise Wrong("a code that is no whole number from -127 to 127")
            return {"scale": got, "bound": bound, "scale times code": got * codes}
        return Case(family, play, {"scale": (scale, 1e-6 * scale), "bound": (scale / 2, 1e-6 * scale),
                                   "scale times code": (x, scale * (0.5 + 1e-4))}, {"x": x})

    for n in (1, 3): yield case("zeros", np.zeros(n))
    for n in (1, 2, 7, 64, int(rng.integers(65, 300))):
        x = rng.standard_normal(n)
        yield case("random", 10.0 ** rng.integers(-20, 20) * x)
        yield case("negative", [*x, -3 * np.abs(x).max()])
        yield case("outlier", [*x, 1000])


def a4_monoid(family, s, v, rng):
    parts, tree = int(rng.choice([1, 2, 3, 7, 8, 16])), int(rng.integers(2))
    ml, o = in_parts(s, v, parts)
    return one_call(family, [v.shape[1], parts, tree], [ml, o], key_wants(s, v), {"m and l of the parts": ml, "o": o})


PERCENT = 2, 6, 12  # of the multiply-adds that this machine does meanwhile


def a4_tiled(rng):
    threads = min(len(os.sched_getaffinity(0)), 8)

    def drawn(n_q, n_k, d, d_v):
        return *(rng.standard_normal(x).astype(F32) for x in ((n_q, d), (n_k, d), (n_k, d_v))), None, 0, F32(d ** -0.5)

    def timed(family, size, percent):
        """Speed in percent of the ceiling, or where percent is 0: is the work shared?"""
        def play(child):
            best, flops = 0, 2 * size[0] * size[1] * (size[2] + size[3])
            for _ in range(6):
                h = drawn(*size)
                numbers, inputs = head_call(*h)
                found, seconds = child.timed(threads, [*numbers, threads], inputs, [size[0] * size[3], size[0]])
                for (name, (want, allowed)), got in zip(head_wants(h).items(), found):
                    compare(name, got, want, allowed)
                share = child.shared if not percent else 100 * flops / 2 / seconds / child.ceiling(threads)
                best = max(best, share)
                child.share = best if percent else None
                if best >= (percent or 0.7):
                    return {}
            raise Wrong(f"{best:.1f} % of this machine's multiply-adds, {percent} are asked for" if percent else
                        f"the busiest of {threads} threads does {1 / best / threads:.0%} of the work")
        return Case(family, play, {}, {f"{size[0]} queries, {size[1]} keys": np.zeros(size[0])})

    for size in ((1, 1, 1, 1), (3, 200, 16, 8), (64, 64, 64, 64), (70, 33, 20, 5), (33, 47, 16, 20)):
        for some in sorted({1, 2, threads, 5}):
            yield head_case("right_keys" if size[0] < 8 * some else "right_rows", drawn(*size), [some])
    for recipe in ("shift_200", "outlier", "nan_q", "mask_row", "nan_v"):
        h = head(recipe, rng, (40, 60, 16, 16), 0)
        yield head_case("masked", (*h[:3], np.zeros((40, 60), F32) if h[3] is None else h[3], *h[4:]), [threads])
        if h[3] is None: yield head_case("right_rows", h, [threads])
    yield timed("shared_rows", (512, 512, 64, 64), 0)
    yield timed("shared_keys", (2, 16384, 64, 64), 0)
    for percent in PERCENT: yield timed(f"speed_{percent}", (512, 512, 64, 64), percent)


PROBLEMS = {
    "a4_monoid": of_keys(a4_monoid), "a4_tiled": a4_tiled,
    "merge": of_keys(merge),
    "combine": of_keys(combine),
    "ragged_tiles": ragged_tiles,
    "tile": of_heads(tile, HEADS),
    "zigzag": zigzag,
    "smooth_keys": smooth_keys, "quantise_row": quantise_row,
    "gradient": of_heads(gradient, [x for x in HEADS if x not in ("nan_q", "nan_v_far")], SIZES + [(3, 5, 256, 256)]),
}
