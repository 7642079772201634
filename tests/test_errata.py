"""test_errata.py: of each slip of the sources that is a formula or code (notes/errata.md) the printed
form gives a wrong answer and the right form the exact one.  The algebra is done in float64, so that a
difference is the formula's and not rounding; where overflow is the matter, in float32 or float16.

The example: scores whose maximum lies in the second half and rises in each, values without symmetry."""
import numpy as np

S = np.array([0.3, -1.1, 0.9, 1.4, 0.2, 2.6])
V = np.array([[1, -2], [0.5, 3], [-1, 0.25], [2, 2], [4, -1], [-3, 1.5]])
ALL, HALF = slice(6), slice(3)
REST = slice(3, 6)
exp, log = np.exp, np.log


def total(part, m=0.0, of=None):
    """Sum of e^{s_j - m} v_j, or of e^{s_j - m}."""
    p = exp(S[part] - m)
    return p.sum() if of is None else p @ of[part]


LSE, ATTENTION = log(total(ALL)), total(ALL, of=V) / total(ALL)
LOG_ATTENTION = (S - LSE) @ V


def right(got, want):
    assert np.allclose(got, want, rtol=0, atol=1e-12), f"the right form gives {got}, want {want}"


def wrong(got, want):
    """In every column."""
    assert not (np.abs(np.asarray(got) - want) <= 1e-3).any(), f"the printed form gives {got}"


# --- The notes "Flash Attention" ---

def test_note_lse_update_has_no_second_l():
    """1.1, under equation 9: the new log-sum-exp of a tile with sum l has l once."""
    lse = log(total(HALF))
    m = max(S[REST].max(), lse)
    l = total(REST, m)
    right(m + log(exp(lse - m) + l), LSE)
    for printed in (log(exp(lse - m) + l) + l, log(exp(lse - m) + l + l), log(lse - m + l)):
        wrong(m + printed, LSE)


def test_note_final_factor_is_the_reciprocal_of_the_denominator():
    m = S.max()
    right(total(ALL, m, V) * exp(m - LSE), ATTENTION)
    wrong(total(ALL, m, V) * exp(LSE - m), ATTENTION)


def part_of(part):
    """What 1.2 hands over: b maximum, e sum, d output before it is divided by e."""
    b = S[part].max()
    return b, total(part, b), total(part, b, V)


def test_note_combiner_uses_both_parts():
    """1.2: the second part's output is d2 / e2, and each part has its own Delta."""
    (b1, e1, d1), (b2, e2, d2) = part_of(HALF), part_of(REST)
    x, y = exp(b1 - max(b1, b2)), exp(b2 - max(b1, b2))
    l = x * e1 + y * e2
    right((x * e1 * (d1 / e1) + y * e2 * (d2 / e2)) / l, ATTENTION)
    wrong((x * e1 * (d1 / e1) + y * e2 * (d1 / e1)) / l, ATTENTION)
    wrong((x * d1 + x * d2) / l, ATTENTION)  # row d


def test_note_log_combiner_moves_each_part_and_needs_the_sum_of_v():
    """1.3: log-softmax attention from two parts."""
    (b1, e1, _), (b2, e2, _) = part_of(HALF), part_of(REST)
    b = max(b1, b2)
    l = exp(LSE - b)
    right(exp(b1 - b) * e1 + exp(b2 - b) * e2, l)
    wrong(exp(b - b1) * e1 + exp(b - b2) * e2, l)  # the sign as printed
    wrong(exp(b1 - b) * e1 + exp(b1 - b) * e2, l)  # Delta c1 twice
    wrong(exp(b1 - b) * e1 + exp(b2 - b), l)       # e2 missing
    (a1, z1), (a2, z2) = (((S[p] - m) @ V[p], V[p].sum(0)) for p, m in ((HALF, b1), (REST, b2)))
    a = a1 + (b1 - b) * z1 + a2 + (b2 - b) * z2
    right(a - log(l) * (z1 + z2), LOG_ATTENTION)
    wrong(a1 + a2 - log(l) * (z1 + z2), LOG_ATTENTION)  # maxima not moved
    wrong(a - log(l), LOG_ATTENTION)                    # sum of v left out


def test_note_fused_expression_rescales_l_and_adds_x5():
    """2.1: version 1."""
    b, e, d = part_of(HALF)
    x2, x4, x5 = part_of(REST)
    x3, m = exp(S[3] - x2), max(b, x2)
    x6, x7 = exp(b - m), exp(x2 - m)
    right(x6 * e + x7 * x4, total(ALL, m))
    wrong(x6 * (d / e) + x7 * x4, total(ALL, m))  # o_old for L_old
    right((x6 * d + x7 * x5) / total(ALL, m), ATTENTION)
    wrong((x6 * d + x7 * x3) / total(ALL, m), ATTENTION)


def test_note_block_counts_need_a_ceiling():
    for length, block in ((100, 32), (1, 16), (33, 32)):
        assert length // block * block < length <= -(-length // block) * block


def test_note_q_offset_crosses_heads_unless_br_divides_the_length():
    """Block t of head h starts at row h L + t Br; printed is (h T_r + t) Br."""
    for length, heads_that_agree in ((100, [0]), (128, [0, 1, 2])):
        agree = [h for h in range(3) if all(h * length + t * 32 == (h * 4 + t) * 32 for t in range(4))]
        assert agree == heads_that_agree


