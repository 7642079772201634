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
 * Right or wrong:  make exercise 2 EX=log_row */
#include "harness.h"

/* Log-softmax of one row.
 *   x (n)  scores; -INFINITY means masked      y (n)  logarithms of probabilities */
static void logsoftmax_row(const float *x, float *y, size_t n)
{
    /* Your code. */
    (void)x, (void)y, (void)n;
}

static void logsoftmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        logsoftmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static const struct variant exercise = {
    .name = "log_row",
    .idea = "x - m - log l",
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .does = {{OP_LOGSOFTMAX, logsoftmax}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 2,
    .name = "exercises/log_row",
    .idea = "x - m - log l",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
