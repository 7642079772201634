"""test_claims.py: what the lessons claim of their variants beyond a right answer: where one fails,
what stays the same bit for bit, what is stored."""
import re

import numpy as np
import pytest

from helpers import compare, lines_of, load, normal, save, stage


def answer(number, variant, x, *words, **files):
    for name, array in {"x": x, **files}.items():
        words += (f"--{name}", save(f"{name}.npy", np.atleast_2d(array)))
    stage(number, "run", "--variant", variant, *words, "--y", "y.npy")
    return load("y.npy")[0]


# The largest float with a finite exponential is LAST; ln(2^128) = 88.722839... lies behind it.
LAST, FIRST = map(float.fromhex, ("0x1.62e42ep6", "0x1.62e430p6"))


@pytest.mark.parametrize("x, y", [
    ([LAST], [1]), ([FIRST], [np.nan]),                 # inf / inf
    ([81.7915] * 1024, [0] * 1024),                     # above 118 ln 2: an infinite sum
    ([-104, -105, -200], [np.nan] * 3), ([-np.inf, -np.inf], [np.nan] * 2),  # 0 / 0
])
def test_naive_softmax_fails_where_the_lesson_says(x, y):
    compare(answer(1, "naive", np.array(x)), y, 0)


def test_first_failing_scores_are_those_by_hand():
    """float16 near 11 has steps of 1/128: exp(11.0859375) = 65247, exp(11.09375) = 65759 > 65520.
    bfloat16 near 88 has steps of 1/2: exp(88.5) = 2.7e38, exp(89) = 4.5e38 > 3.4e38."""
    rows = re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)$", stage(1, "trace").out, re.M)
    table = {int(n): [float(x) for x in row] for n, *row in rows[-3:]}
    compare(table[1], [FIRST, 11.09375, 89], 1e-6)
    compare([table[n][0] for n in (1024, 1048576)], [118 * np.log(2), 108 * np.log(2)], 1e-5)


@pytest.mark.parametrize("number, variant", [(2, "recompute"), (3, "online"), (4, "fold")])
def test_any_shift_cancels(number, variant):
    """Multiples of 1/8 shifted by 2^10 are exact."""
    x = np.random.default_rng(1).integers(0, 100, 64) / 8
    compare(answer(number, variant, x), answer(number, variant, x + 1024), 0)


@pytest.mark.parametrize("mask", [(), ("--causal",), ("--bias", "bias.npy")])
def test_the_fold_names_the_step_of_stage_3_and_changes_no_bit(mask):
    for name, shape in {"q": (2, 37, 24), "k": (2, 53, 24), "v": (2, 53, 9)}.items():
        save(f"{name}.npy", 3 * normal(*shape))
    bias = normal(37, 53)
    bias[::2, ::3] = bias[5] = -np.inf
    save("bias.npy", bias)
    answers = []
    for number, variant in (3, "online"), (4, "fold"):
        stage(number, "run", "--variant", variant, *mask,
              *(word for name in "qkvo" for word in (f"--{name}", f"{name}.npy")), "--lse", "lse.npy")
        answers.append([load(name).tobytes() for name in ("o.npy", "lse.npy")])
    assert answers[0] == answers[1]


def test_recomputed_and_reloaded_terms_are_the_same():
    x = 20 * normal(257)
    compare(answer(2, "recompute", x), answer(2, "reload", x), 0)


def test_running_sum_is_the_denominator_of_every_prefix():
    """The surrogate: after each score, not only after the last."""
    x = np.round(5 * normal(40), 2).tolist()
    text = stage(3, "trace", "--row", ",".join(map(str, x))).out.partition("softmax, loop 2")[0]
    rows = [list(map(float, line.split())) for line in text.splitlines()[3:]]
    assert len(rows) == len(x)
    for j, s, m, _, l in rows:
        part = np.array(x[:int(j) + 1])
        compare([s, m, l], [part[-1], part.max(), np.exp(part - part.max()).sum()], 1e-4)


def mean_of(form, x):
    return answer(3, f"mean_{form}", x, "--op", "mean")


MANY = 10 ** 6
NEAR = (3e38 * (1 - 0.01 * np.random.default_rng(1).random(MANY))).astype("f4")


def test_forms_of_the_mean_overflow_where_the_lesson_says():
    assert mean_of("total", NEAR[:1]) == NEAR[0] and mean_of("total", NEAR[:2]) == np.inf
    assert [np.isfinite(mean_of("product_first", NEAR[:n])) for n in (1, 2, 3, 4)] == [1, 1, 0, 0]
    assert mean_of("increment", [3e38, -3e38]) == -np.inf
    assert mean_of("weighted", [3e38, -3e38]) == mean_of("total", [3e38, -3e38]) == 0


def test_weighted_mean_drifts_by_a_quarter_percent():
    """Equal values, so that any error is drift: an increment is 0 then."""
    equal = np.full(MANY, 3e38, "f4")
    assert -0.0035 < mean_of("weighted", equal) / 3e38 - 1 < -0.0015
    assert mean_of("increment", equal) == equal[0]
    want = NEAR.mean(dtype="f8")
    assert abs(mean_of("increment", NEAR) / want - 1) <= 2e-5
    assert abs(mean_of("weighted", NEAR) / want - 1) > 1e-4


def test_variance_far_from_zero_survives_where_raw_moments_do_not():
    """One loop over E x^2 - (E x)^2 is what fusing without `move` gives."""
    x = 1e4 + normal(500)
    want, f4 = x.var(dtype="f8"), np.float32
    raw = np.cumsum(x * x)[-1] / f4(500) - (np.cumsum(x)[-1] / f4(500)) ** 2
    assert abs(raw / want - 1) > 1e-2
    assert np.isclose(answer(4, "fused", x, "--op", "fused_reduction", w=x), want, rtol=1e-3).any()


N = 256
WORKSPACE = {1: {"naive": 2 * N * N}, 2: {"recompute": 2 * N * N},
             3: {"online": 0, "two_loops": 0, "normalised": 0},
             4: {"fold": 0, "tile": 0, "memory_efficient": 16 + 8, "all_cores": 25184}}


def peaks(number, *words):
    """Bytes of each variant at attention of one head beyond the arrays, which begin at 1024."""
    stage(number, "bench", "--quick", "--device", "cpu", "--op", "attention", "--csv", "peaks.csv",
          "--head-dim", 8, *words)
    return {row["variant"]: int(row["peak_bytes"]) - 1024 - int(row["seqlen_q"]) * 4 * (4 * 8 + 1)
            for row in lines_of("peaks.csv")}


@pytest.mark.parametrize("number", WORKSPACE)
def test_workspace_is_what_the_lesson_says(number):
    """Floats: S and P; nothing; sqrt(n) scores and a row of o; tiles and the sums of their span."""
    peak = peaks(number, "--seqlen-q", N)
    assert {name: peak[name] // 4 for name in WORKSPACE[number]} == WORKSPACE[number]


def test_workspace_of_tiles_does_not_grow_with_the_sequence():
    long = peaks(4, "--variant", "all_cores", "--seqlen-q", 64 * N)
    assert long["all_cores"] // 4 == WORKSPACE[4]["all_cores"]
