/* safe_row.c: exercise of stage 2, 10 points: softmax that cannot overflow.
 *
 *     m   = max_j x_j
 *     l   = sum_j exp(x_j - m)
 *     y_j = exp(x_j - m) / l
 *
 * Task: fill softmax_row().
 * May be assumed: x and y do not overlap.
 * Scores may be 1e30 or -1e5.  Any number of them may be -INFINITY (masked).  If all are masked,
 * y = 0.  A NaN in a row makes that row NaN.
 *
 * Half of the points: cases wide, range_80, shift_200, low, large, vast, mask_row.
 * Right or wrong:  make exercise 2 EX=safe_row */
/* forms of the task
 *     max_j x_j               | min_j x_j
 *     exp(x_j - m)            | exp(m - x_j)
 *     x and y do not overlap. | the x_j are energies: the least is the most probable.  y is x.
 *     Scores may be 1e30 or -1e5. | Energies may be -1e30 or 1e5.
 *     scores;                 | energies;
 *     (n)  probabilities      | (n)  probabilities, may be x
 *     -INFINITY               | INFINITY
 *     x[j] > m                | x[j] < m
 *     expf(x[j] - m)          | expf(m - x[j])
 *     softmax_row(x + i * p->cols, | softmax_row(negated(x + i * p->cols, y + i * p->cols, p->cols), */
#include "harness.h"

/* >>> your part: functions, #include and #define may be added here */
/* Softmax of one row, three loops.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    /* solution begin */
    /* loop 1: maximum; a row without visible scores has none, and 0 does as well */
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    if (m == -INFINITY) m = 0;

    /* loop 2: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += expf(x[j] - m);

    /* loop 3: divide */
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : expf(x[j] - m) / l;
    /* skeleton
    // Your code.
    (void)x, (void)y, (void)n;
    solution end */
}
/* <<< end of your part */

#if TASK == 1
/* y = -x.  Returns y.   x, y (n) */
static float *negated(const float *x, float *y, size_t n)
{
    for (size_t j = 0; j < n; j++) y[j] = -x[j];
    return y;
}

#endif
static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static const struct variant exercise = {
    .name = "safe_row",
    .idea = "softmax with the maximum subtracted",
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .does = {{OP_SOFTMAX, softmax}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 2,
    .name = "exercises/safe_row",
    .idea = "softmax with the maximum subtracted",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
