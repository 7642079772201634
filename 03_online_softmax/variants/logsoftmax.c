/* Log-softmax, online: the maximum and the denominator in one loop.
 *
 *     m_new = max(m, x_j),   l = l * exp(m - m_new) + exp(x_j - m_new)
 *     logsoftmax(x)_j = (x_j - m) - log(l)
 *
 * Two loops where the safe form needs three. */
#include "harness.h"

/* The running state of a row, as in stage.c. */
struct state { float m, l; };

static struct state online_step(struct state s, float x)
{
    if (x == -INFINITY) return s;
    float m_new = x > s.m ? x : s.m;
    s.l = s.l * expf(s.m - m_new) + expf(x - m_new);
    s.m = m_new;
    return s;
}

/* Logarithm of the softmax: y_j = (x_j - m) - log(l), in this order, because m + log(l)
 * would round away log(l) when m is large.  All -INFINITY stays -INFINITY. */
static void logsoftmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum and denominator */
    struct state s = {-INFINITY, 0};
    for (size_t j = 0; j < n; j++) s = online_step(s, x[j]);

    /* loop 2: subtract */
    float log_l = logf(s.l);
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? -INFINITY : x[j] - s.m - log_l;
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
    return (struct cost){.passes = 3, .bytes = 3 * 4 * n, .exps = 2 * n, .rfo_bytes = 4 * n};
}

extern const struct variant log_online;
const struct variant log_online = {
    .name = "log_online",
    .idea = "x - m - log(l) in two loops",
    .group = IN_ASIDES,
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = cost,
    .does = {{OP_LOGSOFTMAX, logsoftmax}},
};
