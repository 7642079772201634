/* simd.c: stage 2 on the vectors of one core.
 *
 *     softmax(x)_j = exp(x_j - m) / sum_t exp(x_t - m),    m = max_t x_t
 * The three loops of stage.c, the exponential evaluated in the second and in the third; a
 * core does LANES elements at once (row.h). */
#include "row.h"

/* Three loops, the exponential evaluated in the second and in the third. */
static float softmax_row(const float *x, float *y, size_t n)
{
    float m = largest(x, n), l = exp_sum(x, n, shift_of(m));
    divide(x, y, n, (struct state){m, l});
    return l;
}

const struct variant safe_simd = {
    .name = "simd", .idea = "vectors; exp taken twice",
    .group = IN_FAST, SAFE_ON_CPU, .cost = cost_recompute,
    .by_row = {{OP_SOFTMAX, softmax_row}, {OP_LOGSOFTMAX, logsoftmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
    .stores_scores = 1,
};
