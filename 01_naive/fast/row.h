/* row.h: one row of stage 1 in vectors, for simd.c and threads.c.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * The two loops of stage.c.  A vector holds LANES floats and one instruction works on all of
 * them.  vexp is the exponential of vexp.h: at most 1.02 ulp, infinite above 88.72. */
#pragma once

#include "harness.h"
#include "vector/head.h"
#include "vector/vexp.h"

/* Pass 1 of a row: sum_j exp(x_j).  Four sums, so that an addition need not wait for the one
 * before it.
 *   x (n) */
static inline float exp_sum(const float *x, size_t n)
{
    vfloat sum[UNROLL_MOST] = {{0}};
    size_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        UNROLL(u, 4, sum[u] += vexp(vload(x + j + u * LANES)));
    for (; j + LANES <= n; j += LANES) sum[0] += vexp(vload(x + j));
    if (j < n) sum[1] += vexp(vload_part(x + j, n - j, -INFINITY));
    return vsum(sum[0] + sum[1] + (sum[2] + sum[3]));
}

/* Pass 2: y_j = exp(x_j) / l.   x, y (n) */
static inline void exp_divide(const float *x, float *y, size_t n, float l)
{
    float scale = 1 / l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vexp(vload(x + j)) * scale);
    if (j < n) vstore_part(y + j, n - j, vexp(vload_part(x + j, n - j, 0)) * scale);
}

/* Softmax of one row; returns l.  All -INFINITY gives 0/0 = NaN. */
static inline float softmax_row(const float *x, float *y, size_t n)
{
    float l = exp_sum(x, n);
    exp_divide(x, y, n, l);
    return l;
}

/* The same; returns lse. */
static inline float softmax_lse(const float *x, float *y, size_t n)
{
    return logf(softmax_row(x, y, n));
}

static void attention_head(const struct head *h) { stored_attention(h, softmax_lse); }

/* What simd.c and threads.c say of themselves. */
#define NAIVE_FAST                                                                         \
    .group = IN_FAST, .types = TYPE(F32), .supports = BASIC_FEATURES, .max_score = 60,     \
    .isolates_v = 1, .cost = cost, .by_head = {{OP_ATTENTION, attention_head}},            \
    .stores_scores = 1

/* As stage.c: vectors and threads move the same bytes. */
static struct cost cost(const struct problem *p)
{
    return p->op == OP_ATTENTION ? cost_of_scores(p, 5, 2) : cost_of_rows(p, 3, 2);
}
