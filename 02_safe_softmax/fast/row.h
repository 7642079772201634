/* row.h: one row of stage 2 in vectors, for simd.c, overlapped.c and threads.c.
 *
 *     softmax(x)_j = exp(x_j - m) / sum_t exp(x_t - m),    m = max_t x_t
 * The loops of stage.c.  A vector holds LANES floats and one instruction works on all of
 * them.  The exponential is 2^((x - m) * log2(e)): one multiply-add less than vexp, and its
 * extra rounding is no larger than that of x - m. */
#ifndef ROW_H
#define ROW_H

#include "harness.h"
#include "vector/head.h"
#include "vector/vexp.h"

#define AT_ONCE VEXP_AT_ONCE /* vectors in flight */

/* exp(x - m) */
INLINE vfloat weight(vfloat x, float m)
{
    return vexp2((x - m) * VEXP_LOG2E);
}

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

/* The shift of a row: its maximum, or 0 when no score is visible. */
static inline float shift_of(float m)
{
    return m == -INFINITY ? 0 : m;
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
static inline void divide(float *y, size_t n, float l)
{
    float scale = l == 0 ? 0 : 1 / l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vload(y + j) * scale);
    for (; j < n; j++) y[j] *= scale;
}

/* y_j = x_j - m - log(l), in this order.   x, y (n) */
static inline void subtract(const float *x, float *y, size_t n, float m, float log_l)
{
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vload(x + j) - m - log_l);
    for (; j < n; j++) y[j] = x[j] - m - log_l;
}

/* Maximum (or 0) and denominator of a row. */
struct state { float m, l; };

/* The three loops over a row that stays in registers, `vectors` of them, a constant.  A
 * short row is over before loops and calls have paid off.
 *   x, y (n)  (vectors - 1) * LANES < n <= vectors * LANES */
INLINE struct state softmax_registers(int vectors, const float *x, float *y, size_t n)
{
    vfloat e[UNROLL_MOST], top = vset(-INFINITY), sum = {0};
    size_t last = (size_t)(vectors - 1) * LANES, rest = n - last;
    UNROLL(u, vectors - 1, e[u] = vload(x + u * LANES));
    e[vectors - 1] = rest == LANES ? vload(x + last) : vload_part(x + last, rest, -INFINITY);
    UNROLL(u, vectors, top = vmax(e[u], top));
    float m = shift_of(vlargest(top));
    UNROLL(u, vectors, e[u] = (e[u] - m) * VEXP_LOG2E);
    vexp2_lockstep(vectors, e);
    UNROLL(u, vectors, sum += e[u]);
    float l = vsum(sum), scale = l == 0 ? 0 : 1 / l;
    UNROLL(u, vectors - 1, vstore(y + u * LANES, e[u] * scale));
    if (rest == LANES) vstore(y + last, e[vectors - 1] * scale);
    else vstore_part(y + last, rest, e[vectors - 1] * scale);
    return (struct state){m, l};
}

/* Three loops, the exponential evaluated and stored in the second. */
static inline struct state softmax_state(const float *x, float *y, size_t n)
{
    switch ((n + LANES - 1) / LANES) {
    case 1: return softmax_registers(1, x, y, n);
    case 2: return softmax_registers(2, x, y, n);
    case 3: return softmax_registers(3, x, y, n);
    case 4: return softmax_registers(4, x, y, n);
    }
    float m = shift_of(largest(x, n)), l = exp_store(x, y, n, m);
    divide(y, n, l);
    return (struct state){m, l};
}

static inline float softmax_lse(const float *x, float *y, size_t n)
{
    struct state row = softmax_state(x, y, n);
    return row.m + logf(row.l);
}

static inline float logsoftmax_row(const float *x, float *y, size_t n)
{
    float m = shift_of(largest(x, n)), l = exp_sum(x, n, m);
    subtract(x, y, n, m, l == 0 ? 0 : logf(l));
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

#endif
