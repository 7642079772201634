"""test_numerics.py: the experiments of notes/numerics.md that need no stage, in float32 by NumPy."""
import numpy as np
import pytest

U, KAPPA = 2.0 ** -24, 0.5  # kappa of an exponential that is rounded correctly
f4 = np.float32


def rows(n):
    """Rows that are hard in different ways."""
    z, t = np.random.default_rng(n).standard_normal(n), np.arange(n) / n
    lone = z.copy()
    lone[n // 2] = 50
    every = [z, 30 * z, 1e4 + z, -1e4 + 5 * z, 60 * t, -60 * t, 0 * z + 1.5, lone, 80 * t[::-1] * z]
    return [f4(x) for x in every + [z * 10.0 ** e for e in range(1, 7)]]


def exact(x):
    """Probabilities, distances from the maximum, and the mean of those."""
    d = x.max() - x.astype("f8")
    p = np.exp(-d) / np.exp(-d).sum()
    return p, d, p @ d


@pytest.mark.parametrize("n", [1, 4, 13, 40, 121, 364, 1093, 3280, 9841])
def test_mean_distance_is_at_most_the_entropy(n):
    for x in rows(n):
        p, _, d_mean = exact(x)
        entropy = -(p[p > 0] * np.log(p[p > 0])).sum()
        assert d_mean <= entropy + 1e-9 and entropy <= np.log(n) + 1e-9


def test_three_passes_stay_within_their_bound_and_approach_it():
    """p_j (d_j + d_mean + 2 kappa + D + 2) u + 2^-126 with D = n - 1 and a division; and, since
    p d <= 0.37, an absolute error that does not depend on the range of the scores."""
    worst = 0
    for n in (1, 4, 13, 40, 121, 364, 1093, 3280):
        for x in rows(n):
            terms = np.exp((x - x.max()).astype("f8")).astype(f4)
            want, d, d_mean = exact(x)
            error = np.abs(terms / np.cumsum(terms)[-1] - want)  # cumsum adds one after the other
            bound = want * (d + d_mean + 2 * KAPPA + n + 1) * U + 2.0 ** -126
            assert (error <= bound).all() and (
                error <= (0.37 + want * (np.log(n) + 2 * KAPPA + n + 1)) * U + 2.0 ** -126).all()
            worst = max(worst, (error / bound).max())
    assert worst > 0.05, "the bound was never approached"


def test_log_softmax_must_subtract_the_maximum_first():
    """At m = 1e4 the sum m + log l is rounded to a multiple of 2^-10."""
    m, l = f4(1e4), f4(1 + np.exp(-1) + np.exp(-2.5))
    want = -np.log(1 + np.exp(-1) + np.exp(-2.5))
    assert abs((m - m) - np.log(l) - want) < 1e-6
    assert abs(m - (m + np.log(l)) - want) > 1e-5


# --- notes/fusing_reductions.md ---

def distances(x):
    """sum_j |x_j - mean|"""
    return np.abs(np.array(x) - np.mean(x)).sum()


def test_sum_of_distances_from_the_mean_has_no_combine():
    """Two sets agree in number, mean, answer and even variance; with one more element they differ, so
    no combine can work on such a state.  By hand: with 10 the mean is 5/3."""
    a, b = [-3, -1, 0, 1, 3], [4, -1, -1, -1, -1]
    assert sum(a) == sum(b) == 0 and np.var(a) == np.var(b) and distances(a) == distances(b) == 8
    assert abs(distances(a + [10]) - 58 / 3) < 1e-12 and abs(distances(b + [10]) - 64 / 3) < 1e-12


def test_kinks_of_the_sum_of_distances_are_the_data():
    """s -> sum |x_j - s| has a kink at every x_j: the answers for all continuations give the data back."""
    s, x = np.arange(-7, 10), [-3, -1, 2, 5]
    f = np.abs(np.array(x)[:, None] - s).sum(0)
    assert s[1:-1][np.diff(f, 2) != 0].tolist() == x


def test_number_of_maxima_fuses():
    """State (m, c), although the statistic is compared with each element."""
    for x in ([3, 5, 5, 1, 5, 2], [7], [2, 2, 2], [1, 2, 3, 3], [-1, 4, -1, 4, 0]):
        for cut in range(1, len(x)):
            (m1, c1), (m2, c2) = ((max(part), part.count(max(part))) for part in (x[:cut], x[cut:]))
            m = max(m1, m2)
            assert (m, c1 * (m1 == m) + c2 * (m2 == m)) == (max(x), x.count(max(x)))


def test_zero_keys_are_not_the_unit():
    """Their score is 0: beside real scores of -20 the padding takes all the weight."""
    for padding, want in ((0, 0), (-np.inf, 1)):
        p = np.exp(np.array([-20.0] * 5 + [padding] * 27))
        assert abs(p[:5].sum() / p.sum() - want) < 1e-7
