/* convert.h: numbers of any type as floats and back, one by one and in rows. */
#pragma once

#include "harness.h"
#include "vector/codes8.h"
#include "vector/vector.h"

static inline float load_number(enum dtype type, const void *array, size_t i)
{
    if (type == F32) return ((const float *)array)[i];
    if (type == E4M3) return e4m3_to_float(((const uint8_t *)array)[i]);
    if (type == INT8) return ((const int8_t *)array)[i];
    uint16_t bits = ((const uint16_t *)array)[i];
    return type == F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

static inline void store_number(enum dtype type, void *array, size_t i, float x)
{
    if (type == F32) ((float *)array)[i] = x;
    else ((uint16_t *)array)[i] = type == F16 ? float_to_half(x) : float_to_bfloat(x);
}

/* LANES numbers from number `at` on, where has_vectors(type). */
INLINE int has_vectors(enum dtype type) { return type == F32 || type == BF16 || (type == F16 && HAS_HALF); }

INLINE vfloat load_vector(enum dtype type, const void *array, size_t at)
{
    if (type == BF16) return vload_bfloat((const uint16_t *)array + at);
#if HAS_HALF
    if (type == F16) return vload_half((const uint16_t *)array + at);
#endif
    return vload((const float *)array + at);
}

/* to (n) = the numbers `from` (n), exactly.  The compiler makes vectors of loops over one type. */
static inline void widen_row(enum dtype type, const void *from, size_t n, float *to)
{
    size_t c = 0;
    for (; type == E4M3 && c < n; c++) to[c] = load_number(E4M3, from, c);
    for (; type == INT8 && c < n; c++) to[c] = load_number(INT8, from, c);
    for (; has_vectors(type) && c + LANES <= n; c += LANES)
        vstore(to + c, load_vector(type, from, c));
    for (; type == F16 && c < n; c++) to[c] = load_number(F16, from, c);
    for (; c < n; c++) to[c] = load_number(type, from, c);
}

/* to (n) = factor * from (n) as numbers of the type, rounded to nearest, ties to even. */
static inline void narrow_row(enum dtype type, const float *from, float factor, size_t n, void *to)
{
    uint16_t *half = to;
    size_t c = 0;
#if LANES == 16
    for (; type == BF16 && c + LANES <= n; c += LANES)
        vstore_bfloat(half + c, vload(from + c) * factor);
#endif
    for (; type == BF16 && c < n; c++) half[c] = float_to_bfloat(from[c] * factor);
#if HAS_HALF
    for (; type == F16 && c + LANES <= n; c += LANES)
        vstore_half(half + c, vload(from + c) * factor);
#endif
    for (; c < n; c++) store_number(type, to, c, from[c] * factor);
}
