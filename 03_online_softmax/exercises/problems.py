"""The calls that judge the exercises of stage 3.  PROBLEMS: name -> cases(rng)."""
import numpy as np

from cases import (HEADS, INF, ROWS, Case, compare, divided, fold, head_wants, key_wants, largest, of_heads, of_keys,
                   of_rows, wanted)
from child import Wrong

F32 = np.float32


def online_step(family, x, _):
    """The state is kept here, so that there is one step and nothing else."""
    def play(child):
        state = np.array([-INF, 0], F32)
        for j in range(0, x.size, 2):
            state, = child.call([], [state, [x[j], x[j + 1] if j + 1 < x.size else -INF]], [2])
        return {"m": state[:1], "l": state[1:]}

    wants = wanted(lambda x: [[y] for y in fold(x)[:2]], [x], ["m", "l"])
    if family == "nan_q":
        del wants["m"]  # l is NaN; what m is nobody says
    return Case(family, play, wants, {"x": x})


def running_mean(family, x, rng):
    if family == "near_max": x = rng.uniform(2.9e38, 3e38, x.size).astype(F32)
    if family == "opposite": x = (3e38 * np.where(np.arange(x.size) % 2, -1, 1)).astype(F32)

    before = 5000 * (family == "random" and x.size == 60)  # zeros: their mean needs no call
    want = np.mean(x.astype(np.float64) / 4) * 4 * x.size / (before + x.size)

    def play(child):
        mu = np.zeros(1, F32)
        for k, e in enumerate(x, before + 1):
            mu, = child.call([k], [[mu[0], e]], [1])
        return {"mean": mu}
    return Case(family, play, {"mean": ([want], 1e-6 * np.nan_to_num(np.abs(x)).max())}, {"x": x})


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
        large = largest(self.v)
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
    return Case(family, play, key_wants(s, v), {"s": s, "v": v})


class Arriving:
    """Keys for several queries, each once; after some of them, and the last, an answer is due."""

    def __init__(self, h, rng):
        q, k, _, bias, causal, _ = self.h = h
        self.bias = np.zeros((len(q), len(k)), F32) if bias is None else bias
        if causal:
            self.bias = np.where(np.arange(len(k)) > np.arange(len(q))[:, None] + len(k) - len(q), F32(-INF), self.bias)
        self.asked, self.j, self.due = rng.random(len(k)) < 0.2, 0, False
        self.asked[-1] = True

    def __call__(self, what, _a, _b, floats):
        q, k, v, _, _, scale = self.h
        if what == "k":
            if self.due:
                raise Wrong(f"key {self.j} asked for before the answer for the keys so far arrived")
            if self.j == len(k):
                return None
            self.j, self.due = self.j + 1, self.asked[self.j]
            return np.concatenate([[self.due], k[self.j - 1], v[self.j - 1], self.bias[:, self.j - 1]])
        if what != "o" or not self.due or len(floats) != len(q) * (v.shape[1] + 1):
            raise Wrong(f"an answer arrived where none is due (after key {self.j - 1})")
        self.due = False
        for name, got, (want, allowed) in zip(("o", "lse"), np.split(floats, [len(q) * v.shape[1]]), head_wants(
                (q, k[:self.j], v[:self.j], self.bias[:, :self.j], 0, scale)).values()):
            compare(f"{name} after key {self.j - 1}", got, want, allowed)
        return []


def a3_online(family, h, rng):
    def play(child):
        arriving = Arriving(h, np.random.default_rng(seed))
        child.call([len(h[0]), h[0].shape[1], h[2].shape[1]], [h[0], [h[5]]], [], arriving)
        if arriving.j < len(h[1]) or arriving.due:
            raise Wrong("the last answer is missing" if arriving.due else f"{arriving.j} of {len(h[1])} keys were asked for")
        return {}
    seed = int(rng.integers(1 << 30))
    return Case(family, play, {}, {"q": h[0], "k": h[1], "v": h[2]})


PROBLEMS = {
    "a3_online": of_heads(a3_online, [x for x in HEADS if x != "nan_v_far"]),
    "online_step": of_rows(online_step, ROWS, [2, 3, 64]),
    "running_mean": of_rows(running_mean, ["random", "near_max", "opposite", "equal", "shift_200", "nan_q"], [1, 2, 5, 60]),
    "one_loop": of_keys(one_loop),
}
