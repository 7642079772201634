/* fold_rows.h: folds the keys of a few queries, row by row: a decode step. */
#pragma once

#include "fold.h"

/* o = o * factor + sum_j p_j v_j over n keys, `vectors` vectors of columns, a constant: the sum
 * stays in registers.  In memory, each key would wait for the store of the one before it.
 *   p (n)   v (n, stride) and o, at the first column */
INLINE void add_columns(int vectors, const float *p, size_t n, const float *v, size_t stride,
                        float factor, float *o)
{
    vfloat sum[UNROLL_MOST];
    UNROLL(c, vectors, sum[c] = vset(0));
    for (size_t j = 0; j < n; j++) {
        const float *v_j = v + j * stride;
        fetch_ahead(v_j, (size_t)vectors * VECTOR_BYTES, stride * sizeof(float));
        UNROLL(c, vectors, sum[c] = vfma(vset(p[j]), vload(v_j + c * LANES), sum[c]));
    }
    UNROLL(c, vectors, float *o_c = o + c * LANES;
           vstore(o_c, vfma(vload(o_c), vset(factor), sum[c])));
}

/* The same for all columns.   v (n, head_dim_v), rows `stride` apart   o (head_dim_v) */
static void add_values(const float *p, size_t n, const float *v, size_t stride,
                       size_t head_dim_v, float factor, float *o)
{
    size_t c = 0;
    for (; c + 8 * LANES <= head_dim_v; c += 8 * LANES)
        add_columns(8, p, n, v + c, stride, factor, o + c);
    for (; c + 4 * LANES <= head_dim_v; c += 4 * LANES)
        add_columns(4, p, n, v + c, stride, factor, o + c);
    for (; c + LANES <= head_dim_v; c += LANES)
        add_columns(1, p, n, v + c, stride, factor, o + c);
    for (; c < head_dim_v; c++) {
        float sum = 0;
        for (size_t j = 0; j < n; j++) sum = sfma(p[j], v[j * stride + c], sum);
        o[c] = sfma(o[c], factor, sum);
    }
}

/* s (n) = scores of n keys k and the query q (head_dim), -INFINITY up to a whole vector.
 *   k (n, head_dim), rows `stride` apart      bias (n) or NULL */
static void row_scores(const struct problem *p, const float *q, const float *k, size_t stride,
                       size_t n, const float *bias, float *s)
{
    for (size_t j = 0; j < n; j++, k += stride) {
        fetch_ahead(k, p->head_dim * sizeof(float), stride * sizeof(float));
        s[j] = vdot(q, k, p->head_dim) * p->scale;
    }
    for (size_t j = n; j % LANES; j++) s[j] = 0;
    if (p->softcap > 0) cap_scores(s, n, 1, p->softcap);
    for (size_t j = 0; bias && j < n; j++) /* a comparison, not a branch: a vector takes it */
        s[j] = bias[j] == -INFINITY ? -INFINITY : s[j] + bias[j];
    for (size_t j = n; j % LANES; j++) s[j] = -INFINITY;
}

/* Folds the keys of a chunk that row r sees, first .. first + n - 1, into its state.
 *   q (head_dim)   chunk: floats   s (n)  scratch */
static void fold_row(const struct tile *t, size_t r, const float *q, const struct keys *chunk,
                     size_t first, size_t n, struct state *x, float *s)
{
    const float *bias = bias_row(t, r, first), *k = chunk->k, *v = chunk->v;
    vfloat m_lanes = vset(x->m[r]), sum = {0};
    k += (first - chunk->j) * chunk->k_stride, v += (first - chunk->j) * chunk->v_stride;
    row_scores(t->p, q, k, chunk->k_stride, n, bias, s);
    for (size_t j = 0; j < n; j += LANES) m_lanes = vmax(vload(s + j), m_lanes);
    float m_new = vlargest(m_lanes), safe = m_new == -INFINITY ? 0 : m_new;
    for (size_t j = 0; j < n; j += LANES) {
        vfloat p_j = vexp2((vload(s + j) - safe) * LOG2E);
        vstore(s + j, p_j);
        sum += p_j;
    }
    float factor = sexp2((x->m[r] - safe) * LOG2E);
    x->m[r] = m_new;
    x->l[r] = sfma(x->l[r], factor, vsum(sum));
    add_values(s, n, v, chunk->v_stride, t->p->head_dim_v, factor, x->o + r * t->plan->cols);
}

/* Folds keys begin .. end - 1 into x for few rows: keys and values are read once, in the
 * order in which they lie in memory, which is what limits a decode step.  Those of 16 bits are
 * floats in the nearest cache before the rows meet them.
 * w.s holds the scores of one row and one chunk of keys, w.qt the queries (n_rows, head_dim). */
static void fold_rows(const struct tile *t, size_t begin, size_t end, struct state *x,
                      struct scratch *w)
{
    const struct problem *p = t->p;
    enum { CHUNK = 256, CHUNK_16 = 32 };
    size_t most = k_dtype(p) == F32 ? CHUNK : CHUNK_16, d = p->head_dim, dv = p->head_dim_v;
    struct query q = query_of(t, 0);
    for (size_t r = 0; r < t->n_rows; r++, q = next_query(t, q))
        as_floats(p->dtype, q_of(t, q), 0, 1, d, w->qt + r * d, d, 1);
    for (size_t j = begin; j < end;) {
        struct keys keys = keys_from(t, j, smaller(end - j, most));
        if (k_dtype(p) != F32) {
            keys.k = as_floats(k_dtype(p), keys.k, keys.k_stride, keys.n, d, w->k, d, keys.k_scale);
            keys.v = as_floats(v_dtype(p), keys.v, keys.v_stride, keys.n, dv, w->v, dv, keys.v_scale);
            keys.k_stride = d, keys.v_stride = dv;
        }
        for (size_t r = 0; r < t->n_rows; r++) {
            struct key_range sees = row_sees(t, r);
            size_t first = larger(j, sees.first), last = smaller(j + keys.n, sees.end);
            if (first < last)
                fold_row(t, r, w->qt + r * d, &keys, first, last - first, x, w->s);
        }
        j += keys.n;
    }
}
