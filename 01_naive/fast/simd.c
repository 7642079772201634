/* simd.c: stage 1 on the vectors of one core.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * The two loops of stage.c; a core does LANES elements at once (row.h). */
#include "row.h"

static void softmax_simd(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, (float *)a->y + i * p->cols, p->cols);
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

const struct variant naive_simd = {
    .name = "simd",
    .idea = "vectors with our own exponential",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = 60,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_simd}, {OP_ATTENTION, attention_simd}},
};
