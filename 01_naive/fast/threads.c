/* threads.c: stage 1 on all cores: a thread takes whole rows, or chunks of a long row.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * The two loops of row.h, on the threads of vector/softmax_rows.h; no maximum is subtracted: m = 0. */
#include "row.h"
#include "vector/softmax_rows.h"

static struct state first(const float *x, size_t n)
{
    return (struct state){0, exp_sum(x, n)};
}

static void second(const float *x, float *y, size_t n, struct state s)
{
    exp_divide(x, y, n, s.l);
}

static void softmax_threads(const struct problem *p, const struct arrays *a)
{
    rows_on_threads(p, a, first, second);
}

const struct variant naive_threads = {
    .name = "threads", .idea = "rows, or parts of one, on all cores",
    .all_cores = 1, NAIVE_FAST, .workspace = states_of_rows,
    .does = {{OP_SOFTMAX, softmax_threads}},
};
