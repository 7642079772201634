/* row.h: one row of stage 3 in vectors, for the files of this folder.
 *
 *     m_new = max(m, x_j),   l = l * exp(m - m_new) + exp(x_j - m_new)
 * Every lane of a vector is a stream of its own with its own m and l.  At the end the lanes
 * are merged by the same rule.  vector/softmax_rows.h has loop 2 and a second way to do loop 1. */
#pragma once

#include "harness.h"
#include "vector/head.h"
#include "vector/softmax_rows.h"

/* A state in every lane. */
struct vstate { vfloat m, l; };

/* What stands in for m in a difference: 0 where nothing was seen, because
 * -INFINITY - -INFINITY is NaN. */
INLINE vfloat shift_of_lanes(vfloat m) { return vclear(vequal(m, vset(-INFINITY)), m); }

/* Online step of every lane.  Of the two exponentials of the rule one is exp(0) = 1, so one
 * exp(-|x - m|) does: it rescales l when x is the new maximum, and is added when it is not. */
INLINE struct vstate online_step(struct vstate s, vfloat x)
{
    vmask grows = vless(s.m, x);
    vfloat low = vselect(grows, s.m, x), high = vselect(grows, x, s.m);
    vfloat e = vexp2((low - shift_of_lanes(high)) * VEXP_LOG2E), one = vset(1);
    s.l = vfma(s.l, vselect(grows, e, one), vselect(grows, one, e));
    s.m = high;
    return s;
}

/* The lanes merged: m = max m_i,  l = sum l_i exp(m_i - m). */
static inline struct state merge_lanes(struct vstate s)
{
    struct state row = {vlargest(s.m), 0};
    row.l = vsum(s.l * weight(s.m, shift_of(row.m)));
    return row;
}

/* Pass 1 of a row.   x (n) */
static inline struct state online_row(const float *x, size_t n)
{
    struct vstate s = {vset(-INFINITY), vset(0)};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) s = online_step(s, vload(x + j));
    if (j < n) s = online_step(s, vload_part(x + j, n - j, -INFINITY));
    return merge_lanes(s);
}

/* Every row, one after the other. */
static inline void each_row(const struct problem *p, const struct arrays *a, first_pass *first,
                     second_pass *second)
{
    const float *x = a->x;
    float *y = a->y;
    size_t n = p->cols;
    for (size_t i = 0; i < p->rows; i++)
        second(x + i * n, y + i * n, n, first(x + i * n, n));
    vstream_end();
}

/* Attention of one query in one loop over blocks of keys; no score outlives its block.
 *   o (head_dim_v)
 * Returns lse.  Masked keys are left out; if there is no other, o = 0, lse = -INFINITY. */
static inline float attention_row(const struct head *h, size_t i, float *o)
{
    enum { KEYS = 64 };
    float s[KEYS], m = -INFINITY, l = 0;
    size_t n = visible(h, i), dv = h->head_dim_v;
    for (size_t d = 0; d < dv; d++) o[d] = 0;
    for (size_t j0 = 0; j0 < n; j0 += KEYS) {
        size_t n_keys = n - j0 < KEYS ? n - j0 : KEYS;
        vector_scores(h, i, j0, n_keys, s);
        struct state block = online_row(s, n_keys);
        float m_new = block.m > m ? block.m : m, shift = m_new == -INFINITY ? 0 : m_new;
        float factor = sexp(m - shift);
        l = l * factor + block.l * sexp((block.m == -INFINITY ? shift : block.m) - shift);
        for (size_t d = 0; d < dv; d++) o[d] *= factor;
        for (size_t j = 0; j < n_keys; j++) {
            if (s[j] == -INFINITY) continue; /* v_j may hold NaN */
            vaxpy(o, sexp(s[j] - shift), v_row(h, j0 + j), dv);
        }
        m = m_new;
    }
    for (size_t d = 0; d < dv; d++) o[d] = l == 0 ? 0 : o[d] / l;
    return m + logf(l);
}

static inline void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, o_row(h, i));
}

/* x is read twice, y written once. */
static inline struct cost cost(const struct problem *p)
{
    if (p->op == OP_ATTENTION) return cost_of_scores(p, 0, 2);
    return cost_of_rows(p, 3, p->op == OP_LOGSOFTMAX ? 1 : 2);
}

/* Non-temporal stores read nothing unasked. */
static inline struct cost cost_streaming(const struct problem *p)
{
    struct cost c = cost(p);
    c.rfo_bytes = 0;
    return c;
}

static inline int is_large(const struct problem *p) { return p->rows * p->cols >= STREAM_FROM; }

static inline struct cost cost_streaming_large(const struct problem *p)
{
    return p->op == OP_SOFTMAX && is_large(p) ? cost_streaming(p) : cost(p);
}
