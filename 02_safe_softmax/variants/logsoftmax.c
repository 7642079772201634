/* Log-softmax, safe: the logarithm of every probability without forming a probability.
 *
 *     LSE(x) = m + log sum_t exp(x_t - m),    m = max_t x_t
 *     logsoftmax(x)_j = x_j - LSE(x), computed (x_j - m) - log(l)
 *
 * log(softmax(x)_j) would be log(0) for every score more than 104 below the maximum. */
#include "harness.h"

/* The shift of a row: its maximum, or 0 when no score is visible. */
static float row_maximum(const float *x, size_t n)
{
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    return m == -INFINITY ? 0 : m;
}

/* Logarithm of the softmax: y_j = (x_j - m) - log(l), in this order, because m + log(l)
 * would round away log(l) when m is large.  All -INFINITY stays -INFINITY. */
static void logsoftmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum */
    float m = row_maximum(x, n);

    /* loop 2: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += expf(x[j] - m);

    /* loop 3: subtract */
    float log_l = l == 0 ? 0 : logf(l);
    for (size_t j = 0; j < n; j++) y[j] = x[j] - m - log_l;
}

static void logsoftmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        logsoftmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static struct cost cost(const struct problem *p)
{
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 4, .bytes = 4 * 4 * n, .exps = n, .rfo_bytes = 4 * n};
}

extern const struct variant log_recompute;
const struct variant log_recompute = {
    .name = "log_recompute",
    .idea = "x - m - log(l) in three loops",
    .group = IN_ASIDES,
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = cost,
    .does = {{OP_LOGSOFTMAX, logsoftmax}},
};
