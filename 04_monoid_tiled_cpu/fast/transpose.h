/* transpose.h: 16 x 16 numbers of 32 bits, rows to columns: pairs of bf16, and floats.
 * On vectors of 16 it takes four rounds of 16 exchanges, otherwise a loop. */
#pragma once

#include "vector/half.h"
#include "vector/vector.h"

#if LANES == 16
/* x[i] is row i; becomes column i.  The rounds exchange single numbers, pairs, fours, eights. */
INLINE void transpose16(vfloat *x)
{
    vfloat y[4 * UNROLL_MOST];
    UNROLL(i, 8, y[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
           y[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]));
    UNROLL(i, 4, UNROLL(h, 2, __m512d low = _mm512_castps_pd(y[4 * i + h]);
           __m512d high = _mm512_castps_pd(y[4 * i + 2 + h]);
           x[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
           x[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high))));
    UNROLL(i, 4, vfloat a = _mm512_shuffle_f32x4(x[i], x[4 + i], 0x88);
           vfloat b = _mm512_shuffle_f32x4(x[i], x[4 + i], 0xdd);
           vfloat c = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0x88);
           vfloat d = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0xdd);
           y[i] = _mm512_shuffle_f32x4(a, c, 0x88);
           y[8 + i] = _mm512_shuffle_f32x4(a, c, 0xdd);
           y[4 + i] = _mm512_shuffle_f32x4(b, d, 0x88);
           y[12 + i] = _mm512_shuffle_f32x4(b, d, 0xdd));
    UNROLL(i, 8, x[2 * i] = y[2 * i]; x[2 * i + 1] = y[2 * i + 1]);
}
#endif

/* to (16 pairs, 16 rows) from 16 rows of 32 bf16.   strides in elements of each array */
INLINE void transpose_pairs(const uint16_t *from, size_t stride, uint32_t *to, size_t to_stride)
{
#if LANES == 16
    vfloat x[6 * UNROLL_MOST];
    UNROLL(h, 2, UNROLL(i, 8, size_t r = 8 * h + i;
           x[8 * h + i] = vload((const float *)(const void *)(from + r * stride))));
    transpose16(x);
    UNROLL(h, 2, UNROLL(i, 8, size_t r = 8 * h + i;
           vstore((float *)(void *)(to + r * to_stride), x[8 * h + i])));
#else
    for (size_t t = 0; t < 16; t++)
        for (size_t i = 0; i < 16; i++)
            to[t * to_stride + i] = from[i * stride + 2 * t] |
                                    (uint32_t)from[i * stride + 2 * t + 1] << 16;
#endif
}

/* to (16 columns, 16 pairs) from 32 rows of 16 bf16: two rows that follow each other are a
 * pair. */
INLINE void transpose_pairs_of_rows(const uint16_t *from, size_t stride, uint32_t *to)
{
#if LANES == 16
    vfloat x[6 * UNROLL_MOST];
    UNROLL(h, 2, UNROLL(i, 8, const uint16_t *low = from + (size_t)(8 * h + i) * 2 * stride;
           __m512i l = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)low));
           __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(low + stride)));
           x[8 * h + i] = _mm512_castsi512_ps(_mm512_or_si512(l, _mm512_slli_epi32(u, 16)))));
    transpose16(x);
    UNROLL(h, 2, UNROLL(i, 8, vstore((float *)(void *)(to + (8 * h + i) * 16), x[8 * h + i])));
#else
    for (size_t c = 0; c < 16; c++)
        for (size_t r = 0; r < 16; r++)
            to[c * 16 + r] = from[2 * r * stride + c] |
                             (uint32_t)from[(2 * r + 1) * stride + c] << 16;
#endif
}

/* to (n, 16) = factor times n floats, n <= 16, of 16 rows, from number `at` on. */
INLINE void transpose_rows(const float *const *rows, size_t at, size_t n, float factor, float *to,
                           size_t to_stride)
{
#if LANES == 16
    vfloat x[6 * UNROLL_MOST];
    UNROLL(h, 2, UNROLL(i, 8, const float *row = rows[8 * h + i] + at;
           x[8 * h + i] = n == 16 ? vload(row) : vload_part(row, n, 0)));
    transpose16(x);
    UNROLL(h, 2, UNROLL(i, 8, if (8 * h + i < n)
           vstore(to + (8 * h + i) * to_stride, x[8 * h + i] * factor)));
#else
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < 16; i++) to[t * to_stride + i] = rows[i][at + t] * factor;
#endif
}
