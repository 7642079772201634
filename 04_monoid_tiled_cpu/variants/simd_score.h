/* simd_score.h: the score of a query and a key, for the asides. */
#ifndef SIMD_SCORE_H
#define SIMD_SCORE_H

#include "monoid.h"
#include "stage.h"

/* s = scale * q_i . k_j + bias_ij, or -INFINITY where key j is masked, whatever k_j (head_dim)
 * holds; summed as in rungs/5_simd.c. */
static inline float score_of(const struct head *h, size_t i, const float *k_j, size_t j)
{
    const float *q_i = q_row(h, i), bias = bias_of(h, i, j);
    float dot = 0;
    if (bias == -INFINITY) return -INFINITY;
#pragma omp simd reduction(+ : dot) simdlen(8)
    for (size_t d = 0; d < h->head_dim; d++) dot = fmaf(q_i[d], k_j[d], dot);
    return h->scale * dot + bias;
}

static inline float score(const struct head *h, size_t i, size_t j)
{
    return score_of(h, i, k_row(h, j), j);
}

#endif
