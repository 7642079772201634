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

/* Does p ask for the feature, one of enum feature? */
static inline int asks_for(const struct problem *p, unsigned feature)
{
    switch (feature) {
    case WITH_CAUSAL: return p->causal;
    case WITH_BIAS: return p->has_bias;
    case WITH_GROUPS: return p->heads_q != p->heads_kv;
    case WITH_HEAD_DIM_V: return p->head_dim_v != p->head_dim;
    case WITH_SHIFT: return (p->causal || p->has_window) && p->shift;
    case WITH_WINDOW: return p->has_window;
    case WITH_SOFTCAP: return p->softcap != 0;
    case WITH_SINKS: return p->has_sinks;
    case WITH_PACKED: return p->packed;
    case WITH_PAGES: return p->page_size != 0;
    case WITH_STRIDES: return has_strides(p);
    case WITH_LENGTHS: return p->has_lengths;
    case WITH_BIAS_STRIDES: return p->has_bias && p->has_bias_strides;
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
        {WITH_LENGTHS, "a number of keys of each sequence"},
    };
    enum { N_TEXTS = sizeof table / sizeof(struct words) };
    static_assert(FEATURES_END == 1 << N_TEXTS, "each feature has its words");
    for (int i = 0; i < N_TEXTS; i++)
        if (features & table[i].bit) return table[i].text;
    return "a feature without a name";
}

#endif
