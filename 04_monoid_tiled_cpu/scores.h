/* scores.h: softmax of a row of scores from the fold of the row. */
#ifndef SCORES_H
#define SCORES_H

#include "row.h"

/* The fold of the ones over x (n): maximum and denominator. */
static inline struct se fold_scores(const float *x, size_t n)
{
    struct se s = se_unit();
    for (size_t j = 0; j < n; j++) s = se_merge(s, se_lift(x[j]));
    return s;
}

/* y (n) = softmax or log-softmax of x (n), whose fold is s.  log-softmax is x - m - log l
 * from left to right: m + log l would lose log l when m is large.  The unit, a masked
 * row, gives 0, or -INFINITY. */
static inline void write_row(const float *x, size_t n, struct se s, int log_of, float *y)
{
    float log_l = logf(s.l);
    for (size_t j = 0; j < n; j++)
        if (s.m == -INFINITY) y[j] = log_of ? -INFINITY : 0.0f;
        else y[j] = log_of ? x[j] - s.m - log_l : expf(x[j] - s.m) / s.l;
}

/* Scores are read twice and probabilities written once.  The fold over one-hot vectors
 * rescales y as well when the maximum rises, log n times for scores in random order. */
static inline struct cost cost(const struct problem *p)
{
    double n = (double)p->rows * p->cols;
    struct cost c = {.passes = 3, .bytes = 12 * n, .exps = 3 * n, .rfo_bytes = 4 * n};
    return p->op == OP_ATTENTION ? row_cost(p) : c;
}

#endif
