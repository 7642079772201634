/* log_row.c: exercise of stage 2, 10 points: log-softmax.
 *
 *     y_j = -log softmax(x)_j = log(l) - (x_j - m),   m = max_j x_j,  l = sum_j exp(x_j - m)
 *
 * Task: fill logsoftmax_row() without taking the logarithm of a probability: that would
 * be -INFINITY wherever the probability underflows.  The order of the two subtractions
 * matters; the case shift_up shows it.
 * May be assumed: x and y do not overlap.  A masked score (-INFINITY) gives INFINITY,
 * and so does a row of masked scores only.  A NaN in a row makes that row NaN.
 *
 * Point: cases wide, range_80, shift_up, low, large, vast, mask_row.
 * Time: 30 minutes.
 * Hint: how many digits has a float near 10000, and how large is log(l)?
 * Hint: with all scores masked l is 0 and log(l) is -INFINITY; treat that row apart.
 * Right or wrong:  make exercise 2 EX=log_row */
#include "course/exercise.h"

/* Log-softmax of one row.
 *   x (n)  scores; -INFINITY means masked      y (n)  minus the logarithms of probabilities */
static void logsoftmax_row(const float *x, float *y, size_t n)
{
    /* solution begin */
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    if (m == -INFINITY) m = 0;

    float l = 0;
    for (size_t j = 0; j < n; j++) l += expf(x[j] - m);

    /* masked apart: with l = 0 it would be -inf + inf */
    float log_l = logf(l);
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? INFINITY : log_l - (x[j] - m);
    /* solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    logsoftmax_row(c->x[0], c->y[0], (size_t)c->n[0]);
}
