/* score.h: the score of a query and a key, for all files of this stage. */
#ifndef SCORE_H
#define SCORE_H

#include "stage.h"

/* s = scale * q_i . k_j + bias_ij, or -INFINITY where key j is masked, whatever k_j (head_dim)
 * holds.  The sum is in whatever order suits the vector units. */
static inline float score_of(const struct head *h, size_t i, const float *k_j, size_t j)
{
    const float *q_i = q_row(h, i), bias = bias_of(h, i, j);
    float dot = 0;
    if (bias == -INFINITY) return -INFINITY;
#pragma omp simd reduction(+ : dot)
    for (size_t d = 0; d < h->head_dim; d++) dot = fmaf(q_i[d], k_j[d], dot);
    return h->scale * dot + bias;
}

static inline float score(const struct head *h, size_t i, size_t j)
{
    return score_of(h, i, k_row(h, j), j);
}

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

#endif
