/* score.h: the score of a key, for exercises that are about something else. */
#ifndef SCORE_H
#define SCORE_H

#include "stage.h"

/* The score of query i and key j; -INFINITY where the key is masked. */
static inline float score(const struct head *h, size_t i, size_t j)
{
    const float *q_i = q_row(h, i), *k_j = k_row(h, j), bias = bias_of(h, i, j);
    if (bias == -INFINITY) return -INFINITY;
    float dot = 0;
    for (size_t d = 0; d < h->head_dim; d++) dot += q_i[d] * k_j[d];
    return h->scale * dot + bias;
}

#endif
