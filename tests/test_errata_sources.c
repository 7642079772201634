/* test_errata_sources.c: the slips of the sources beside the notes "Flash Attention"
 * (notes/errata.md has the list; errata_example.h says what is tested). */
#include "errata_example.h"

/* ---- the reading notes on Ye's note ---- */

/* m_i = max(m_{i-1}, x_i); with a fixed index m in x_m the maximum of (3, 2, 5, 1) is
 * lost for every m but one. */
Test(errata, ye_running_maximum_takes_the_current_element)
{
    const float x[] = {3, 2, 5, 1};
    float m = -INFINITY;
    for (int i = 0; i < 4; i++) m = fmaxf(m, x[i]);
    cr_assert(m == 5);
    for (int fixed = 0; fixed < 4; fixed++) {
        float printed = -INFINITY;
        for (int i = 0; i < 4; i++) printed = fmaxf(printed, x[fixed]);
        cr_assert((printed == 5) == (fixed == 2));
    }
}

/* "x >= 11" overflows float16: 11 does not, 11.09375 is the first float16 that does. */
Test(errata, ye_float16_overflows_from_11_09_not_from_11)
{
    cr_assert(isfinite(half_to_float(float_to_half(expf(11.0f)))));
    cr_assert(isfinite(half_to_float(float_to_half(expf(11.0859375f)))));
    cr_assert(half_to_float(float_to_half(expf(11.09375f))) == INFINITY);
    cr_assert(fabs(log(65504.0) - 11.09) < 0.001);
}

/* ---- Jim Wang's article ---- */

/* The output has a row for each query: N rows, not M (keys). */
Test(errata, jw_output_and_scores_are_sized_by_their_own_lengths)
{
    const int n_queries = 4, n_keys = 6, dv = DV;
    int score_rows = n_queries, score_cols = n_keys; /* [N, M] */
    int last_output = (n_queries - 1) * dv + dv - 1;
    cr_assert(score_rows * score_cols == 24);
    cr_assert(last_output < n_queries * dv);
    cr_assert(n_keys * dv != n_queries * dv, "M rows is another size");
    const int more_queries = 9; /* and with N > M rows would be missing */
    cr_assert((more_queries - 1) * dv + dv - 1 >= n_keys * dv);
}

/* Batch and heads folded into N and M: queries of one head would see the keys of another.
 */
Test(errata, jw_folding_heads_into_the_lengths_mixes_heads)
{
    double separate =
        sum(0, HALF, 0, 0) / sum(0, HALF, 0, -1); /* head 0: its own 3 keys */
    double folded = sum(0, N, 0, 0) / sum(0, N, 0, -1);         /* all 6 keys */
    wrong(folded, separate);
}

/* The sum behind l_{j-1} runs to j - 1; the step then adds element j. */
Test(errata, jw_sum_before_step_j_ends_at_j_minus_1)
{
    int j = 4;
    double m_old = maximum(0, j), m = maximum(0, j + 1);
    double l_old = sum(0, j, m_old, -1), l_too_long = sum(0, j + 1, m_old, -1);
    right(l_old * exp(m_old - m) + exp(s[j] - m), sum(0, j + 1, m, -1));
    wrong(l_too_long * exp(m_old - m) + exp(s[j] - m), sum(0, j + 1, m, -1));
}

/* ---- "How Flash Attention works" ---- */

/* e^{-m} e^{x} is inf * 0 = NaN, or 0 / 0, where e^{x - m} is 1. */
Test(errata, how_exponents_must_be_subtracted_before_exp)
{
    const float scores[] = {-120.0f, -104.0f, 90.0f, 120.0f};
    for (int i = 0; i < 4; i++) {
        float x = scores[i], printed = expf(-x) * expf(x);
        cr_assert(expf(x - x) == 1.0f);
        cr_assert(!(fabsf(printed - 1.0f) <= 0.01f), "x = %g: e^-m e^x = %g", x, printed);
    }
    float x = 2.0f; /* harmless scores hide it */
    cr_assert(fabsf(expf(-x) * expf(x) - 1.0f) < 1e-6f);
}

/* mu_k weighs "the previous 1 .. k - 1" elements by (k - 1) / k and covers 1 .. k. */
Test(errata, how_step_k_covers_1_to_k)
{
    const double x[] = {4, 8, 3};
    double mu = 0;
    for (int k = 1; k <= 3; k++) {
        mu = mu * ((k - 1.0) / k) + x[k - 1] / k;
        double covered = 0, short_of_one = 0;
        for (int j = 0; j < k; j++) covered += x[j] / k;
        for (int j = 0; j < k - 1; j++) short_of_one += x[j] / (k - 1);
        right(mu, covered);
        if (k > 1) wrong(mu, short_of_one);
    }
}

/* mu (k - 1) / k from left to right overflows at k = 3; see tests/test_mean.c for the
 * rest. */
Test(errata, how_weighted_mean_overflows_as_written)
{
    float printed = 0, right_form = 0;
    for (int k = 1; k <= 3; k++) {
        printed = printed * (float)(k - 1) / (float)k + 3e38f / (float)k;
        right_form = right_form * ((float)(k - 1) / (float)k) + 3e38f / (float)k;
        cr_assert(isfinite(printed) == (k < 3), "k = %d: %g", k, printed);
    }
    cr_assert(fabsf(right_form / 3e38f - 1) < 1e-6f);
}

/* ---- "Computing Attention via Monoid Aggregates" ---- */

/* (v, -inf) with v != 0 is not the unit, and the formula gives NaN: -inf - (-inf). */
Test(errata, mon_masked_pair_is_not_an_element)
{
    float printed = 2.0f * expf(-INFINITY - fmaxf(-INFINITY, -INFINITY));
    cr_assert(isnan(printed), "%g", printed);
    float o[1], value[1] = {2.0f}, lse;
    struct aggregate x = {.o = o, .d = 1};
    aggregate_lift(&x, -INFINITY, value); /* here it is mapped to the unit */
    cr_assert(x.m == -INFINITY && x.l == 0.0f && o[0] == 0.0f);
    aggregate_push(&x, 1.0f, (float[1]){7.0f});
    aggregate_finish(&x, o, &lse);
    cr_assert(o[0] == 7.0f && lse == 1.0f);
}

/* Naive softmax is one traversal for the denominator; the quotients need a second,
 * because the last element changes the first answer. */
Test(errata, mon_naive_softmax_needs_a_second_traversal_for_its_output)
{
    wrong(exp(s[0]) / sum(0, N - 1, 0, -1), exp(s[0]) / sum(0, N, 0, -1));
}
