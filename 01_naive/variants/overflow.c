/* Where the naive softmax stops being right: the table that the trace of this stage shows.
 *
 * exp(x) passes the largest number of a type at x = ln(largest): 88.72 for float32, 11.09
 * for float16, 88.72 for bfloat16, whose spacing there is 0.5.  The sum of n terms passes
 * it ln(n) earlier. */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "problem/dtype.h"
#include "vector/half.h"

/* Does the row of n scores x come out as n weights 1 / n? */
static int row_survives(function_of_row *softmax_row, size_t n, float x)
{
    float *row = malloc(2 * n * sizeof *row), y = NAN;
    for (size_t j = 0; row && j < n; j++) row[j] = x;
    if (row) {
        softmax_row(row, row + n, n);
        y = row[n];
    }
    free(row);
    return y > 0;
}

/* Is the denominator of n equal scores x finite when every operation rounds to dtype? */
static int sum_survives(enum dtype dtype, size_t n, float x)
{
    float term = dtype_round(dtype, expf(x)), l = 0;
    for (size_t j = 0; j < n; j++) {
        float l_new = dtype_round(dtype, l + term);
        if (!isfinite(l_new)) return 0;
        if (l_new == l) break; /* the sum is so large that a term no longer counts */
        l = l_new;
    }
    return 1;
}

/* The least score x for which a row of n scores that are all x is wrong: of floats by softmax_row,
 * of 16 bits by a sum in which every number is rounded.  Halves the interval between 1, which
 * survives, and 128, which does not.  Positive floats sort like their bits, and so do those of a
 * 16-bit type: its values are the floats whose low bits (13 of float16, 16 of bfloat16) are 0. */
static float first_failing(function_of_row *softmax_row, enum dtype dtype, size_t n)
{
    uint32_t step = dtype == F32 ? 1u : dtype == F16 ? 1u << 13 : 1u << 16;
    uint32_t good = f32_bits(1.0f) / step, bad = f32_bits(128.0f) / step;
    while (bad - good > 1) {
        uint32_t middle = good + (bad - good) / 2;
        float x = f32_from_bits(middle * step);
        int survives = dtype == F32 ? row_survives(softmax_row, n, x) : sum_survives(dtype, n, x);
        if (survives) good = middle;
        else bad = middle;
    }
    return f32_from_bits(bad * step);
}

/* A table of the first failing scores of rows of 1, 1024 and 1024^2. */
void print_first_failing_scores(function_of_row *softmax_row)
{
    printf("the first score at which n equal scores overflow, by type:\n");
    printf("%9s %12s %12s %12s\n", "n", "f32", "f16", "bf16");
    for (size_t n = 1; n <= (size_t)1 << 20; n *= 1024)
        printf("%9zu %12.6f %12.6f %12.6f\n", n, first_failing(softmax_row, F32, n),
               first_failing(softmax_row, F16, n), first_failing(softmax_row, BF16, n));
}
