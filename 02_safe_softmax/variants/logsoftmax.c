/* Log-softmax, safe: the logarithm of every probability without forming a probability.
 *
 *     LSE(x) = m + log sum_t exp(x_t - m),    m = max_t x_t
 *     logsoftmax(x)_j = x_j - LSE(x), computed (x_j - m) - log(l)
 *
 * log(softmax(x)_j) would be log(0) for every score more than 104 below the maximum. */
#include "harness.h"

/* Logarithm of the softmax: y_j = (x_j - m) - log(l), in this order, because m + log(l)
 * would round away log(l) when m is large.  All -INFINITY stays -INFINITY. */
static float logsoftmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum */
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    if (m == -INFINITY) m = 0; /* all are masked */

    /* loop 2: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += expf(x[j] - m);

    /* loop 3: subtract */
    float log_l = l == 0 ? 0 : logf(l);
    for (size_t j = 0; j < n; j++) y[j] = x[j] - m - log_l;
    return m + log_l;
}

static struct cost cost(const struct problem *p) { return cost_of_rows(p, 4, 1); }

const struct variant log_recompute = {
    .name = "log_recompute", .idea = "x - m - log(l) in three loops",
    .group = IN_ASIDES, SAFE_ON_CPU, .cost = cost,
    .by_row = {{OP_LOGSOFTMAX, logsoftmax_row}},
};
