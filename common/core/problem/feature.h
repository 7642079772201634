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

/* Each of enum feature: does p ask for it?  And words for it, to complete "variant NAME does not
 * support ...". */
#define FEATURES(X)                                                                       \
    X(WITH_CAUSAL, p->causal, "a causal mask")                                            \
    X(WITH_BIAS, p->has_bias, "a bias")                                                   \
    X(WITH_GROUPS, p->heads_q != p->heads_kv,                                             \
      "query heads that share a key head (heads_q != heads_kv)")                          \
    X(WITH_HEAD_DIM_V, p->head_dim_v != p->head_dim,                                      \
      "a head_dim_v that differs from head_dim")                                          \
    X(WITH_SHIFT, (p->causal || p->has_window) && p->shift, "a shifted mask")             \
    X(WITH_WINDOW, p->has_window, "a window")                                             \
    X(WITH_SOFTCAP, p->softcap != 0, "a soft cap")                                        \
    X(WITH_SINKS, p->has_sinks, "sinks")                                                  \
    X(WITH_PACKED, p->packed, "packed sequences (cu_seqlens)")                            \
    X(WITH_PAGES, p->page_size != 0, "keys in pages")                                     \
    X(WITH_STRIDES, has_strides(p), "strides")                                            \
    X(WITH_BIAS_STRIDES, p->has_bias && p->has_bias_strides,                              \
      "a bias of each batch or head")                                                     \
    X(WITH_LENGTHS, p->has_lengths, "a number of keys of each sequence")                  \
    X(WITH_INVARIANT, p->invariant, "bits of a query that depend on its keys alone")
#define FEATURE_COUNT(bit, condition, words) + 1
static_assert(FEATURES_END == 1 << (0 FEATURES(FEATURE_COUNT)), "each feature has its line");

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

#endif
