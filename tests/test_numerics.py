"""test_numerics.py: the experiments of notes/numerics.md that need no stage, in float32 by NumPy."""
import numpy as np
import pytest

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


# --- notes/gradient.md ---

def jacobian(p):
    return np.diag(p) - np.outer(p, p)


def test_jacobian_is_a_covariance_of_norm_one_half():
    r = np.random.default_rng(0)
    for n in (2, 3, 17, 100):
        s, x, step = r.standard_normal(n), r.standard_normal(n), 1e-6 * r.standard_normal(n)
        p = np.exp(s) / np.exp(s).sum()
        assert abs(x @ jacobian(p) @ x - (p @ x**2 - (p @ x) ** 2)) < 1e-12
        q = np.exp(s + step) / np.exp(s + step).sum()
        assert np.allclose(q - p, jacobian(p) @ step, rtol=0, atol=1e-11)
        assert np.linalg.norm(jacobian(p), 2) <= 0.5 and np.abs(q - p).max() <= np.abs(step).max() / 2
    assert abs(np.linalg.norm(jacobian(np.array([0.5, 0.5])), 2) - 0.5) < 1e-15
