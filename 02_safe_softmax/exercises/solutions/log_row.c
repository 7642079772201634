/* log_row.c: exercise of stage 2, 10 points: log-softmax.
 *
 *     y_j = log softmax(x)_j = x_j - m - log(l),   m = max_j x_j,  l = sum_j exp(x_j - m)
 *
 * Task: fill logsoftmax_row() without taking the logarithm of a probability: that would
 * be -INFINITY wherever the probability underflows.  The order of the two subtractions
 * matters; the case logsoftmax-shift_up shows it.
 * May be assumed: x and y do not overlap.  A masked score (-INFINITY) gives -INFINITY,
 * and so does a row of masked scores only.  A NaN in a row makes that row NaN.
 *
 * Half of the points: cases wide, range_80, shift_up, low, large, vast, mask_row.
 * Time: 30 minutes.
 * Hint: how many digits has a float near 10000, and how large is log(l)?
 * Hint: with all scores masked l is 0 and log(l) is -INFINITY; treat that row apart.
 * Right or wrong:  make exercise 2 EX=log_row */
/* forms of the task
 *     log softmax(x)_j = x_j - m - log(l) | -log softmax(x)_j = log(l) - (x_j - m)
 *     gives -INFINITY, | gives INFINITY,
 *     logarithms of probabilities | minus the logarithms of probabilities
 *     l == 0 ? -INFINITY : x[j] - m - log_l | l == 0 ? INFINITY : log_l - (x[j] - m)
 *     x - m - log l | log l - (x - m) */
#include "course/exercise.h"

/* >>> your part: functions, #include and #define may be added here */
/* Log-softmax of one row.
 *   x (n)  scores; -INFINITY means masked      y (n)  logarithms of probabilities */
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
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? -INFINITY : x[j] - m - log_l;
    /* skeleton
    // Your code.
    solution end */
}
/* <<< end of your part */

static float row(const float *x, float *y, size_t n)
{
    logsoftmax_row(x, y, n);
#if TASK == 1
    for (size_t j = 0; j < n; j++) y[j] = -y[j];
#endif
    return 0;
}

PROGRAM(2, log_row, "x - m - log l",
        .max_score = INFINITY, .masked_rows = 1, .by_row = {{OP_LOGSOFTMAX, row}})
