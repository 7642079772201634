/* online_step.c: exercise of stage 3, 10 points: one step of the online softmax.
 *
 *     m_new = max(m, x)
 *     l     = l * exp(m - m_new) + exp(x - m_new)
 *
 * Task: fill online_step(), which takes one score into the state (m, l) of a row.
 * May be assumed: nothing about the scores.  The empty state is m = -INFINITY, l = 0; a
 * masked score (-INFINITY) changes nothing, also when it is the first; a NaN makes l NaN
 * for good.
 *
 * Half of the points: cases wide, shift_200, shift_up, low, large, mask_first, mask_row.
 * Right or wrong:  make exercise 3 EX=online_step */
#include "harness.h"

/* The running state of a row: m = max of the scores so far, l = sum of exp(x - m). */
struct state { float m, l; };

/* The state after one more score. */
static struct state online_step(struct state s, float x)
{
    /* Your code. */
    (void)x;
    return s;
}

/* Softmax of one row, two loops.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    struct state s = {-INFINITY, 0};
    for (size_t j = 0; j < n; j++) s = online_step(s, x[j]);
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? 0 : expf(x[j] - s.m) / s.l;
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

static const struct variant exercise = {
    .name = "online_step",
    .idea = "maximum and denominator in one loop",
    .device = ON_CPU,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .does = {{OP_SOFTMAX, softmax}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 3,
    .name = "exercises/online_step",
    .idea = "maximum and denominator in one loop",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
