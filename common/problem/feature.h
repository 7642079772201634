/* feature.h: what a problem asks for beyond the plain operation, and the words for it. */
#ifndef FEATURE_H
#define FEATURE_H

#include "stage.h"

/* The features that p asks for, a mask of enum feature. */
static inline unsigned problem_features(const struct problem *p)
{
    unsigned features = 0;
    if (p->rows) return 0; /* an operation on rows has none */
    if (p->causal) features |= WITH_CAUSAL;
    if (p->has_bias) features |= WITH_BIAS;
    if (p->heads_q != p->heads_kv) features |= WITH_GROUPS;
    if (p->head_dim_v != p->head_dim) features |= WITH_HEAD_DIM_V;
    if (p->causal && p->shift) features |= WITH_SHIFT;
    return features;
}

/* Words for the first feature in the mask `features` (not 0), to complete "variant NAME
 * does not support ...": "a bias". */
static inline const char *feature_text(unsigned features)
{
    static const struct { unsigned bit; const char *text; } table[] = {
        {WITH_CAUSAL, "a causal mask"},
        {WITH_BIAS, "a bias"},
        {WITH_GROUPS, "query heads that share a key head (heads_q != heads_kv)"},
        {WITH_HEAD_DIM_V, "a head_dim_v that differs from head_dim"},
        {WITH_SHIFT, "a shifted causal mask"},
    };
    enum { N_TEXTS = sizeof table / sizeof table[0] };
    _Static_assert(FEATURES_END == 1 << N_TEXTS, "each feature has its words");
    for (int i = 0; i < N_TEXTS; i++)
        if (features & table[i].bit) return table[i].text;
    return "a feature without a name";
}

#endif
