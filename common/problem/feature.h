/* feature.h: what a problem asks for beyond the plain operation, and the words for it. */
#ifndef FEATURE_H
#define FEATURE_H

#include "harness.h"

#include <assert.h>

/* Are the rows of an array anywhere else than its shape says? */
static inline int has_strides(const struct problem *p)
{
    const struct strides s[] = {p->q_strides, p->k_strides, p->v_strides, p->o_strides};
    int any = 0;
    for (int i = 0; i < 4; i++) any |= s[i].batch || s[i].head || s[i].row;
    return any;
}

/* The features that p asks for, a mask of enum feature. */
static inline unsigned problem_features(const struct problem *p)
{
    unsigned features = 0;
    if (p->rows) return 0; /* an operation on rows has none */
    if (p->causal) features |= WITH_CAUSAL;
    if (p->has_bias) features |= WITH_BIAS;
    if (p->heads_q != p->heads_kv) features |= WITH_GROUPS;
    if (p->head_dim_v != p->head_dim) features |= WITH_HEAD_DIM_V;
    if ((p->causal || p->has_window) && p->shift) features |= WITH_SHIFT;
    if (p->has_window) features |= WITH_WINDOW;
    if (p->softcap != 0) features |= WITH_SOFTCAP;
    if (p->has_sinks) features |= WITH_SINKS;
    if (p->packed) features |= WITH_PACKED;
    if (p->page_size) features |= WITH_PAGES;
    if (has_strides(p)) features |= WITH_STRIDES;
    if (p->has_bias && p->has_bias_strides) features |= WITH_BIAS_STRIDES;
    return features;
}

/* Words for the first feature in the mask `features` (not 0), to complete "variant NAME
 * does not support ...": "a bias". */
static inline const char *feature_text(unsigned features)
{
    struct words { unsigned bit; const char *text; };
    static const struct words table[] = {
        {WITH_CAUSAL, "a causal mask"},
        {WITH_BIAS, "a bias"},
        {WITH_GROUPS, "query heads that share a key head (heads_q != heads_kv)"},
        {WITH_HEAD_DIM_V, "a head_dim_v that differs from head_dim"},
        {WITH_SHIFT, "a shifted mask"},
        {WITH_WINDOW, "a window"},
        {WITH_SOFTCAP, "a soft cap"},
        {WITH_SINKS, "sinks"},
        {WITH_PACKED, "packed sequences (cu_seqlens)"},
        {WITH_PAGES, "keys in pages"},
        {WITH_STRIDES, "strides"},
        {WITH_BIAS_STRIDES, "a bias of each batch or head"},
    };
    enum { N_TEXTS = sizeof table / sizeof(struct words) };
    static_assert(FEATURES_END == 1 << N_TEXTS, "each feature has its words");
    for (int i = 0; i < N_TEXTS; i++)
        if (features & table[i].bit) return table[i].text;
    return "a feature without a name";
}

#endif
