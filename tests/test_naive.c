/* Stage 1: right inside its promise, and wrong outside it in exactly the announced way. */
#include <criterion/criterion.h>

#define main unused_main_of_stage_1
#define stage naive_stage
#include "../01_naive/variants.c"
#undef main
#undef stage

/* y_0 of a row of n scores, and whether all n are NaN. */
static float first_of(const float *x, size_t n, int *all_nan)
{
    static float y[1024];
    softmax_row(x, y, n);
    *all_nan = 1;
    for (size_t j = 0; j < n; j++) *all_nan &= isnan(y[j]);
    return y[0];
}

/* The largest float x with a finite exp(x) is 0x1.62e42ep6: ln(2^128) = 88.722839... lies
 * between it and its successor. */
Test(naive, float_overflows_at_the_first_failing_score)
{
    int nan;
    cr_assert(first_failing_score(softmax_row, 1) == 0x1.62e430p6f);
    cr_assert(first_of((float[]){0x1.62e42ep6f}, 1, &nan) == 1);
    cr_assert((first_of((float[]){0x1.62e430p6f}, 1, &nan), nan), "inf / inf must show as NaN");
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
    float first = first_failing_score(softmax_row, 1024), x[1024];
    int nan;
    cr_assert(fabs((double)first - (128 - 10) * 0.69314718055994531) < 1e-4, "got %.9g", first);
    for (int j = 0; j < 1024; j++) x[j] = first;
    cr_assert(isfinite(expf(first)));
    cr_assert(first_of(x, 1024, &nan) == 0, "a finite term over an infinite sum is 0");
}

Test(naive, scores_below_minus_104_give_nan)
{
    int nan;
    cr_assert((first_of((float[]){-104, -105, -200}, 3, &nan), nan), "0/0 must show");
    cr_assert((first_of((float[]){-INFINITY, -INFINITY}, 2, &nan), nan), "fully masked");
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
