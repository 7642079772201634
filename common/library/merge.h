/* merge.h: one row of the merge of two partial results, for the CPU and for a GPU's lane.
 *
 * A finished part (o, lse) is the element (o, 1, lse) of SE(R^dv) x SE(R) (monoid.h):
 *     (l, m) = (1, lse1) . (1, lse2),   lse = m + log(l),
 *     o      = exp(lse1 - m) / l  o1 + exp(lse2 - m) / l  o2 */
#ifndef MERGE_H
#define MERGE_H

#include "monoid.h"

/* What o1 and o2 are multiplied by, and lse. */
struct merge_weights { float w1, w2, lse; };

static inline HOST_DEVICE struct merge_weights merge_weights_of(float lse1, float lse2)
{
    struct se x, y, z;
    struct merge_weights w;
    x.m = lse1, x.l = lse1 == -INFINITY ? 0.0f : 1.0f;
    y.m = lse2, y.l = lse2 == -INFINITY ? 0.0f : 1.0f;
    z = se_merge(x, y);
    w.lse = se_lse(z);
    w.w1 = x.l == 0.0f ? 0.0f : se_factor(lse1, z.m) / z.l;
    w.w2 = y.l == 0.0f ? 0.0f : se_factor(lse2, z.m) / z.l;
    return w;
}

/* w1 o1 + w2 o2.  A part of weight 0 is left out: what stands there does not matter. */
static inline HOST_DEVICE float merge_element(struct merge_weights w, float o1, float o2)
{
    if (w.w1 == 0.0f) return w.w2 == 0.0f ? 0.0f : w.w2 * o2;
    return w.w2 == 0.0f ? w.w1 * o1 : w.w1 * o1 + w.w2 * o2;
}

#endif
