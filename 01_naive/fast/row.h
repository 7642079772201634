/* row.h: one row of stage 1 in vectors, for simd.c and threads.c.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * The two loops of stage.c.  A vector holds LANES floats and one instruction works on all of
 * them.  vexp_up is the exponential of vexp.h: at most 1.02 ulp, infinite above 88.72. */
#ifndef ROW_H
#define ROW_H

#include "harness.h"
#include "problem/heads.h"
#include "vector/vexp.h"

/* Pass 1 of a row: sum_j exp(x_j).  Four sums, so that an addition need not wait for the one
 * before it.
 *   x (n) */
static inline float exp_sum(const float *x, size_t n)
{
    vfloat sum[UNROLL_MOST] = {{0}};
    size_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        UNROLL(u, 4, sum[u] += vexp_up(vload(x + j + u * LANES)));
    for (; j + LANES <= n; j += LANES) sum[0] += vexp_up(vload(x + j));
    if (j < n) sum[1] += vexp_up(vload_part(x + j, n - j, -INFINITY));
    return vsum(sum[0] + sum[1] + (sum[2] + sum[3]));
}

/* Pass 2: y_j = exp(x_j) / l.   x, y (n) */
static inline void exp_divide(const float *x, float *y, size_t n, float l)
{
    float scale = 1 / l;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) vstore(y + j, vexp_up(vload(x + j)) * scale);
    if (j < n) vstore_part(y + j, n - j, vexp_up(vload_part(x + j, n - j, 0)) * scale);
}

/* Softmax of one row; returns l.  All -INFINITY gives 0/0 = NaN. */
static inline float softmax_row(const float *x, float *y, size_t n)
{
    float l = exp_sum(x, n);
    exp_divide(x, y, n, l);
    return l;
}

/* Scores of query i against every key; -INFINITY where masked.
 *   q_i (head_dim)   k (seqlen_k, head_dim)   bias_i (seqlen_k) or NULL   s (seqlen_k) */
static inline void score_row(const struct problem *p, size_t i, const float *q_i, const float *k,
                      const float *bias_i, float *s)
{
    struct key_range keys = visible_keys(p, i);
    for (size_t j = 0; j < p->seqlen_k; j++) {
        s[j] = -INFINITY;
        if (j < keys.first || j >= keys.end) continue;
        if (bias_i && bias_i[j] == -INFINITY) continue;
        s[j] = p->scale * vdot(q_i, k + j * p->head_dim, p->head_dim) + (bias_i ? bias_i[j] : 0);
    }
}

/* o_i = sum_j p_j v_j.   p_i (seqlen_k)   v (seqlen_k, head_dim_v)   o_i (head_dim_v) */
static inline void weighted_sum(const struct problem *p, const float *p_i, const float *v, float *o_i)
{
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < p->seqlen_k; j++)
        vaxpy(1, o_i, p_i[j], v + j * p->head_dim_v, p->head_dim_v);
}

/* The three steps S, P, O, each over all queries of a head before the next, as in stage.c;
 * the queries of a step are shared by `threads` threads. */
static inline void attention_with(const struct problem *p, const struct arrays *a, int threads)
{
    size_t n = p->seqlen_k;
    float *s = a->workspace, *prob = s + p->seqlen_q * n;
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
#pragma omp parallel num_threads(threads)
        {
#pragma omp for schedule(static)
            for (size_t i = 0; i < p->seqlen_q; i++)
                score_row(p, i, h.q + i * p->head_dim, h.k, bias_row(p, &h, i), s + i * n);
#pragma omp for schedule(static)
            for (size_t i = 0; i < p->seqlen_q; i++)
                h.lse[i] = logf(softmax_row(s + i * n, prob + i * n, n));
#pragma omp for schedule(static)
            for (size_t i = 0; i < p->seqlen_q; i++)
                weighted_sum(p, prob + i * n, h.v, h.o + i * p->head_dim_v);
        }
    }
}

/* As stage.c: vectors and threads move the same bytes. */
static inline struct cost cost(const struct problem *p)
{
    if (p->op == OP_ATTENTION) {
        double n = score_count(p);
        return (struct cost){.passes = 5, .bytes = 5 * 4 * n + attention_io_bytes(p),
                             .exps = 2 * n};
    }
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 3, .bytes = 3 * 4 * n, .exps = 2 * n, .rfo_bytes = 4 * n};
}

#endif
