/* first_block.h: weights that refer to the maximum of the first block of keys (rung 13). */
#pragma once

#include "wgmma_softmax.h"

/* The largest weight of a row's first block is 2^-FIRST_EXPONENT, which leaves the exponent's
 * fraction 20 bits.  A block is repaired when l passes LIMIT, which leaves o room for |v| up
 * to 2^40. */
#define FIRST_EXPONENT 14.0f
#define LIMIT 0x1p76f
#define NO_SCORE -1e30f /* mc of a row without a score: its first one passes any limit */

/* m = max(m, top) with a weight of 2^-FIRST_EXPONENT there. */
static __device__ __forceinline__ void refer_to(struct rows &r, const float (&top)[2],
                                                float c, float (&alpha)[2])
{
    update_maximum(r, top, c, alpha);
    for (int i = 0; i < 2; i++)
        r.mc[i] = r.m[i] == -INFINITY ? NO_SCORE : r.mc[i] + FIRST_EXPONENT;
}

/* Whether the weights of a row have outgrown m. */
static __device__ __forceinline__ bool has_outgrown(const struct rows &r)
{
    return r.l[0] > LIMIT || r.l[1] > LIMIT;
}

/* Takes the block that was just summed out of l again, and refers to its maxima.
 *   l  the rows' l before the block */
static __device__ __forceinline__ void repair_rows(struct rows &r, const float (&l)[2],
                                                   const float (&top)[2], float c,
                                                   float (&alpha)[2])
{
    r.l[0] = l[0], r.l[1] = l[1];
    refer_to(r, top, c, alpha);
}

/* Whether the weights of some row of the warp have outgrown its reference (rung 13). */
static __device__ __forceinline__ bool any_has_outgrown(const struct rows &r)
{
    return __any_sync(0xffffffffu, SOFTMAX && has_outgrown(r));
}
