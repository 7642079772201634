/* softmax_row.c: exercise of stage 1, 10 points: softmax straight from its definition.
 *
 *     l   = sum_j exp(x_j)
 *     y_j = exp(x_j) / l
 *
 * Task: fill softmax_row().  It reads the row twice and writes it once.
 * May be assumed: every score lies between -60 and 60, or is -INFINITY (masked); at least
 * one is not masked; x and y do not overlap.  Use expf: exp would compute in double.
 *
 * Right or wrong:  make exercise 1 EX=softmax_row */
#include "harness.h"

/* Softmax of one row.
 *   x (n)  scores      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    /* Your code. */
    (void)x, (void)y, (void)n;
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
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
