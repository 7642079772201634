/* Where the naive softmax stops being right: the table that the trace of this stage shows.
 *
 * exp(x) passes the largest number of a type at x = ln(largest): 88.72 for float32, 11.09
 * for float16, 88.72 for bfloat16, whose spacing there is 0.5.  The sum of n terms passes
 * it ln(n) earlier. */
#include "overflow.h"

#include "problem/half.h"

/* x rounded to the type, as a float. */
static float rounded(enum dtype dtype, float x)
{
    if (dtype == F32) return x;
    return dtype == F16 ? half_to_float(float_to_half(x)) : bfloat_to_float(float_to_bfloat(x));
}

/* Is the denominator of n equal scores x finite when every operation rounds to dtype? */
static int survives(enum dtype dtype, size_t n, float x)
{
    float term = rounded(dtype, expf(x)), l = 0;
    for (size_t j = 0; j < n; j++) {
        float l_new = rounded(dtype, l + term);
        if (!isfinite(l_new)) return 0;
        if (l_new == l) break; /* the sum is so large that a term no longer counts */
        l = l_new;
    }
    return 1;
}

/* Positive floats sort like their bits, and so are those of a 16-bit type: its
 * values are the floats whose low bits (13 of float16, 16 of bfloat16) are 0. */
float first_failing_score(enum dtype dtype, size_t n)
{
    uint32_t step = dtype == F32 ? 1u : dtype == F16 ? 1u << 13 : 1u << 16;
    uint32_t good = f32_bits(1.0f) / step, bad = f32_bits(128.0f) / step;
    while (bad - good > 1) {
        uint32_t middle = good + (bad - good) / 2;
        if (survives(dtype, n, f32_from_bits(middle * step))) good = middle;
        else bad = middle;
    }
    return f32_from_bits(bad * step);
}
