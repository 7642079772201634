"""The calls that judge the exercises of stage 5.  PROBLEMS: name -> cases(rng)."""
import numpy as np

from cases import INF, KEYS, Case, compare, head, head_call, head_wants, key_wants, of_keys, one_call
from child import Wrong

F32 = np.float32


def causal_mask(rng):
    def case(family, n_q, n_k, causal):
        i = np.arange(n_q)
        want = np.clip(i + 1 + n_k - n_q, 0, n_k) if causal else np.full(n_q, n_k)
        return one_call(family, [n_q, n_k, causal], [], {"keys": (want, 0)}, {f"{n_q} queries, {n_k} keys": i})
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
            if counts[0] != most:
                raise Wrong(f"{counts[0]:g} elements were loaded as k[i] and v[i], {most} are needed: each once, by one thread")
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
    return one_call(family, [n_q, len(v), v.shape[1]], [s, v], key_wants(s, v), {"s": s, "v": v})


PERCENT = 5, 13  # of the ceiling that the judge measures on the same GPU


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
            inputs_once = n_q * d + blocks * n_k * (d + d_v)
            for name, got, least, most, words in (
                    ("loaded_once", loads, inputs_once, 1.05 * elements, "elements were loaded or stored"),
                    ("coalesced", pieces, inputs_once / 8, elements / 6 + 64 * blocks, "pieces of 32 bytes were moved"),
                    ("bank_conflicts", turns, 1, 1.1, "turns of the banks were needed for each access"),
                    ("occupancy", shared, 4 * (d + d_v), 20480, "bytes of shared memory leave no room for four blocks")):
                if name == family and not got >= least:
                    raise Wrong(f"{got:.6g} {words}: fewer than {least:.6g} is nobody's; index a.q, a.k, a.v and shared "
                                "memory, a pointer into them counts nothing")
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

    reached = {}  # size -> percent of the ceiling, once all was right

    def measure(child, size, causal, splits):
        """Rounds of fresh numbers; the share of the best."""
        heads = [(*(rng.standard_normal(x).astype(F32) for x in ((size[0], size[2]), (size[1], size[2]), (size[1], size[3]))),
                  None, causal, F32(size[2] ** -0.5)) for _ in range(3)]
        numbers, inputs = head_call(*(x[:1] for x in heads[0][:3]), *heads[0][3:])
        shared = child.call([*numbers, 1], inputs, [size[3], 1, 4])[2][3]
        got = child.gpu(**{x: [h[i] for h in heads] for i, x in enumerate("qkv")}, causal=causal, splits=splits,
                        shared=shared, scale=heads[0][5])
        for (q, k, v, *_), o, lse in zip(heads, got["o"], got["lse"]):
            s = float(heads[0][5]) * q.astype(float) @ k.T.astype(float)
            if causal: s[~np.tri(*s.shape, len(k) - len(q), dtype=bool)] = -INF
            m = s.max(axis=1)
            p = np.exp(s - m[:, None])
            l = p.sum(axis=1)
            compare("o", o, p @ v / l[:, None], 2e-5 * p @ np.abs(v) / l[:, None])
            compare("lse", lse, m + np.log(l), 2e-5 * (1 + np.abs(m + np.log(l))))
        return float(got["share"])

    def on_gpu(family, size, causal, splits, percent=0):
        def play(child):
            reached[size] = reached.get(size) or measure(child, size, causal, splits)
            child.share = reached[size] if percent else None
            if not reached[size] >= percent:
                raise Wrong(f"{child.share:.1f} % of this GPU's multiply-adds from shared memory, {percent} are asked for")
            return {}
        return Case(family, play, {}, {f"{size[0]} queries, {size[1]} keys": np.zeros(size[0])}, on_gpu=True)

    yield on_gpu("gpu", (33, 70, 20, 31), 1, 3)
    for percent in PERCENT: yield on_gpu(f"gpu_speed_{percent}", (1024, 4096, 64, 64), 0, 8, percent)


