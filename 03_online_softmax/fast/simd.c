/* simd.c: stage 3 on the vectors of one core: every lane keeps a state of its own (row.h). */
#include "row.h"

static void softmax_simd(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_row, divide);
}

static void logsoftmax_simd(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_row, subtract);
}

static void attention_simd(const struct problem *p, const struct arrays *a)
{
    attention_with(p, a, 1);
}

const struct variant online_simd = {
    .name = "simd",
    .idea = "each lane its own m and l",
    .group = IN_FAST,
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax_simd}, {OP_LOGSOFTMAX, logsoftmax_simd},
             {OP_ATTENTION, attention_simd}},
};
