"""test_errata.py: of each slip of the sources that is a formula or code (notes/errata.md) the printed
form gives a wrong answer and the right form the exact one.  The algebra is done in float64, so that a
difference is the formula's and not rounding; where overflow is the matter, in float32 or float16.

The example: scores whose maximum lies in the second half and rises in each, values without symmetry."""
import numpy as np
import pytest

S = np.array([0.3, -1.1, 0.9, 1.4, 0.2, 2.6])
V = np.array([[1, -2], [0.5, 3], [-1, 0.25], [2, 2], [4, -1], [-3, 1.5]])
ALL, HALF, REST = slice(6), slice(3), slice(3, 6)
exp, log = np.exp, np.log


def total(part, m=0.0, of=None):
    """Sum of e^{s_j - m} v_j, or of e^{s_j - m}."""
    p = exp(S[part] - m)
    return p.sum() if of is None else p @ of[part]


LSE, ATTENTION = log(total(ALL)), total(ALL, of=V) / total(ALL)
LOG_ATTENTION = (S - LSE) @ V
SLIPS = {}  # name: (exact, right form, printed forms)


def flash_attention_notes():
    """A part is handed over as b, its maximum, e, its sum, d, its output before it is divided by e."""
    (b1, e1, d1), (b2, e2, d2) = ((b, total(part, b), total(part, b, V))
                                  for part, b in ((HALF, S[HALF].max()), (REST, S[REST].max())))
    b = max(b1, b2)
    x, y, l = exp(b1 - b), exp(b2 - b), total(ALL, b)
    lse = log(total(HALF))
    m = max(b2, lse)
    tile = total(REST, m)
    SLIPS["note_lse_update_has_no_second_l"] = LSE, m + log(exp(lse - m) + tile), [
        m + log(exp(lse - m) + tile) + tile, m + log(exp(lse - m) + 2 * tile)]
    SLIPS["note_final_factor_is_the_reciprocal_of_the_denominator"] = (
        ATTENTION, total(ALL, b, V) * exp(b - LSE), [total(ALL, b, V) * exp(LSE - b), total(ALL, b, V) * (b - LSE)])
    SLIPS["note_combiner_uses_both_parts"] = ATTENTION, (x * e1 * (d1 / e1) + y * e2 * (d2 / e2)) / l, [
        (x * e1 * (d1 / e1) + y * e2 * (d1 / e1)) / l, (x * d1 + x * d2) / l]
    SLIPS["note_log_combiner_moves_each_part"] = exp(LSE - b), x * e1 + y * e2, [
        e1 / x + e2 / y, x * e1 + x * e2, x * e1 + y]  # sign; Delta c1 twice; e2 missing
    (a1, z1), (a2, z2) = (((S[p] - c) @ V[p], V[p].sum(0)) for p, c in ((HALF, b1), (REST, b2)))
    a, z = a1 + (b1 - b) * z1 + a2 + (b2 - b) * z2, z1 + z2
    SLIPS["note_log_combiner_needs_the_sum_of_v"] = LOG_ATTENTION, a - log(l) * z, [
        a1 + a2 - log(l) * z, a - log(l)]
    SLIPS["note_fused_expression_rescales_l"] = l, x * e1 + y * e2, [x * (d1 / e1) + y * e2]
    SLIPS["note_fused_expression_adds_x5"] = ATTENTION, (x * d1 + y * d2) / l, [
        (x * d1 + y * exp(S[3] - b2)) / l]


def indices_of_the_notes():
    """Heads, queries, keys, head_dim, head_dim_v, tiles; block 1 of the queries, tile 2 of the keys."""
    heads, l_q, l_k, d, dv, br, bc = 2, 5, 9, 4, 3, 2, 4
    SLIPS["note_block_counts_need_a_ceiling"] = 3, -(-l_q // br), [l_q // br]
    SLIPS["note_q_offset_crosses_heads_unless_br_divides_the_length"] = (
        np.ravel_multi_index((1, br), (heads, l_q)), l_q + br, [(3 + 1) * br])
    SLIPS["note_v_offset_follows_keys_and_their_width"] = (
        np.ravel_multi_index((1, 0, 0), (heads, l_k, dv)), l_k * dv, [l_q * dv, l_k * d])
    SLIPS["note_bias_offset_has_the_row_block"] = (
        np.ravel_multi_index((br, 2 * bc), (l_q, l_k)), br * l_k + 2 * bc, [1 // 3 * br * l_k + 2 * br * bc])


def reductions_of_the_notes():
    """5.1 and 5.2: the sum of 1, 2 and 6, then the sum of squares of x - mean, which is 14."""
    x = np.array([1, 2, 6])
    SLIPS["note_reduction_must_carry_its_state"] = 9, sum(x), [0 + x[-1]]
    SLIPS["note_second_reduction_has_its_own_state"] = 14, sum((x - 3) ** 2), [
        9 + sum((x - 3) ** 2), sum(x ** 2)]  # R1's accumulator used again; G without R1's result
    SLIPS["note_finisher_of_the_first_reduction_is_needed"] = 14, sum((x - 9 / 3) ** 2), [sum((x - 9) ** 2)]


def other_sources():
    x, mean = [3, 2, 5, 1], np.array([4.0, 8, 3])
    SLIPS["ye_running_maximum_takes_the_current_element"] = 5, max(x), [x[0], x[1], x[3]]
    # the queries of head 0, which has three keys, would see those of head 1
    SLIPS["jw_folding_heads_into_the_lengths_mixes_heads"] = (
        total(HALF, of=V) / total(HALF), total(HALF, 9, V) / total(HALF, 9), [ATTENTION])

    def online(updates):
        m_prev, l = x[0], 1
        for x_j in x[1:]:
            m = max(m_prev, x_j)
            l = l * exp(m_prev - m) + exp(x_j - m)
            m_prev = m if updates else m_prev
        return l
    assert abs(online(False) - 1.3205) < 5e-5
    SLIPS["jw_online_loop_updates_its_maximum"] = exp(np.array(x) - 5.0).sum(), online(True), [online(False)]
    SLIPS["how_step_k_covers_1_to_k"] = 5, 6 * (2 / 3) + mean[2] / 3, [mean[:2].mean()]
    with np.errstate(invalid="ignore"):
        SLIPS["mon_masked_pair_is_not_an_element"] = 0, 0, [2 * exp(np.float64(-np.inf) - -np.inf)]
    SLIPS["mon_naive_softmax_needs_a_second_traversal_for_its_output"] = (
        exp(S[0] - LSE), exp(S[0]) / total(ALL), [exp(S[0]) / total(slice(5))])


for source in (flash_attention_notes, indices_of_the_notes, reductions_of_the_notes, other_sources):
    source()


@pytest.mark.parametrize("name", SLIPS)
def test_printed_form_is_wrong_and_the_right_form_exact(name):
    exact, right, printed = SLIPS[name]
    assert np.allclose(right, exact, rtol=0, atol=1e-12)
    for wrong in printed:  # in every column
        assert not (np.abs(wrong - exact) <= 1e-3).any(), wrong


@np.errstate(over="ignore", invalid="ignore")
def test_how_exponents_must_be_subtracted_before_exp():
    """e^{-m} e^{x} is inf * 0 = NaN, or 0 / 0, where e^{x - m} is 1.  Harmless scores hide it."""
    for x in np.float32([-120, -104, 90, 120]):
        assert exp(x - x) == 1 and not abs(exp(-x) * exp(x) - 1) <= 0.01
    assert abs(exp(np.float32(-2)) * exp(np.float32(2)) - 1) < 1e-6
