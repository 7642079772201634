/* scores.h: the fold of a row of scores, and softmax from it. */
#ifndef SCORES_H
#define SCORES_H

#include "monoid.h"
#include "score.h"

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

/* y (n) = softmax of x (n), which is part of a row whose fold is `all`.  The unit, a masked row,
 * gives 0. */
static inline void write_softmax(const float *x, float *y, size_t n, struct se all)
{
    for (size_t j = 0; j < n; j++) y[j] = all.l == 0 ? 0 : expf(x[j] - all.m) / all.l;
}

/* The same for log-softmax, x - m - log l from left to right: m + log l would lose log l when m is
 * large.  The unit gives -INFINITY. */
static inline void write_logsoftmax(const float *x, float *y, size_t n, struct se all)
{
    float log_l = logf(all.l);
    for (size_t j = 0; j < n; j++) y[j] = all.l == 0 ? -INFINITY : x[j] - all.m - log_l;
}

#endif
