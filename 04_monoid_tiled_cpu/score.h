/* score.h: the score of a query and a key; the fold of a row of scores, and softmax from
 * it. */
#ifndef SCORE_H
#define SCORE_H

#include "monoid.h"
#include "stage.h"

/* s = scale * q_i . k_j + bias_ij, or -INFINITY where key j is masked, whatever k_j
 * (head_dim) holds.  The sum is in whatever order suits the vector units; with 8 partial
 * sums the last additions, one after the other, are few. */
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

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* The fold of the ones over x (n): maximum and denominator. */
static inline struct se fold_scores(const float *x, size_t n)
{
    struct se all = se_unit();
    for (size_t j = 0; j < n; j++) {
        all = se_merge(all, se_lift(x[j]));
        watch("m", j, all.m);
        watch("l", j, all.l);
    }
    return all;
}

/* y (n) = softmax of x (n), which is part of a row whose fold is `all`.  The unit, a
 * masked row, gives 0. */
static inline void write_softmax(const float *x, float *y, size_t n, struct se all)
{
    for (size_t j = 0; j < n; j++) y[j] = all.l == 0 ? 0 : expf(x[j] - all.m) / all.l;
}

/* The same for log-softmax, x - m - log l from left to right: m + log l would lose log l
 * when m is large.  The unit gives -INFINITY. */
static inline void write_logsoftmax(const float *x, float *y, size_t n, struct se all)
{
    float log_l = logf(all.l);
    for (size_t j = 0; j < n; j++) y[j] = all.l == 0 ? -INFINITY : x[j] - all.m - log_l;
}

#endif
