/* rows.h: the state (m, l) of the two rows that a thread owns, and how it changes: plain
 * arithmetic, compiled for the GPU and for the CPU, which executes the rungs that use
 * it.  o lies apart and is scaled by the factors alpha that these functions give. */
#ifndef HOPPER_ROWS_H
#define HOPPER_ROWS_H

#include "gpu/exp2.h"

struct rows {
    float m[2];  /* the maximum that weights refer to, not scaled; -INFINITY: no key yet */
    float mc[2]; /* m c, and 0 for m = -INFINITY so that no inf - inf arises */
    float l[2];  /* sum of the weights that this thread computed */
};

/* m = max(m, top) of both rows; alpha is the factor by which what was summed before must
 * shrink.  Two empty states combine to an empty one with factor 1. */
static HOST_DEVICE __forceinline__ void update_maximum(struct rows &r, const float (&top)[2],
                                                       float c, float (&alpha)[2])
{
    for (int i = 0; i < 2; i++) {
        float m_new = fmaxf(r.m[i], top[i]);
        alpha[i] = r.m[i] == m_new ? 1.0f : exp2_fast((r.m[i] - m_new) * c);
        r.m[i] = m_new;
        r.mc[i] = m_new == -INFINITY ? 0.0f : m_new * c;
        r.l[i] *= alpha[i];
    }
}

/* ---- the maximum of the first block (rung 13) ----
 * The largest weight of a row's first block is 2^-FIRST_EXPONENT, which leaves the exponent's
 * fraction 20 bits.  A block is repaired when l passes LIMIT, which leaves o room for |v| up
 * to 2^40. */
#define FIRST_EXPONENT 14.0f
#define LIMIT 0x1p76f
#define NO_SCORE -1e30f /* mc of a row without a score: its first one passes any limit */

/* m = max(m, top) with a weight of 2^-FIRST_EXPONENT there. */
static HOST_DEVICE __forceinline__ void refer_to(struct rows &r, const float (&top)[2],
                                                 float c, float (&alpha)[2])
{
    update_maximum(r, top, c, alpha);
    for (int i = 0; i < 2; i++)
        r.mc[i] = r.m[i] == -INFINITY ? NO_SCORE : r.mc[i] + FIRST_EXPONENT;
}

/* Whether the weights of a row have outgrown m. */
static HOST_DEVICE __forceinline__ bool has_outgrown(const struct rows &r)
{
    return r.l[0] > LIMIT || r.l[1] > LIMIT;
}

/* Takes the block that was just summed out of l again, and refers to its maxima.
 *   l  the rows' l before the block */
static HOST_DEVICE __forceinline__ void repair_rows(struct rows &r, const float (&l)[2],
                                                    const float (&top)[2], float c,
                                                    float (&alpha)[2])
{
    r.l[0] = l[0], r.l[1] = l[1];
    refer_to(r, top, c, alpha);
}

#endif
