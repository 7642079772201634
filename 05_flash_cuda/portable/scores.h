/* scores.h: bias and mask of a warp's scores, the C fragments s[MT][Bc / 8][4] of rungs 4 to 6
 * (swizzled_tile.h says what W is).  Scores are not scaled: the exponent's multiply-add does
 * that. */
#ifndef SCORES_H
#define SCORES_H

#include "attention.h"

/* s = s + bias / scale (the scale is multiplied in later), and -inf where the bias is,
 * whatever Q and K hold.
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
                    s[i][n][c] = b == -INFINITY ? b : s[i][n][c] + __fdividef(b, x.scale);
                }
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

#endif
