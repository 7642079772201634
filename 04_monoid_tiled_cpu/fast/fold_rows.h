/* fold_rows.h: folds the keys of a few queries, row by row: a decode step. */
#pragma once

#include "fold.h"

/* Keys j .. j + n - 1, or their values: rows of numbers, `stride` apart.  While row i is used, the
 * `bytes` bytes at next + i * next_stride are fetched from memory. */
struct run {
    enum dtype type;
    const void *at;
    size_t j, n, stride;
    const char *next;
    size_t bytes, next_stride;
};

/* o = o * factor + sum_j p_j v_j over n keys, `vectors` vectors of columns from column c on: the
 * sum stays in registers.  In memory, each key would wait for the store of the one before it.
 *   vectors, type  constants   p (n)   o (head_dim_v) */
INLINE void add_columns(int vectors, enum dtype type, const float *p, const struct run *v,
                        size_t c, float factor, float *o)
{
    size_t first = smaller(v->bytes, c * dtype_size(type));
    size_t bytes = smaller(v->bytes - first, (size_t)vectors * LANES * dtype_size(type));
    vfloat sum[UNROLL_MOST];
    UNROLL(u, vectors, sum[u] = vset(0));
    for (size_t j = 0; j < v->n; j++) {
        const void *v_j = number_at(type, v->at, j * v->stride + c);
        fetch(v->next + j * v->next_stride + first, bytes);
        UNROLL(u, vectors, sum[u] = vfma(vset(p[j]), load_vector(type, v_j, u * LANES), sum[u]));
    }
    UNROLL(u, vectors, float *o_c = o + c + u * LANES;
           vstore(o_c, vfma(vload(o_c), vset(factor), sum[u])));
}

/* The same for all columns. */
INLINE void add_values(enum dtype type, const float *p, const struct run *v, size_t head_dim_v,
                       float factor, float *o)
{
    size_t c = 0;
    for (; c + 8 * LANES <= head_dim_v; c += 8 * LANES) add_columns(8, type, p, v, c, factor, o);
    for (; c + 4 * LANES <= head_dim_v; c += 4 * LANES) add_columns(4, type, p, v, c, factor, o);
    for (; c + LANES <= head_dim_v; c += LANES) add_columns(1, type, p, v, c, factor, o);
    for (; c < head_dim_v; c++) {
        float sum = 0;
        for (size_t j = 0; j < v->n; j++)
            sum = sfma(p[j], load_number(type, v->at, j * v->stride + c), sum);
        o[c] = sfma(o[c], factor, sum);
    }
}

/* s (n, up to a whole vector) = scale q . k.  Four keys share a load of q, and each has a sum in
 * lanes.  To add up the lanes of one key at a time takes longer than the products: vsums() does it
 * for LANES keys in a third of the instructions.
 *   type  a constant   q (head_dim) */
INLINE void dot_keys(enum dtype type, const float *q, const struct run *k, size_t head_dim,
                     float scale, float *s)
{
    vfloat sum[2 * UNROLL_MOST] = {{0}};
    for (size_t j = 0; j < k->n; j += 4) {
        vfloat sum_j[UNROLL_MOST];
        const void *k_j[UNROLL_MOST];
        UNROLL(u, 4, sum_j[u] = vset(0);
               k_j[u] = number_at(type, k->at, smaller(j + u, k->n - 1) * k->stride);
               fetch(k->next + (j + u) * k->next_stride, k->bytes));
        size_t d = 0;
        for (; d + LANES <= head_dim; d += LANES) {
            vfloat q_d = vload(q + d);
            UNROLL(u, 4, sum_j[u] = vfma(q_d, load_vector(type, k_j[u], d), sum_j[u]));
        }
        for (; d < head_dim; d++)
            UNROLL(u, 4, sum_j[u] += (vfloat){q[d] * load_number(type, k_j[u], d)});
        UNROLL(u, 4, sum[j % LANES + u] = sum_j[u]);
        if (j % LANES == LANES - 4 || j + 4 >= k->n)
            vstore(s + j / LANES * LANES, vsums(sum) * scale);
    }
}

/* s (n) = scores of the keys k and the query q, -INFINITY up to a whole vector.
 *   bias (n) or NULL */
static void row_scores(const struct problem *p, const float *q, const struct run *k,
                       const float *bias, float *s)
{
    size_t d = p->head_dim, n = k->n;
    if (k->type == F32) dot_keys(F32, q, k, d, p->scale, s);
    if (k->type == F16) dot_keys(F16, q, k, d, p->scale, s);
    if (k->type == BF16) dot_keys(BF16, q, k, d, p->scale, s);
    if (p->softcap > 0) cap_scores(s, n, 1, p->softcap);
    for (size_t j = 0; bias && j < n; j++) /* a comparison, not a branch: a vector takes it */
        s[j] = bias[j] == -INFINITY ? -INFINITY : s[j] + bias[j];
    for (size_t j = n; j % LANES; j++) s[j] = -INFINITY;
}

