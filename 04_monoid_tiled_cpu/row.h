/* row.h: one row of attention, which is what every form in this directory computes: a
 * query, the keys and values that it sees, and the place for its answer. */
#ifndef ROW_H
#define ROW_H

#include "monoid.h"
#include "problem/heads.h"
#include "harness.h"

struct row {
    const float *q;         /* (d) */
    const float *k, *v;     /* (n, d), (n, dv) */
    const float *bias;      /* (n) or NULL */
    size_t n, d, dv;        /* n: keys that the query sees; k, v, bias start at the first */
    float scale;
    float softcap, sink;    /* 0 and -INFINITY for none */
    float *o, *lse;         /* (dv), (1) */
};

/* Rows of p, counted over batch, heads and queries. */
static inline size_t row_count(const struct problem *p)
{
    return p->batch * p->heads_q * p->seqlen_q;
}

/* Row number `index` of p; o and lse point to its answer of seqlen_q rows a head.  Query
 * head h reads key head h / (heads_q / heads_kv). */
static inline struct row row_of(const struct problem *p, const struct arrays *a,
                                size_t index)
{
    size_t i = index % p->seqlen_q, head = index / p->seqlen_q;
    size_t b = head / p->heads_q, h = head % p->heads_q;
    size_t row_k = (b * p->heads_kv + h / (p->heads_q / p->heads_kv)) * p->seqlen_k;
    struct key_range keys = visible_keys(p, i);
    struct row r = {.n = keys.end - keys.first, .d = p->head_dim, .dv = p->head_dim_v};
    row_k += keys.first;
    r.q = (const float *)a->q + index * r.d;
    r.k = (const float *)a->k + row_k * r.d;
    r.v = (const float *)a->v + row_k * r.dv;
    r.bias = p->has_bias ? a->bias + i * p->seqlen_k + keys.first : NULL;
    r.scale = p->scale;
    r.sink = p->has_sinks ? a->sinks[h] : -INFINITY;
    r.softcap = p->softcap;
    r.o = (float *)a->o + index * r.dv;
    r.lse = a->lse + index;
    return r;
}

/* q . k_j by fused multiply-adds in whatever order suits the vector units, scaled and
 * biased.  A key with a bias of -INFINITY is masked, whatever it holds. */
static inline float score_of(const struct row *r, const float *k_j, size_t j)
{
    float s = 0.0f;
    if (r->bias && r->bias[j] == -INFINITY) return -INFINITY;
#pragma omp simd reduction(+ : s)
    for (size_t c = 0; c < r->d; c++) s = fmaf(r->q[c], k_j[c], s);
    return capped(r->softcap, s * r->scale) + (r->bias ? r->bias[j] : 0.0f);
}

/* The score of key j. */
static inline float row_score(const struct row *r, size_t j)
{
    return score_of(r, r->k + j * r->d, j);
}

/* x = the fold of keys first .. last - 1. */
static inline void fold_keys(const struct row *r, size_t first, size_t last,
                             struct aggregate *x)
{
    aggregate_unit(x);
    for (size_t j = first; j < last; j++)
        aggregate_push(x, row_score(r, j), r->v + j * r->dv);
}

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t ceiling(size_t a, size_t b) { return (a + b - 1) / b; }

/* No score is stored.  A key costs one exp, and one more when it raises the maximum. */
static inline struct cost row_cost(const struct problem *p)
{
    return (struct cost){
        .passes = 0, .bytes = attention_io_bytes(p), .exps = 2 * score_count(p)};
}

#endif
