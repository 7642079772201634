/* Stage 1: right inside its promise, and wrong outside it in exactly the announced way. */
#include <criterion/criterion.h>

#define main unused_main_of_stage_1
#define stage naive_stage
#include "../01_naive/variants.c"
#undef main
#undef stage

static void run_softmax(const float *x, float *y, size_t n)
{
    struct problem p = {.op = OP_SOFTMAX, .rows = 1, .cols = n};
    struct arrays a = {.x = x, .y = y};
    variant_call(&naive, &p, &a);
}

/* The largest float x with a finite exp(x) is 0x1.62e42ep6: ln(2^128) = 88.722839... lies
 * between it and its successor. */
Test(naive, float_overflows_at_the_first_failing_score)
{
    cr_assert(first_failing_score(softmax_row, 1) == 0x1.62e430p6f);
    const float good[1] = {0x1.62e42ep6f}, bad[1] = {0x1.62e430p6f};
    float y[1];
    run_softmax(good, y, 1);
    cr_assert(y[0] == 1);
    run_softmax(bad, y, 1);
    cr_assert(isnan(y[0]), "inf / inf must show as NaN, got %g", y[0]);
}

/* float16 values near 11 are 1/128 apart; exp(11.0859375) = 65247 and exp(11.09375) = 65759,
 * which is above 65520, where rounding reaches inf.  bfloat16 values near 88 are 1/2 apart:
 * exp(88.5) = 2.7e38, exp(89) = 4.5e38 > 3.4e38. */
Test(naive, sixteen_bit_types_overflow_where_the_table_says)
{
    cr_assert(first_failing_score_16(F16, 1) == 11.09375f);
    cr_assert(first_failing_score_16(BF16, 1) == 89.0f);
}

/* 1024 equal terms overflow ln(1024) = 6.93 earlier: at 81.79. */
Test(naive, sum_overflows_before_any_term)
{
    float first = first_failing_score(softmax_row, 1024);
    cr_assert(fabs((double)first - (128 - 10) * 0.69314718055994531) < 1e-4, "got %.9g", first);
    static float x[1024], y[1024];
    for (int j = 0; j < 1024; j++) x[j] = first;
    cr_assert(isfinite(expf(first)));
    run_softmax(x, y, 1024);
    cr_assert(y[0] == 0, "a finite term over an infinite sum is 0, got %g", y[0]);
}

Test(naive, scores_below_minus_104_give_nan)
{
    const float x[3] = {-104, -105, -200};
    float y[3];
    run_softmax(x, y, 3);
    for (int j = 0; j < 3; j++) cr_assert(isnan(y[j]), "0/0 must show, got %g", y[j]);
}

Test(naive, fully_masked_row_gives_nan)
{
    const float x[2] = {-INFINITY, -INFINITY};
    float y[2];
    run_softmax(x, y, 2);
    cr_assert(isnan(y[0]) && isnan(y[1]));
}

/* S and P: two matrices of seqlen_q x seqlen_k floats, whatever head_dim is. */
Test(naive, attention_stores_two_matrices_of_scores)
{
    for (size_t n = 16; n <= 4096; n *= 4) {
        struct problem p = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                            .seqlen_q = n, .seqlen_k = n, .head_dim = 8, .head_dim_v = 8};
        cr_assert(variant_scratch(&naive, &p) == 2 * n * n * sizeof(float));
    }
}

Test(naive, scores_within_the_promise_are_right)
{
    const float x[3] = {60, 59, -60};
    float y[3];
    run_softmax(x, y, 3);
    /* 1 / (1 + 1/e), 1 / (1 + e), e^-120 / (1 + 1/e) = 0 in float relative to 1 */
    cr_assert(fabsf(y[0] - 0.731058579f) < 1e-6f && fabsf(y[1] - 0.268941421f) < 1e-6f);
    cr_assert(y[2] >= 0 && y[2] < 1e-37f);
}