def test_note_v_and_bias_offsets_follow_keys_and_their_own_widths():
    heads, l_q, l_k, d, dv, br, bc = 2, 5, 9, 4, 3, 2, 4
    v = np.arange(heads * l_k * dv).reshape(heads, l_k, dv)
    assert v[1, 0, 0] == l_k * dv and v[1, 0, 0] not in (l_q * dv, l_k * d)
    bias = np.arange(l_q * l_k).reshape(l_q, l_k)
    for t, i in ((1, 1), (1, 2), (2, 1)):  # row block t of the queries, key tile i
        at = bias[t * br, i * bc]
        assert at == t * br * l_k + i * bc and at not in (i * bc, t * br * l_k + i * bc * l_k)


def test_note_reduction_must_carry_its_state():
    """5.1: s = A(s, x_i) for the sum, then R2, sum of squares of G = x - mean, with its own state."""
    carried = restarted = own = 0
    shared = 9  # R1's accumulator used again
    for x in (1, 2, 6):
        carried, restarted = carried + x, 0 + x  # printed: A(I, x_i)
    for x in (1, 2, 6):
        own, shared = own + (x - 3) ** 2, shared + (x - 3) ** 2
    assert (carried, restarted) == (9, 6) and own == 14 != shared
    assert sum(x * x for x in (1, 2, 6)) != 14  # G without R1's result


def test_note_finisher_of_the_first_reduction_is_needed():
    """5.2: without it R1's state is a sum where G needs a mean."""
    assert sum((x - 9 / 3) ** 2 for x in (1, 2, 6)) == 14 != sum((x - 9) ** 2 for x in (1, 2, 6))


# --- The reading notes on Ye's note ---

def test_ye_running_maximum_takes_the_current_element():
    """With a fixed index m in x_m the maximum of (3, 2, 5, 1) is lost for every m but one."""
    x = [3, 2, 5, 1]
    m = -np.inf
    for x_i in x:
        m = max(m, x_i)
    assert m == 5 and [max(-np.inf, x[fixed]) == m for fixed in range(4)] == [False, False, True, False]


@np.errstate(over="ignore")
def test_ye_float16_overflows_from_11_09_not_from_11():
    below, first = np.float16(11.0859375), np.float16(11.09375)
    assert np.isfinite(exp(np.float16(11))) and np.isfinite(exp(below)) and exp(first) == np.inf
    assert np.nextafter(below, np.float16(12)) == first and abs(log(65504) - 11.09) < 0.001


# --- Jim Wang's article ---

def test_jw_output_and_scores_are_sized_by_their_own_lengths():
    for n, m in ((4, 6), (9, 6)):  # queries, keys
        q, k, v = np.ones((n, 3)), np.ones((m, 3)), np.ones((m, 2))
        assert (q @ k.T).shape == (n, m) and (q @ k.T @ v).shape == (n, 2) != (m, 2)


def test_jw_folding_heads_into_the_lengths_mixes_heads():
    """The queries of head 0, which has three keys, would see those of head 1."""
    separate = total(HALF, of=V) / total(HALF)
    wrong(ATTENTION, separate)


def test_jw_sum_before_step_j_ends_at_j_minus_1():
    m_old, m = S[:4].max(), S[:5].max()
    want = total(slice(5), m)
    right(total(slice(4), m_old) * exp(m_old - m) + exp(S[4] - m), want)
    wrong(total(slice(5), m_old) * exp(m_old - m) + exp(S[4] - m), want)


# --- "How Flash Attention works" ---

@np.errstate(over="ignore", invalid="ignore")
def test_how_exponents_must_be_subtracted_before_exp():
    """e^{-m} e^{x} is inf * 0 = NaN, or 0 / 0, where e^{x - m} is 1.  Harmless scores hide it."""
    for x in np.float32([-120, -104, 90, 120]):
        assert exp(x - x) == 1 and not abs(exp(-x) * exp(x) - 1) <= 0.01
    assert abs(exp(np.float32(-2)) * exp(np.float32(2)) - 1) < 1e-6


def test_how_step_k_covers_1_to_k():
    x, mu = np.array([4.0, 8, 3]), 0
    for k in (1, 2, 3):
        mu = mu * ((k - 1) / k) + x[k - 1] / k
        right(mu, x[:k].mean())
        if k > 1:
            wrong(mu, x[:k - 1].mean())


@np.errstate(over="ignore")
def test_how_weighted_mean_overflows_as_written():
    """mu (k - 1) / k from left to right overflows at k = 3; tests/test_claims.py has the rest."""
    one, big = np.float32([1, 3e38])
    printed = form = one - one
    for k in np.float32([1, 2, 3]):
        printed = printed * (k - one) / k + big / k
        form = form * ((k - one) / k) + big / k
        assert np.isfinite(printed) == (k < 3)
    assert abs(form / big - 1) < 1e-6


# --- "Computing Attention via Monoid Aggregates" ---

@np.errstate(invalid="ignore")
def test_mon_masked_pair_is_not_an_element():
    """(v, -inf) with v != 0 is not the unit: the formula gives NaN.  Our lift maps it to the unit
    (monoid/masked_score_lifts_to_the_unit_whatever_its_value_holds)."""
    m = np.float64(-np.inf)
    assert np.isnan(2 * exp(m - max(m, m)))


def test_mon_naive_softmax_needs_a_second_traversal_for_its_output():
    """The last element changes the first answer."""
    wrong(exp(S[0]) / total(slice(5)), exp(S[0]) / total(ALL))
