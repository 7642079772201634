/* size.h: arithmetic with sizes, and what a problem's size is.  Part of harness.h. */
#pragma once

#include "mask.h"

/* a * b and a + b, or SIZE_MAX when that overflows; SIZE_MAX stays SIZE_MAX.  For sizes that
 * come from a file or a command line. */
static inline size_t size_times(size_t a, size_t b)
{
    if (a == 0 || b == 0) return 0;
    return a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

static inline size_t size_plus(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* Bytes of one number. */
static inline HOST_DEVICE size_t dtype_size(enum dtype dtype)
{
    const unsigned char size[N_DTYPES] = {4, 2, 2, 1, 1};
    return size[dtype];
}

/* The types of k, v and o. */
static inline HOST_DEVICE enum dtype k_dtype(const struct problem *p)
{
    return p->cache && dtype_size(p->dtype) > 1 ? p->cache : p->dtype;
}

static inline HOST_DEVICE enum dtype v_dtype(const struct problem *p)
{
    return p->cache ? p->cache : p->dtype;
}

static inline HOST_DEVICE enum dtype o_dtype(const struct problem *p)
{
    return dtype_size(p->dtype) > 1 ? p->dtype : BF16;
}

/* Queries, and keys that some query sees, of one head in all batches. */
static inline double all_queries(const struct problem *p)
{
    return p->packed ? (double)p->total_q : (double)p->batch * (double)p->seqlen_q;
}

static inline double all_keys(const struct problem *p)
{
    if (p->packed) return (double)p->total_k;
    struct key_range seen = {0, p->seqlen_k};
    if (p->seqlen_q) seen = some_row_sees(problem_mask(p), 0, p->seqlen_q);
    return (double)p->batch * (double)(seen.end - seen.first);
}

/* Bytes of reading q, k, v and the bias once and of writing o and lse once. */
static inline double attention_io_bytes(const struct problem *p)
{
    double q = (double)p->heads_q * all_queries(p);
    double k = (double)p->heads_kv * all_keys(p);
    double of_q = (double)(p->head_dim * dtype_size(p->dtype) + p->head_dim_v * dtype_size(o_dtype(p)));
    double of_k = (double)(p->head_dim * dtype_size(k_dtype(p)) + p->head_dim_v * dtype_size(v_dtype(p)));
    double bias = p->has_bias ? (double)p->seqlen_q * (double)p->seqlen_k : 0;
    return of_q * q + of_k * k + 4 * (q + bias);
}

/* Scores of the whole problem: batch x heads_q x seqlen_q x seqlen_k. */
static inline double score_count(const struct problem *p)
{
    return (double)p->batch * (double)p->heads_q * (double)p->seqlen_q *
           (double)p->seqlen_k;
}

/* The cost of attention that moves so many floats per score beyond q, k, v and o, and of an
 * operation on rows that moves so many per element and writes one of them to a fresh line;
 * exps: per score or element. */
static inline struct cost cost_of_scores(const struct problem *p, double floats, double exps)
{
    double n = score_count(p), bytes = 4 * floats * n + attention_io_bytes(p);
    struct cost cost = {floats, bytes, exps * n, 0};
    return cost;
}

static inline struct cost cost_of_rows(const struct problem *p, double floats, double exps)
{
    double n = (double)p->rows * (double)p->cols;
    struct cost cost = {floats, 4 * floats * n, exps * n, 4 * n};
    return cost;
}
