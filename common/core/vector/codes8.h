/* codes8.h: numbers in 8 bits to float and back, in integer arithmetic, as half.h has them in 16.
 *
 *     e4m3   1 sign, 4 exponent, 3 fraction bits: 2^-9 to 448, u = 2^-4.  No infinity; 0x7f and
 *            0xff are NaN (Micikevicius et al. 2022, FP8 Formats for Deep Learning)
 *     int8   -127 to 127: -128 is left out, so that a number and its negative are alike
 *
 * Widening is exact.  Narrowing rounds to nearest, ties to even, and saturates: what is larger,
 * infinity too, becomes the largest number.  A NaN stays one in e4m3, with its sign; in int8 it
 * becomes 0.  An array in 8 bits has scales beside it: the number meant is code * scale. */
#pragma once

#include <math.h>
#include <stddef.h>

#include "vector/half.h"

/* The value of the e4m3 with bits b, exactly.
 *   b  sign, exponent e, fraction f:  (1 + f/8) 2^(e-7), or f 2^-9 when e = 0 */
static inline float e4m3_to_float(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, exponent = b >> 3 & 15u, fraction = b & 7u;
    if ((b & 0x7fu) == 0x7fu) return f32_from_bits(sign | 0x7fc00000u);
    if (exponent == 0) return f32_from_bits(sign | f32_bits((float)fraction * (1.0f / 512.0f)));
    return f32_from_bits(sign | (exponent + 120) << 23 | fraction << 20);
}

/* The e4m3 nearest to x, ties to even, as bits. */
static inline uint8_t float_to_e4m3(float x)
{
    uint32_t u = f32_bits(x), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu; /* |x| */
    if (a > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); /* 448 and more */
    if (a < 0x3c800000u) { /* below 2^-6: floats near 2^14 are 2^-9 apart, so the sum rounds */
        uint32_t steps = f32_bits(f32_from_bits(a) + 16384.0f) - 0x46800000u;
        return (uint8_t)(sign | steps); /* 8 steps are the least normal number */
    }
    return (uint8_t)(sign | ((a - 0x3c000000u + 0x7ffffu + (a >> 20 & 1u)) >> 20));
}

/* The whole number nearest to x, ties to even, at most 127 in size. */
static inline int8_t float_to_int8(float x)
{
    float low = x > -127 ? x : -127, y = low < 127 ? low : 127;
    if (x != x) return 0;
    return (int8_t)(int32_t)(f32_bits(y + 12582912.0f) - 0x4b400000u); /* 1.5 * 2^23 */
}

/* x = H x / sqrt(d), H the Hadamard matrix of signs, d a power of two: rotated alike, q and k have the
 * same products.  A large column becomes a part of all.  In log2 d steps, each of sums and
 * differences of pairs. */
static inline void rotate_row(float *x, size_t d)
{
    for (size_t apart = 1; apart < d; apart *= 2)
        for (size_t c = 0; c < d; c++) {
            float a = x[c], b = x[c ^ apart];
            if (!(c & apart)) x[c] = a + b, x[c ^ apart] = a - b;
        }
    for (size_t c = 0; c < d; c++) x[c] /= sqrtf((float)d);
}
