/* score.h: what the plain attention of stages 1 to 4 gives to the softmax.
 *
 * Kernels for speed form many such scores at once: stages 1 to 3 in vector/head.h, stage 4 in fast/fold.h, stage 5 in
 * portable/scores.h, split_kv/ and hopper/score_terms.h, where the exponential's multiply-add scales them. */
#pragma once

#include "stage.h"

/* What score() does, in the words of harness.h: the first variant of each stage supports it. */
#define SCORE_FEATURES BASIC_FEATURES

/* The score of query i and key j, whose row is k_j.
 *     s = scale * q_i . k_j + bias_ij, or -INFINITY where key j is masked */
static inline float score_of(const struct head *h, size_t i, const float *k_j, size_t j)
{
    const float *q_i = q_row(h, i), bias = bias_of(h, i, j);
    if (bias == -INFINITY) return -INFINITY; /* masked, whatever k_j holds */
    float dot = 0;
#ifdef EIGHT_SUMS /* the compiler may keep 8 sums, of every 8th product, and add them at the end */
#pragma omp simd reduction(+ : dot) simdlen(8)
#endif
    for (size_t d = 0; d < h->head_dim; d++) dot += q_i[d] * k_j[d];
    return h->scale * dot + bias;
}

static inline float score(const struct head *h, size_t i, size_t j)
{
    return score_of(h, i, k_row(h, j), j);
}