def up(n, of):
    return -(-n // of)


def in_blocks(x, of, f):
    return np.concatenate([f(x[a:a + of]) for a in range(0, len(x), of)])


# name: numbers n and m -> (blocks, threads, floats shared, shape of x, shape of y, f(x, y), most elements, most barriers)
PUZZLES = {
    "twice": lambda n, m: (up(n, 32), 32, 0, n, 0, lambda x, y: 2 * x, 2 * n, 0),
    "add": lambda n, m: (up(n, 64), 64, 0, n, n, lambda x, y: x + y, 3 * n, 0),
    "stride": lambda n, m: (2, 32, 0, n, 0, lambda x, y: x * x, 3 * n, 0),
    "row_and_column": lambda n, m: (up(n * m, 64), 64, 0, (n, m), m, lambda x, y: x + y, 3 * n * m, 0),
    "broadcast": lambda n, m: (up(n, 64), 64, 1, n, 0, lambda x, y: in_blocks(x, 64, lambda b: b - b[0]), 2 * n, 1),
    "stencil": lambda n, m: (up(n, 64), 64, 66, n, 0, lambda x, y: np.convolve(x, [1, 1, 1], "same") if n > 2 else
                             np.full(n, x.sum()), 2 * n + 2 * up(n, 64), 1),
    "block_sum": lambda n, m: (up(n, 128), 128, 128, n, 0, lambda x, y: in_blocks(x, 128, lambda b: [b.sum()]),
                               n + up(n, 128), 8),
    "warp_sum": lambda n, m: (up(n, 32), 32, 0, n, 0, lambda x, y: in_blocks(x, 32, lambda b: [b.sum()]), n + up(n, 32), 0),
    "grid_sum": lambda n, m: (up(n, 32), 32, 0, n, 0, lambda x, y: [x.sum()], n + up(n, 32), 0),
    "where_is_the_maximum": lambda n, m: (1, 32, 0, n, 0, lambda x, y: [np.argmax(x)], n + 1, 0),
    "scan": lambda n, m: (1, 128, 128, min(n, 128), 0, lambda x, y: np.cumsum(x), 2 * min(n, 128), 14),
    "warp_scan": lambda n, m: (up(n, 32), 32, 0, n, 0, lambda x, y: in_blocks(x, 32, np.cumsum), 2 * n, 0),
    "column_sums": lambda n, m: (up(m, 32), 32, 0, (n, m), 0, lambda x, y: x.sum(axis=0), n * m + m, 0),
    "transpose": lambda n, m: (up(n, 32) * up(m, 32), 256, 1056, (n, m), 0, lambda x, y: x.T, 2 * n * m, 1),
    "transpose_without_conflicts": lambda n, m: PUZZLES["transpose"](n, m),
    "histogram": lambda n, m: (up(n, 64), 64, 32, n, 0, lambda x, y: np.bincount(x.astype(int), minlength=m),
                               n + m * up(n, 64), 2),
    "dot": lambda n, m: (1, 256, 8, n, n, lambda x, y: [x @ y], 2 * n + 1, 1),
    "matrix_product": lambda n, m: (up(n, 16) ** 2, 256, 512, (n, n), (n, n), lambda x, y: x @ y,
                                    2 * n * n * up(n, 16) + n * n, 2 * up(n, 16)),
    "two_buffers": lambda n, m: (1, 64, 128, (n, 64), 0, lambda x, y: np.arange(1, n + 1) @ x[:, 7 * np.arange(64) % 64],
                                 64 * n + 64, n),
    "softmax": lambda n, m: (n, 32, 0, (n, m), 0, lambda x, y: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
                             2 * n * m, 0),
}


def puzzles(rng):
    def case(which, name, n, m):
        blocks, threads, floats, of_x, of_y, f, elements, barriers = PUZZLES[name](n, m)
        x, y = (rng.standard_normal(shape).astype(F32) for shape in (of_x, of_y))
        if name == "histogram": x = rng.integers(0, m, n).astype(F32)
        want = np.asarray(f(x.astype(float), y.astype(float)), float)
        pieces = elements / 8 * 1.7 + 10 * blocks * (threads // 32) * max(1, up(elements, blocks * threads))

        def play(child):
            z, counts = child.call([which, len(x) if name == "scan" else n, m, blocks, threads, floats, x.size, y.size,
                                    want.size], [x, y], [want.size, 4])
            compare("z", z, want, 1e-5 * (1 + np.abs(want)).max())
            for got, most, words in zip(counts, (elements, pieces, 1.1 if "without" in name else np.inf, barriers), (
                    "elements were loaded or stored", "pieces of 32 bytes were moved: neighbouring threads, neighbouring elements",
                    "turns of the banks were needed for each access", "barriers were passed")):
                if not got <= most:
                    raise Wrong(f"{got:.6g} {words}; {most:.6g} suffice")
            return {}
        return Case(name, play, {}, {f"n = {n}, m = {m}": x})

    for which, name in enumerate(PUZZLES):
        # a row of fewer than 8 numbers is a piece of its own, which would not be counted
        for n, m in ((1, 1), (64, 32), (70, 20), (33, 32), (int(rng.integers(2, 130)), int(rng.integers(8, 33)))):
            yield case(which, name, n, m)


PROBLEMS = {
    "puzzles": puzzles,
    "a5_fused": a5_fused,
    "causal_mask": causal_mask,
    "load_tile": load_tile,
    "push_tile": of_keys(push_tile, [x for x in KEYS if x != "nan_v_far"]),
}
