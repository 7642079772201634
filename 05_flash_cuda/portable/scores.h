/* scores.h: bias and mask of a warp's scores, the C fragments s[MT][Bc / 8][4] of rungs 3 to 6
 * (swizzled_tile.h says what W is).  Without a bias scores are not scaled: the exponent's
 * multiply-add does that. */
#pragma once

#include "attention.h"
#include "portable/float_arithmetic.h"
#include "portable/mma_sync.h"

/* What a score is multiplied by in the exponent.  With a bias it is scaled before. */
template <class W> static __forceinline__ __device__ float unit_of(const struct attention &x)
{
    return W::BIAS ? 1.0f : x.scale;
}

/* s = scale s + bias, and -inf where the bias is, whatever Q and K hold.
 *   row  query of the lane's first row      j0  first key of the block */
template <class W>
static __forceinline__ __device__ void add_bias(typename W::scores &s,
                                                const struct attention &x, int row,
                                                int j0)
{
    j0 += 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int query = row + 16 * i + 8 * (c / 2);
            const float *bias = x.bias + (size_t)query * x.seqlen_k + j0 + c % 2;
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
                if (query < x.seqlen_q && j0 + c % 2 + 8 * n < x.seqlen_k) {
                    float b = bias[8 * n];
                    s[i][n][c] = b == -INFINITY ? b : fmaf(s[i][n][c], x.scale, b);
                }
        }
}

/* The number that 2^(c s - base) refers row r of s to: c m, or 0 while no key was visible, since
 * -inf - -inf is NaN.  Far from 0, where only a bias leads (a mask of -1e30 in all of a row), the
 * rounding of c m alone would make 2^0 overflow or vanish: there m is subtracted first. */
template <class W>
static __forceinline__ __device__ float base_of(float (&s)[W::Bc / 8][4], int r, float m, float c)
{
    float base = m == -INFINITY ? 0.0f : m * c;
    if constexpr (W::BIAS)
        if (fabsf(base) > 0x1p20f) {
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++) s[n][2 * r] -= m, s[n][2 * r + 1] -= m;
            base = 0.0f;
        }
    return base;
}

/* s = c tanh(s / c) for 16-bit outputs.  With a cap as models have it, c - 2 c / (1 + e^(2 s / c)) is fast;
 * its error of 2^-22 c is too much for small scores, which a series takes with 2^-26 s up to c / 2. */
template <int N> static __forceinline__ __device__ void cap_scores(float (&s)[N][4], float c)
{
    if (c > 0x1p-20f && c <= 128.0f) {
        const float to_cap = 2.88539008f / c, to_x = 1.0f / c;
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            float &score = s[i / 4][i % 4];
            const float x = score * to_x, y = x * x;
            const float series = fmaf(y, fmaf(y, fmaf(y, fmaf(y, 0.0171350046f, -0.0529860722f), 0.133247792f),
                                              -0.333330694f), 0.999999987f);
            const float far = c - __fdividef(2.0f * c, 1.0f + exp2_fast(score * to_cap));
            score = fabsf(x) <= 0.5f ? score * series : far;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4 * N; i++) s[i / 4][i % 4] = capped(s[i / 4][i % 4], c);
    }
}

/* s = -inf where the key is masked. */
template <class W>
static __forceinline__ __device__ void mask_block(typename W::scores &s,
                                                  const struct attention &x, int row, int j0)
{
    const struct mask32 keys = keys_from(x.mask, j0 + 2 * (threadIdx.x % 4));
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int end = mask_keys(keys, row + 16 * i + 8 * (c / 2)).end;
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
                if (8 * n + c % 2 >= end) s[i][n][c] = -INFINITY;
        }
}
