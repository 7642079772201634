/* softmax_row.c: exercise of stage 1, 10 points: softmax straight from its definition.
 *
 *     l   = sum_j exp(x_j)
 *     y_j = exp(x_j) / l
 *
#if TASK == 0
 * Task: fill softmax_row().  It reads the row twice and writes it once.
#elif TASK == 1
 * Task: fill softmax_row().  It writes exp(x_j) into y and returns l; softmax() divides.  It reads
 * the row once and writes it once.
#endif
 * May be assumed: every score lies between -60 and 60, or is -INFINITY (masked); at least
 * one is not masked; x and y do not overlap.  Use expf: exp would compute in double.
 *
 * Right or wrong:  make exercise 1 EX=softmax_row */
/* forms of the task
 *     Softmax of one row.         | Softmax of one row, not yet divided.  Returns l.
 *     y (n)  probabilities        | y (n)  exp(x)
 *     static void softmax_row(    | static float softmax_row( */
#include "harness.h"

/* >>> your part: functions, #include and #define may be added here */
/* Softmax of one row.
 *   x (n)  scores      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    /* solution begin */
#if TASK == 0
    /* loop 1: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += expf(x[j]);

    /* loop 2: divide */
    for (size_t j = 0; j < n; j++) y[j] = expf(x[j]) / l;
#else
    float l = 0;
    for (size_t j = 0; j < n; j++) l += y[j] = expf(x[j]);
    return l;
#endif
    /* skeleton
    // Your code.
    (void)x, (void)y, (void)n;
#if TASK == 1
    return 0;
#endif
    solution end */
}
/* <<< end of your part */

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
#if TASK == 0
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
#else
    for (size_t i = 0; i < p->rows; i++) {
        float l = softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
        for (size_t j = 0; j < p->cols; j++) y[i * p->cols + j] /= l;
    }
#endif
}

static const struct variant exercise = {
    .name = "softmax_row",
    .idea = "exp(x) / sum exp(x)",
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = 60,
    .does = {{OP_SOFTMAX, softmax}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 1,
    .name = "exercises/softmax_row",
    .idea = "exp(x) / sum exp(x)",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
