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


class Arriving:
    """Keys one after another, once.  due: after which of them an answer must arrive before the next is given.
    give(j): what key j sends; check(j, floats): the answer to the first j keys."""

    def __init__(self, due, give, check):
        self.due, self.give, self.check, self.j, self.owes = due, give, check, 0, False

    def __call__(self, what, _a, _b, floats):
        if what == "k":
            if self.owes:
                raise Wrong(f"key {self.j} asked for before the answer for the keys so far arrived")
            if self.j == len(self.due):
                return None
            self.j, self.owes = self.j + 1, self.due[self.j]
            return self.give(self.j - 1)
        if what != "o" or not self.owes:
            raise Wrong(f"an answer arrived where none is due (after key {self.j - 1})")
        self.owes = False
        self.check(self.j, floats)
        return []

    def end(self):
        if self.owes or self.j < len(self.due):
            raise Wrong("the last answer is missing" if self.owes else f"{self.j} of {len(self.due)} keys were asked for")


def one_loop(family, s, v, _):
    large = largest(v)
    with np.errstate(all="ignore"):
        so_far = [divided(*fold(s[:j].astype(np.float64), v[:j].astype(np.float64)))[0] for j in range(1, len(s) + 1)]

    def check(j, floats):
        compare(f"o after key {j - 1}", floats, so_far[j - 1], (1e-3 if np.abs(s).max() > 1e3 else 2e-5) * large)

    def play(child):
        keys = Arriving(~np.isneginf(s), lambda j: np.concatenate([s[j:j + 1], v[j]]), check)
        o, lse = child.call([v.shape[1]], [], [v.shape[1], 1], keys)
        keys.end()
        return {"o": o, "lse": lse}
    return Case(family, play, key_wants(s, v), {"s": s, "v": v})


def a3_online(family, h, rng):
    """Several queries; after some of the keys, and the last, an answer is due."""
    q, k, v, bias, causal, scale = h
    hidden = np.zeros((len(q), len(k)), F32) if bias is None else bias
    if causal:
        hidden = np.where(np.arange(len(k)) > np.arange(len(q))[:, None] + len(k) - len(q), F32(-INF), hidden)
    due = rng.random(len(k)) < 0.2
    due[-1] = True

    def check(j, floats):
        for name, got, (want, allowed) in zip(("o", "lse"), np.split(floats, [len(q) * v.shape[1]]), head_wants(
                (q, k[:j], v[:j], hidden[:, :j], 0, scale)).values()):
            compare(f"{name} after key {j - 1}", got, want, allowed)

    def play(child):
        keys = Arriving(due, lambda j: np.concatenate([[due[j]], k[j], v[j], hidden[:, j]]), check)
        child.call([len(q), q.shape[1], v.shape[1]], [q, [scale]], [], keys)
        keys.end()
        return {}
    return Case(family, play, {}, {"q": q, "k": k, "v": v})


PROBLEMS = {
    "a3_online": of_heads(a3_online, [x for x in HEADS if x != "nan_v_far"]),
    "online_step": of_rows(online_step, ROWS, [2, 3, 64]),
    "running_mean": of_rows(running_mean, ["random", "near_max", "opposite", "equal", "shift_200", "nan_q"], [1, 2, 5, 60]),
    "one_loop": of_keys(one_loop),
}
