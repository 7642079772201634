/* row.h: one row of stage 2 in vectors, for simd.c, overlapped.c and threads.c.
 *
 *     softmax(x)_j = exp(x_j - m) / sum_t exp(x_t - m),    m = max_t x_t
 * The loops of stage.c.  A vector holds LANES floats and one instruction works on all of
 * them. */
#pragma once

#include "harness.h"
#include "vector/head.h"
#include "vector/softmax_rows.h"

#define AT_ONCE VEXP_AT_ONCE /* vectors in flight */

/* The largest x (n), -INFINITY if there is none; a NaN is passed over and found by the sum. */
static inline float largest(const float *x, size_t n)
{
    vfloat m[UNROLL_MOST];
    UNROLL(u, 4, m[u] = vset(-INFINITY));
    size_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        UNROLL(u, 4, m[u] = vmax(vload(x + j + u * LANES), m[u]));
    for (; j + LANES <= n; j += LANES) m[0] = vmax(vload(x + j), m[0]);
    if (j < n) m[1] = vmax(vload_part(x + j, n - j, -INFINITY), m[1]);
    return vlargest(vmax(vmax(m[0], m[1]), vmax(m[2], m[3])));
}

/* sum_j exp(x_j - m), LANES terms at a time.   x (n) */
static inline float exp_sum(const float *x, size_t n, float m)
{
    vfloat sum = {0};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) sum += weight(vload(x + j), m);
    if (j < n) sum += weight(vload_part(x + j, n - j, -INFINITY), m);
    return vsum(sum);
}

/* The same, and y_j = exp(x_j - m), with AT_ONCE sums. */
static inline float exp_store(const float *x, float *y, size_t n, float m)
{
    vfloat sum[UNROLL_MOST] = {{0}};
    size_t j = 0;
    for (; j + AT_ONCE * LANES <= n; j += AT_ONCE * LANES) {
        vfloat e[UNROLL_MOST];
        UNROLL(u, AT_ONCE, e[u] = (vload(x + j + u * LANES) - m) * VEXP_LOG2E);
        vexp2_lockstep(AT_ONCE, e);
        UNROLL(u, AT_ONCE, vstore(y + j + u * LANES, e[u]); sum[u] += e[u]);
    }
    for (; j + LANES <= n; j += LANES) {
        vfloat e = weight(vload(x + j), m);
        vstore(y + j, e);
        sum[0] += e;
    }
    if (j < n) {
        vfloat e = weight(vload_part(x + j, n - j, -INFINITY), m);
        vstore_part(y + j, n - j, e);
        sum[1] += e;
    }
    UNROLL(u, AT_ONCE - 1, sum[0] += sum[u + 1]);
    return vsum(sum[0]);
}

/* y_j = y_j / l; 0 when l is 0, the row without visible scores.   y (n) */
static inline void rescale(float *y, size_t n, float l)
{
    float scale = scale_of(l);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vload(y + j) * scale);
    for (; j < n; j++) y[j] *= scale;
}

/* Three loops, the exponential evaluated and stored in the second. */
static inline struct state softmax_state(const float *x, float *y, size_t n)
{
    switch ((n + LANES - 1) / LANES) {
    case 1: return row_in_registers(1, x, y, n, 0);
    case 2: return row_in_registers(2, x, y, n, 0);
    case 3: return row_in_registers(3, x, y, n, 0);
    case 4: return row_in_registers(4, x, y, n, 0);
    }
    float m = shift_of(largest(x, n)), l = exp_store(x, y, n, m);
    rescale(y, n, l);
    return (struct state){m, l};
}

static inline float softmax_lse(const float *x, float *y, size_t n)
{
    struct state row = softmax_state(x, y, n);
    return shift_of(row.m) + logf(row.l);
}

static inline float logsoftmax_row(const float *x, float *y, size_t n)
{
    float m = largest(x, n), l = exp_sum(x, n, shift_of(m));
    subtract(x, y, n, (struct state){m, l});
    return l;
}

static inline void attention_head(const struct head *h) { stored_attention(h, softmax_lse); }

/* Recomputing moves 4 floats per element, reloading 5; attention reloads. */
static inline struct cost cost_recompute(const struct problem *p)
{
    if (p->op == OP_ATTENTION) return cost_of_scores(p, 7, 1);
    return cost_of_rows(p, 4, p->op == OP_LOGSOFTMAX ? 1 : 2);
}

static inline struct cost cost_reload(const struct problem *p)
{
    return p->op == OP_SOFTMAX ? cost_of_rows(p, 5, 1) : cost_recompute(p);
}