/* Folds the keys of a chunk that row r sees into its state.   q (head_dim)   s (n)  scratch */
static void fold_row(const struct tile *t, size_t r, const float *q, const struct run *k,
                     const struct run *v, struct state *x, float *s)
{
    const struct problem *p = t->p;
    float *o = x->o + r * t->plan->cols;
    vfloat m_lanes = vset(x->m[r]), sum = {0};
    row_scores(p, q, k, bias_row(t, r, k->j), s);
    for (size_t j = 0; j < k->n; j += LANES) m_lanes = vmax(vload(s + j), m_lanes);
    float m_new = vlargest(m_lanes), safe = m_new == -INFINITY ? 0 : m_new;
    for (size_t j = 0; j < k->n; j += LANES) {
        vfloat p_j = vexp2((vload(s + j) - safe) * LOG2E);
        vstore(s + j, p_j);
        sum += p_j;
    }
    float factor = sexp2((x->m[r] - safe) * LOG2E);
    x->m[r] = m_new;
    x->l[r] = sfma(x->l[r], factor, vsum(sum));
    if (v->type == F32) add_values(F32, s, v, p->head_dim_v, factor, o);
    if (v->type == F16) add_values(F16, s, v, p->head_dim_v, factor, o);
    if (v->type == BF16) add_values(BF16, s, v, p->head_dim_v, factor, o);
}

/* What row r sees of a chunk, and its share of what is fetched meanwhile. */
static struct run run_of(const struct tile *t, size_t r, const struct run *chunk)
{
    struct run x = *chunk;
    struct key_range sees = row_sees(t, r);
    size_t end = smaller(x.j + x.n, sees.end), skips = larger(x.j, sees.first) - x.j;
    x.j += skips;
    x.n = end > x.j ? end - x.j : 0;
    x.at = number_at(x.type, x.at, skips * x.stride);
    x.bytes /= t->n_rows;
    x.next += skips * x.next_stride + r * x.bytes;
    return x;
}

/* Folds keys begin .. end - 1 into x for few rows: keys and values are read once, in the order in
 * which they lie in memory, which is what limits a decode step.  Numbers of 16 bits become floats
 * when they are multiplied, for many rows, and those of 8 bits, once before in the nearest cache.
 * Several rows read a chunk from there, one after the other, and each fetches a share of the next.
 * w.s holds the scores of one row and one chunk of keys, w.qt the queries (n_rows, head_dim). */
static void fold_rows(const struct tile *t, size_t begin, size_t end, struct state *x,
                      struct scratch *w)
{
    const struct problem *p = t->p;
    enum { CHUNK = 256, SHORT_CHUNK = 32 };
    enum dtype type = k_dtype(p);
    int one = t->n_rows == 1, many = type != F32 && t->n_rows > LANES / 4;
    int widens = many || !has_vectors(type);
    size_t most = one && !widens ? CHUNK : SHORT_CHUNK, ahead = one ? AHEAD : SHORT_CHUNK;
    size_t d = p->head_dim, dv = p->head_dim_v, size = dtype_size(type);
    struct query q = query_of(t, 0);
    for (size_t r = 0; r < t->n_rows; r++, q = next_query(t, q))
        as_floats(p->dtype, q_of(t, q), 0, 1, d, w->qt + r * d, d, 1);
    for (size_t j = begin, n; j < end; j += n) {
        struct keys keys = keys_from(t, j, smaller(end - j, most));
        n = keys.n;
        struct run k = {type, keys.k, j, n, keys.k_stride, keys.k, d * size, keys.k_stride * size};
        struct run v = {v_dtype(p), keys.v, j, n, keys.v_stride, keys.v, dv * size, keys.v_stride * size};
        k.next += ahead * k.next_stride, v.next += ahead * v.next_stride;
        if (widens) {
            k.at = as_floats(type, k.at, k.stride, n, d, w->k, d, keys.k_scale);
            v.at = as_floats(v.type, v.at, v.stride, n, dv, w->v, dv, keys.v_scale);
            k.type = v.type = F32, k.stride = d, v.stride = dv;
        }
        for (size_t r = 0; r < t->n_rows; r++) {
            struct run k_r = run_of(t, r, &k), v_r = run_of(t, r, &v);
            if (k_r.n) fold_row(t, r, w->qt + r * d, &k_r, &v_r, x, w->s);
        }
    }
}
