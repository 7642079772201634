/* softmax_row.c: exercise of stage 1, 10 points: softmax, and who divides.
 *
 *     l   = sum_j exp(x_j)
 *     y_j = exp(x_j) / l
 *
#if TASK == 0
 * Task: fill softmax_row().  It writes exp(x_j) into y and returns l; row() divides.  It reads the
 * row once and writes it once.
#else
 * Task: fill softmax_row().  It writes exp(x_j) into y and returns 1 / l, with which row()
 * multiplies.  It reads the row once and writes it once.
#endif
 * May be assumed: every score lies between -60 and 60, or is -INFINITY (masked); at least
 * one is not masked; x and y do not overlap.  Use expf: exp would compute in double.
 *
 * Time: 20 minutes.
 * Hint: the lesson's stage.c computes every exponential twice.  Which array could keep it?
 * Hint: one loop: y[j] = expf(x[j]), and l grows by y[j].
 * Right or wrong:  make exercise 1 EX=softmax_row */
/* forms of the task
 *     Returns l.             | Returns 1 / l.
 *     return l;              | return 1 / l;
 *     y[j] /= l              | y[j] *= l
 *     return logf(l)         | return -logf(l) */
#include "course/exercise.h"

/* >>> your part: functions, #include and #define may be added here */
/* Softmax of one row, not yet divided.  Returns l.
 *   x (n)  scores      y (n)  exp(x) */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* solution begin */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += y[j] = expf(x[j]);
    return l;
    /* skeleton
    // Your code.
    return 0;
    solution end */
}
/* <<< end of your part */

static float row(const float *x, float *y, size_t n)
{
    float l = softmax_row(x, y, n);
    for (size_t j = 0; j < n; j++) y[j] /= l;
    return logf(l);
}

PROGRAM(1, softmax_row, "exp(x) / sum exp(x)",
        .max_score = 60, .by_row = {{OP_SOFTMAX, row}})
