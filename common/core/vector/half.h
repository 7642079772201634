/* half.h: float16 and bfloat16 to float and back, in integer arithmetic, so that it needs
 * neither _Float16 nor __bf16 and compiles as C, as C++ and in the host part of CUDA.
 *
 *     float16   1 sign, 5 exponent, 10 fraction bits: 2^-24 to 65504, u = 2^-11
 *     bfloat16  1 sign, 8 exponent,  7 fraction bits: the upper half of a float, u = 2^-8
 *
 * Widening is exact.  Narrowing rounds to nearest, ties to even; what rounds beyond the
 * largest finite number becomes inf; denormals are kept; a NaN stays a quiet NaN with its
 * sign. */
#pragma once

#include <stdint.h>
#include <string.h>

/* The bits of x (f32_bits) and the float with bits u (f32_from_bits). */
static inline uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The value of the float16 with bits h, exactly.
 *   h  sign, exponent e, fraction f:  (1 + f/1024) 2^(e-15), or f 2^-24 when e = 0 */
static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu, fraction = h & 0x3ffu;
    if (exponent == 31) { /* inf, or NaN made quiet */
        uint32_t quiet = fraction ? 0x400000u : 0;
        return f32_from_bits(sign | 0x7f800000u | quiet | fraction << 13);
    }
    if (exponent == 0) { /* zero and denormals: an exact product */
        float x = (float)fraction * (1.0f / 16777216.0f);
        return f32_from_bits(sign | f32_bits(x));
    }
    return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* The float16 nearest to x, ties to even, as bits.  From 65520 on it is inf; up to and
 * including 2^-25 it is 0. */
static inline uint16_t float_to_half(float x)
{
    uint32_t u = f32_bits(x);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    uint32_t a = u & 0x7fffffffu; /* |x| */
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x1ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and inf */
    if (a >= 0x38800000u) { /* 2^-14: a normal float16; a carry raises the exponent */
        uint32_t odd = a >> 13 & 1u;
        return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + odd) >> 13));
    }
    if (a <= 0x33000000u) return sign; /* 2^-25, a tie, goes to the even 0 */
    uint32_t fraction = (a & 0x7fffffu) | 0x800000u, shift = 126 - (a >> 23);
    uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1);
    uint32_t tie = 1u << (shift - 1);
    return (uint16_t)(sign | (kept + (rest > tie || (rest == tie && (kept & 1u)))));
}

/* The value of the bfloat16 with bits b, exactly; a NaN is made quiet. */
static inline float bfloat_to_float(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    if ((u & 0x7fffffffu) > 0x7f800000u) u |= 0x400000u;
    return f32_from_bits(u);
}

/* The bfloat16 nearest to x, ties to even, as bits. */
static inline uint16_t float_to_bfloat(float x)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
