/* isolated_v.h: O += P V when V holds NaN or inf and some keys are masked.
 *
 * On a tensor core a masked key takes part with p = 0, and 0 NaN = NaN.  Here a masked key is
 * left out.  Slow and rare: rung 3 takes this way for a block of keys in which a thread has
 * seen NaN or inf. */
#ifndef ISOLATED_V_H
#define ISOLATED_V_H

#include "portable/mma_sync.h"
#include "portable/padded_tile.h"

/* Bit 4 n + c: s[n][c] is the score of a masked key. */
template <int Bc>
static __forceinline__ __device__ uint32_t masked_keys(const float (&s)[Bc / 8][4])
{
    uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < Bc / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            bits |= (uint32_t)(s[n][c] == -INFINITY) << (4 * n + c);
    return bits;
}

/* O += P V.  P goes through shared memory; each lane sums its elements of O one key at a time
 * and leaves masked keys out.
 *   masked  bit 4 n + c: the key of p[n][c] is masked
 *   scratch (rows of the block, Bc)  shared memory that nobody reads any more */
template <enum dtype T, int D, int Bc>
static __device__ void add_pv_isolated(float (&o)[D / 8][4], const float (&p)[Bc / 8][4],
                                       uint32_t masked, const uint16_t *v,
                                       uint16_t *scratch)
{
    const uint16_t MASKED = 0xffff; /* a NaN that no arithmetic makes */
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    scratch += threadIdx.x / 32 * 16 * Bc; /* this warp's 16 rows */
#pragma unroll
    for (int n = 0; n < Bc / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            scratch[(g + c / 2 * 8) * Bc + 8 * n + 2 * t + c % 2] =
                masked >> (4 * n + c) & 1 ? MASKED : (uint16_t)pack<T>(p[n][c], 0.0f);
    __syncwarp();
    for (int j = 0; j < Bc; j++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                uint16_t weight = scratch[(g + c / 2 * 8) * Bc + j];
                uint16_t value = v[j * (D + PAD) + 8 * n + 2 * t + c % 2];
                if (weight != MASKED) o[n][c] += widen<T>(weight) * widen<T>(value);
            }
}

#endif
