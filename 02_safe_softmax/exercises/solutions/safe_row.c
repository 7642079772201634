/* safe_row.c: exercise of stage 2, 10 points: softmax that cannot overflow.
 *
#if TASK == 0
 *     m   = min_j x_j
 *     y_j = exp(m - x_j) / sum_t exp(m - x_t)
 *
 * Task: fill softmax_row().  The x_j are energies: the least is the most probable, INFINITY means
 * masked.
 * May be assumed: y may be x.  Energies may be -1e30 or 1e5.
#else
 *     m   = max_j x_j
 *     y_j = exp(x_j - m),   l = sum_j y_j
 *
 * Task: fill softmax_row().  It writes the terms and returns their sum l; row() divides.
 * May be assumed: y may be x.  Scores may be 1e30 or -1e5; -INFINITY means masked.
#endif
 * Any number of them may be masked.  If all are, y = 0.  A NaN in a row makes that row NaN.
 *
 * Half of the points: cases wide, range_80, shift_200, low, large, vast, mask_row.
 * Time: 30 minutes.
 * Hint: the same three loops as in stage 2: the extreme, the sum, the quotients.
 * Hint: a row that is all masked has no extreme, and infinity - infinity is NaN.
 * Hint: y may be x: do not read x[j] after y[j] is written.
 * Right or wrong:  make exercise 2 EX=safe_row */
/* forms of the task
 *     energies; may be y      y (n)  probabilities | scores; may be y      y (n)  exp(x - m)    Returns l.
 *     If all are, y = 0.       | If all are, l = 0.
 *     static void softmax_row( | static float softmax_row(
 *     INFINITY;                | -INFINITY;
 *     == INFINITY              | == -INFINITY
 *     m = INFINITY,            | m = -INFINITY,
 *     x[j] < m                 | x[j] > m
 *     l += expf(m - x[j])      | l += y[j] = expf(x[j] - m) */
#include "course/exercise.h"

/* >>> your part: functions, #include and #define may be added here */
/* Softmax of one row, three loops.
 *   x (n)  energies; may be y      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    /* solution begin */
    float m = INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = x[j] < m ? x[j] : m;
    if (m == INFINITY) m = 0;
    for (size_t j = 0; j < n; j++) l += expf(m - x[j]);
#if TASK == 0
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : expf(m - x[j]) / l;
#else
    return l;
#endif
    /* skeleton
    // Your code.
#if TASK == 1
    return 0;
#endif
    solution end */
}
/* <<< end of your part */

static float row(const float *x, float *y, size_t n)
{
#if TASK == 0
    for (size_t j = 0; j < n; j++) y[j] = -x[j];
    softmax_row(y, y, n);
#else
    for (size_t j = 0; j < n; j++) y[j] = x[j];
    float l = softmax_row(y, y, n);
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : y[j] / l;
#endif
    return 0;
}

PROGRAM(2, safe_row, "softmax that cannot overflow",
        .max_score = INFINITY, .masked_rows = 1, .by_row = {{OP_SOFTMAX, row}})
