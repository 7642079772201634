/* feature.h: what a problem asks for beyond the plain operation: FEATURES of problem.h. */
#pragma once

#include "harness.h"

/* Are the rows of an array anywhere else than its shape says? */
static inline int has_strides(const struct problem *p)
{
    const struct strides s[] = {p->q_strides, p->k_strides, p->v_strides, p->o_strides};
    int any = 0;
    for (int i = 0; i < 4; i++) any |= s[i].batch || s[i].head || s[i].row;
    return any;
}

/* Has any of q, k and v 8 bits?  Then scales stand beside them. */
static inline int has_eight_bits(const struct problem *p)
{
    return dtype_size(v_dtype(p)) == 1 || dtype_size(p->dtype) == 1;
}

static inline int asks_for(const struct problem *p, unsigned feature)
{
#define FEATURE_CASE(bit, condition, words) case bit: return condition;
    switch (feature) {
        FEATURES(FEATURE_CASE)
    default: return 0;
    }
}

/* The features that p asks for, a mask; an operation on rows has none. */
static inline unsigned problem_features(const struct problem *p)
{
    unsigned features = 0;
    for (unsigned bit = 1; bit < FEATURES_END && !p->rows; bit <<= 1)
        if (asks_for(p, bit)) features |= bit;
    return features;
}

/* The words for the first feature in the mask `features` (not 0). */
static inline const char *feature_text(unsigned features)
{
#define FEATURE_WORDS(bit, condition, words) if (features & (bit)) return words;
    FEATURES(FEATURE_WORDS)
    return "a feature without a name";
}
