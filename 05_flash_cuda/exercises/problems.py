"""The calls that judge the exercises of stage 5.  PROBLEMS: name -> cases(rng)."""
import numpy as np

from cases import INF, KEYS, Case, divided, finite_most, fold, head, head_call, head_wants, of_keys, wanted
from child import Wrong

F32 = np.float32


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


def a5_fused(rng):
    def case(family, recipe, size, causal, splits):
        h = head(recipe, rng, size, causal)
        h = (*h[:3], None, causal, h[5])
        n_q, n_k, d, d_v = size
        numbers, inputs = head_call(*h)
        blocks = -(-n_q // 4)  # each loads all keys once, for all splits together
        elements = blocks * n_k * (d + d_v) + n_q * splits * (d + d_v + 2)

        def play(child):
            o, lse, (loads, pieces, turns, shared) = child.call([*numbers, splits], inputs, [n_q * d_v, n_q, 4])
            for name, got, most, words in (
                    ("loaded_once", loads, 1.05 * elements, "elements were loaded or stored"),
                    ("coalesced", pieces, elements / 6 + 64 * blocks, "pieces of 32 bytes were moved"),
                    ("bank_conflicts", turns, 1.1, "turns of the banks were needed for each access"),
                    ("occupancy", shared, 20480, "bytes of shared memory leave no room for four blocks")):
                if name == family and not got <= most:
                    raise Wrong(f"{got:.6g} {words}, {most:.6g} suffice")
            return {"o": o, "lse": lse}
        return Case(family, play, head_wants(h), {"q": h[0], "k": h[1], "v": h[2]})

    for recipe in ("random", "wide", "ascending", "shift_200"):
        yield case(recipe, recipe, (5, 64, 16, 16), 0, 1)
    for size in ((1, 1, 1, 1), (4, 33, 8, 5), (9, 70, 20, 31), tuple(map(int, rng.integers(1, 40, 4)))):
        yield case("ragged", "random", size, 0, 1)
    for size in ((8, 8, 4, 4), (40, 5, 8, 8), (6, 70, 8, 8)): yield case("causal", "random", size, 1, 1)
    for splits in (2, 3, int(rng.integers(4, 9))): yield case("splits", "random", (5, 130, 16, 8), int(rng.integers(2)), splits)
    for family in ("loaded_once", "coalesced", "bank_conflicts", "occupancy"):
        yield case(family, "random", (8, 64, 64, 64), 0, 1)


PROBLEMS = {
    "a5_fused": a5_fused,
    "causal_mask": causal_mask,
    "load_tile": load_tile,
    "push_tile": of_keys(push_tile, [x for x in KEYS if x != "nan_v_far"]),
}
