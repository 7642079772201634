/* reload.c: stage 2 with every exponential computed once, stored, and read again.
 *
 *     m = max_j x_j     y_j = exp(x_j - m), l = sum_j y_j     y_j = y_j / l
 *
 * The same three loops and the same bits as stage.c.  It saves one exponential per element
 * and moves one float more.  Softmax only: in attention it would change nothing else. */
#include "harness.h"

/* Softmax of one row; loop 2 stores the exponentials, loop 3 rescales them.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * Returns lse = m + log(l).  A row that is all -INFINITY gives y = 0, lse = -INFINITY.
 * Reads 3n floats, writes 2n: one more than computing them again. */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum */
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    if (m == -INFINITY) m = 0; /* all are masked; -INFINITY - -INFINITY would be NaN */

    /* loop 2: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += y[j] = expf(x[j] - m);

    /* loop 3: divide */
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : y[j] / l;
    return m + logf(l);
}

/* x is read twice, y written, read and written. */
static struct cost cost(const struct problem *p) { return cost_of_rows(p, 5, 1); }

const struct variant reload = {
    .name = "reload", .idea = "exp stored, rescaled in the third loop",
    .group = IN_ASIDES, SAFE_ON_CPU, .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
};
