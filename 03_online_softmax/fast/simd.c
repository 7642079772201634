/* simd.c: stage 3 on the vectors of one core: every lane keeps a state of its own (row.h). */
#include "row.h"

static float softmax_row(const float *x, float *y, size_t n)
{
    struct state s = online_row(x, n);
    divide(x, y, n, s);
    return s.l;
}

static float logsoftmax_row(const float *x, float *y, size_t n)
{
    struct state s = online_row(x, n);
    subtract(x, y, n, s);
    return s.l;
}

const struct variant online_simd = {
    .name = "simd", .idea = "each lane its own m and l",
    .group = IN_FAST, SAFE_ON_CPU, .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}, {OP_LOGSOFTMAX, logsoftmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
};
