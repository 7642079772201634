/* simd.c: stage 2 on the vectors of one core.
 *
 *     softmax(x)_j = exp(x_j - m) / sum_t exp(x_t - m),    m = max_t x_t
 * The three loops of stage.c, the exponential evaluated in the second and in the third; a
 * core does LANES elements at once (row.h). */
#include "row.h"

/* Three loops, the exponential evaluated in the second and in the third. */
static void softmax_row_recompute(const float *x, float *y, size_t n)
{
    float m = shift_of(largest(x, n)), l = exp_sum(x, n, m), scale = l == 0 ? 0 : 1 / l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, weight(vload(x + j), m) * scale);
    if (j < n) vstore_part(y + j, n - j, weight(vload_part(x + j, n - j, 0), m) * scale);
}

static void softmax_simd(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row_recompute(x + i * p->cols, (float *)a->y + i * p->cols, p->cols);
}

static void logsoftmax_simd(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    for (size_t i = 0; i < p->rows; i++)
        logsoftmax_row(x + i * p->cols, (float *)a->y + i * p->cols, p->cols);
}

static void attention_simd(const struct problem *p, const struct arrays *a)
{
    attention_with(p, a, 1);
}

/* S and P of one head. */
static size_t workspace(const struct problem *p)
{
    size_t scores = size_times(p->seqlen_q, p->seqlen_k);
    return p->op == OP_ATTENTION ? size_times(scores, 2 * sizeof(float)) : 0;
}

const struct variant safe_simd = {
    .name = "simd",
    .idea = "vectors; exp taken twice",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .cost = cost_recompute,
    .does = {{OP_SOFTMAX, softmax_simd}, {OP_LOGSOFTMAX, logsoftmax_simd},
             {OP_ATTENTION, attention_simd}},
};
