/* merge_weights.h: two answers for the same query, of different keys, become one.  Plain
 * arithmetic, compiled for the GPU (answer.h) and for the CPU (the library).
 *
 * An answer is o, already divided by its l, and lse = m + log l.  That is the element (o, 1, lse)
 * of the monoid (stage 4's monoid.h).  A query that has seen no key has the unit, lse = -inf. */
#pragma once

#include "monoid.h"

/* The merged answer: o = old o_old + part o_part, and its lse. */
struct merge_weights { float old, part, lse; };

static inline HOST_DEVICE struct se answer_as_se(float lse)
{
    struct se x = {lse, lse == -INFINITY ? 0.0f : 1.0f};
    return x;
}

/* Merging with the unit changes no bit: the weights are then 1 and 0. */
static inline HOST_DEVICE struct merge_weights merge_weights_of(float old_lse, float part_lse)
{
    struct se old = answer_as_se(old_lse), part = answer_as_se(part_lse);
    struct se both = se_merge(old, part);
    struct merge_weights w = {0.0f, 0.0f, se_lse(both)};
    if (old.l > 0.0f) w.old = se_factor(old.m, both.m) / both.l;
    if (part.l > 0.0f) w.part = se_factor(part.m, both.m) / both.l;
    return w;
}

/* An element of the merged o.  A part of weight 0 is left out: what stands there does not matter. */
static inline HOST_DEVICE float merge_element(struct merge_weights w, float old, float part)
{
    if (w.old == 0.0f) return w.part == 0.0f ? 0.0f : w.part * part;
    return w.part == 0.0f ? w.old * old : w.old * old + w.part * part;
}

/* A sink is one more key, of value 0: the row's o and lse, merged with it.
 * Returns the factor of o. */
static inline HOST_DEVICE float add_sink(float *lse, float sink)
{
    const struct se keys = answer_as_se(*lse), all = se_merge(keys, se_lift(sink));
    *lse = se_lse(all);
    return se_divide(all, keys.l > 0.0f ? se_factor(keys.m, all.m) : 0.0f);
}
