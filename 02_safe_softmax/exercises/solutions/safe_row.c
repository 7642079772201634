/* safe_row.c: exercise of stage 2, 10 points: softmax that cannot overflow.
 *
 *     m   = min_j x_j
 *     y_j = exp(m - x_j) / sum_t exp(m - x_t)
 *
 * Task: fill softmax_row().  The x_j are energies: the least is the most probable, INFINITY means
 * masked.
 * May be assumed: y may be x.  Energies may be -1e30 or 1e5.
 * Any number of them may be masked.  If all are, y = 0.  A NaN in a row makes that row NaN.
 *
 * Point: cases wide, range_80, shift_200, low, large, vast, mask_row.
 * Time: 30 minutes.
 * Hint: the same three loops as in stage 2: the extreme, the sum, the quotients.
 * Hint: a row that is all masked has no extreme, and infinity - infinity is NaN.
 * Hint: y may be x: do not read x[j] after y[j] is written.
 * Right or wrong:  make exercise 2 EX=safe_row */
#include <string.h>

#include "course/exercise.h"

/* Softmax of one row, three loops.
 *   x (n)  energies; may be y      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    /* solution begin */
    float m = INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = x[j] < m ? x[j] : m;
    if (m == INFINITY) m = 0;
    for (size_t j = 0; j < n; j++) l += expf(m - x[j]);
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : expf(m - x[j]) / l;
    /* solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    memcpy(c->y[0], c->x[0], (size_t)c->n[0] * sizeof(float));
    softmax_row(c->y[0], c->y[0], (size_t)c->n[0]);
}
