/* softmax_row.c: exercise of stage 1, 10 points: softmax, and who divides.
 *
 *     l   = sum_j exp(x_j)
 *     y_j = exp(x_j) / l
 *
 * Task: fill softmax_row().  It writes exp(x_j) into y and returns l; the judge divides.  It reads the
 * row once and writes it once.
 * May be assumed: every score lies between -60 and 60, or is -INFINITY (masked); at least
 * one is not masked; x and y do not overlap.  Use expf: exp would compute in double.
 *
 * Time: 20 minutes.
 * Hint: the lesson's stage.c computes every exponential twice.  Which array could keep it?
 * Hint: one loop: y[j] = expf(x[j]), and l grows by y[j].
 * Right or wrong:  make exercise 1 EX=softmax_row */
#include "course/exercise.h"

/* Softmax of one row, not yet divided.  Returns l.
 *   x (n)  scores      y (n)  exp(x) */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* solution begin */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += y[j] = expf(x[j]);
    return l;
    /* skeleton
    return 0;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    c->y[1][0] = softmax_row(c->x[0], c->y[0], (size_t)c->n[0]);
}
