/* simd_score.h: the score of a query and a key in vectors, for the rung simd and the asides. */
#pragma once

#include "stage.h"

/* The score of query i and key j, which may lie elsewhere: k_j (head_dim).
 *     s = scale * q_i . k_j + bias_ij, or -INFINITY where key j is masked
 * The pragma lets the compiler keep 8 sums, of every 8th product, and add them at the end. */
static inline float score_of(const struct head *h, size_t i, const float *k_j, size_t j)
{
    const float *q_i = q_row(h, i), bias = bias_of(h, i, j);
    if (bias == -INFINITY) return -INFINITY; /* masked, whatever k_j holds */
    float dot = 0;
#pragma omp simd reduction(+ : dot) simdlen(8)
    for (size_t d = 0; d < h->head_dim; d++) dot += q_i[d] * k_j[d];
    return h->scale * dot + bias;
}

static inline float score(const struct head *h, size_t i, size_t j)
{
    return score_of(h, i, k_row(h, j), j);
}
