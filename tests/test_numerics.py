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


@pytest.mark.parametrize("n", [2, 3, 10, 1000, 10**6])
def test_largest_mean_distance_is_lamberts(n):
    """d = 1 + w for all but one, w e^w = (n - 1) / e by Newton's method; any other d has less."""
    w = np.log(n) / 2
    for _ in range(60):
        w -= (w * np.exp(w) - (n - 1) / np.e) / (np.exp(w) * (w + 1))
    def mean(d):
        return (n - 1) * d * np.exp(-d) / (1 + (n - 1) * np.exp(-d))
    assert abs(mean(1 + w) - w) < 1e-9 and w < np.log(n)
    assert mean(np.linspace(0, 30, 3001)).max() <= w + 1e-9
    for x in rows(min(n, 1000)):
        assert exact(x)[2] <= w + 1e-9


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


@pytest.mark.parametrize("offset", [0, 30, 3000])
def test_moments_stay_within_their_bound(offset):
    """Welford's loop in float: T = sqrt(2), E the largest error of a running mean."""
    n = 3000
    x, w = (np.random.default_rng(0).standard_normal((2, n)) * 2 + offset).astype(f4)
    mean, q, e = [f4(0), f4(0)], f4(0), [0.0, 0.0]
    for k in range(n):
        old = x[k] - mean[0]
        mean = [m + f4(a[k] - m) / f4(k + 1) for m, a in zip(mean, (x, w))]
        q += old * (w[k] - mean[1])
        e = [max(worst, abs(m - a[:k + 1].mean(dtype="f8"))) for worst, m, a in zip(e, mean, (x, w))]
    (s_x, s_w), cov = (a.std(dtype="f8") for a in (x, w)), np.cov(x.astype("f8"), w.astype("f8"), bias=True)[0, 1]
    bound = (n + 4) * U * s_x * s_w + 2**0.5 * (e[0] * s_w + e[1] * s_x) + 2 * e[0] * e[1]
    assert abs(q / n - cov) <= bound and (offset < 3000 or abs(q / n - cov) > bound / 1000)


def test_slots_of_integers_add_up_to_the_same_bits_in_any_order():
    """Terms e^x from 2^-40 to 2^40 in slots of 32 bits, two of them kept; floats differ."""
    r = np.random.default_rng(0)

    def lift(term):  # digits at fixed places: those of the integer term 2^96
        digits, k = int(term * 2.0**96), int(np.log2(term) + 96) // 32
        return k, [digits >> 32 * i & 0xffffffff for i in (k, k - 1)]

    def merge(x, y):
        (k, a), (j, b) = max(x, y), min(x, y)
        b = [0, *b][:2] if k == j + 1 else b if k == j else [0, 0]
        return k, [a[0] + b[0], a[1] + b[1]]

    def tree(items, merge):
        while len(items) > 1:
            i = r.integers(len(items) - 1)
            items[i:i + 2] = [merge(items[i], items[i + 1])]
        return items[0]
    terms, sums, floats = np.exp2(r.uniform(-40, 40, 200)), [], set()
    for _ in range(20):
        r.shuffle(terms)
        sums.append(tree([lift(t) for t in terms], merge))
        floats.add(tree(list(f4(terms)), lambda a, b: a + b))
    k, (high, low) = sums[0]
    assert all(s == sums[0] for s in sums) and len(floats) > 1
    assert abs((high + low / 2**32) * 2.0 ** (32 * k - 96) / terms.sum() - 1) < 200 * 2.0**-32


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


def test_continuations_find_every_element():
    """They move the median to any element, and the mean past any: the number above it jumps there."""
    x = [-3, -1, 2, 5, 7]
    assert [np.median(x + [y] * k) for y, ks in ((-99, (4, 2)), (99, (0, 2, 4))) for k in ks] == x
    n, mean = len(x), np.mean(x)
    for s in (x_j + e for x_j in x for e in (-0.25, 0.25)):
        y = mean + (2 * n + 1) / (n + 1) * (s - mean)  # n + 1 copies move the mean to s
        whole = np.array(x + [y] * (n + 1))
        above = (whole > whole.mean()).sum()
        assert above >= n + 1 if y > mean else above <= n
        assert abs(whole.mean() - s) < 1e-12 and above - (n + 1) * (y > mean) == sum(v > s for v in x)


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


def test_a_merge_can_be_read_off_a_loop():
    """The third homomorphism theorem: (m, l) stands for l scores of m, and the loop gives the merge."""
    def loop(scores):
        m, l = -np.inf, 0.0
        for s in scores:
            m, l = max(m, s), l * np.exp(m - max(m, s)) + np.exp(s - max(m, s))
        return m, l
    for m1, l1, m2, l2 in ((1, 3, 2, 4), (5, 2, 0, 9), (3, 1, 3, 6)):
        m, l = loop([m1] * l1 + [m2] * l2)
        assert m == max(m1, m2) and abs(l - l1 * np.exp(m1 - m) - l2 * np.exp(m2 - m)) < 1e-12


# --- notes/gradient.md, notes/io_accounting.md ---

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


def test_without_the_scale_the_gradient_vanishes():
    """The trace of J, 1 - sum p^2, of 256 keys; the mean of 100 queries."""
    r, d = np.random.default_rng(0), 256
    raw = r.standard_normal((100, d)) @ r.standard_normal((256, d)).T
    assert abs(raw.var() / d - 1) < 0.05
    trace = []
    for s in (raw / d**0.5, raw):
        p = np.exp(s - s.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        trace.append((1 - (p**2).sum(1)).mean())
    assert trace[0] > 0.98 and trace[1] < 0.3


def test_traffic_of_tiles_falls_with_the_memory():
    """Floats that a loop over tiles moves, counted, against 8 n^2 d^2 / M + 2 n d."""
    n, d = 4096, 64
    for memory in (d * 64, d * 256, d * 1024):
        rows_of_tile, moved = memory // (4 * d), 0
        for i in range(0, n, rows_of_tile):
            moved += 2 * rows_of_tile * d  # q in, o out
            moved += sum(2 * rows_of_tile * d for j in range(0, n, rows_of_tile))  # k and v in
        assert moved == 8 * n**2 * d**2 // memory + 2 * n * d
