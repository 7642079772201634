/* layout.h: where the rows of q, k, v and o lie in memory: strides, packed sequences, pages.
 *
 * Row i of head h of sequence b begins at element
 *     b * batch + h * head + i * row                            with the array's strides
 *     h * head + (cu_seqlens[b] + i) * row                      packed
 *     page_table[b, i / page_size] * batch + h * head + (i % page_size) * row    in pages
 * lse is always contiguous. */
#pragma once

#include "harness.h"

/* One sequence of the batch: its lengths, and in packed arrays its first rows. */
struct sequence { size_t batch, q_first, k_first, seqlen_q, seqlen_k; };

static inline HOST_DEVICE struct sequence sequence_of(const struct problem *p,
                                                      const struct arrays *a, size_t b)
{
    struct sequence s = {b, 0, 0, p->seqlen_q, p->seqlen_k};
    if (p->has_lengths) s.seqlen_k = (size_t)a->seqlens_k[b];
    if (!p->packed) return s;
    s.q_first = (size_t)a->cu_seqlens_q[b];
    s.k_first = (size_t)a->cu_seqlens_k[b];
    s.seqlen_q = (size_t)a->cu_seqlens_q[b + 1] - s.q_first;
    s.seqlen_k = (size_t)a->cu_seqlens_k[b + 1] - s.k_first;
    return s;
}

/* The strides given, or those of a contiguous array [., heads, rows, width]. */
static inline HOST_DEVICE struct strides strides_or(struct strides given, size_t heads,
                                                    size_t rows, size_t width)
{
    struct strides contiguous = {heads * rows * width, rows * width, width};
    return given.batch || given.head || given.row ? given : contiguous;
}

/* Rows of q, and of k and v, that lie together: in a batch, in all of them, or in a page. */
static inline HOST_DEVICE size_t stored_queries(const struct problem *p)
{
    return p->packed ? p->total_q : p->seqlen_q;
}

static inline HOST_DEVICE size_t stored_keys(const struct problem *p)
{
    return p->page_size ? p->page_size : p->packed ? p->total_k : p->seqlen_k;
}

static inline HOST_DEVICE struct strides strides_of_q(const struct problem *p)
{
    return strides_or(p->q_strides, p->heads_q, stored_queries(p), p->head_dim);
}

static inline HOST_DEVICE struct strides strides_of_k(const struct problem *p)
{
    return strides_or(p->k_strides, p->heads_kv, stored_keys(p), p->head_dim);
}

static inline HOST_DEVICE struct strides strides_of_v(const struct problem *p)
{
    return strides_or(p->v_strides, p->heads_kv, stored_keys(p), p->head_dim_v);
}

static inline HOST_DEVICE struct strides strides_of_o(const struct problem *p)
{
    return strides_or(p->o_strides, p->heads_q, stored_queries(p), p->head_dim_v);
}

/* The element of the bias that belongs to query i of head h of batch b, and to key 0. */
static inline HOST_DEVICE size_t bias_at(const struct problem *p, size_t b, size_t h, size_t i)
{
    if (!p->has_bias_strides) return i * p->seqlen_k;
    return b * p->bias_strides.batch + h * p->bias_strides.head + i * p->bias_strides.row;
}

/* The element at which row i of head h of the sequence begins, in q or o. */
static inline HOST_DEVICE size_t query_at(const struct problem *p, const struct sequence *s,
                                          struct strides strides, size_t h, size_t i)
{
    size_t batch = p->packed ? 0 : s->batch;
    return batch * strides.batch + h * strides.head + (s->q_first + i) * strides.row;
}

/* The same for key j in k or v. */
static inline HOST_DEVICE size_t key_at(const struct problem *p, const struct arrays *a,
                                        const struct sequence *s, struct strides strides,
                                        size_t h, size_t j)
{
    size_t batch = p->packed ? 0 : s->batch, row = s->k_first + j;
    if (p->page_size) {
        const int32_t *pages = a->page_table + s->batch * p->pages_per_sequence;
        batch = (size_t)pages[j / p->page_size];
        row = j % p->page_size;
    }
    return batch * strides.batch + h * strides.head + row * strides.row;
}

/* Number of the row in lse, [batch, heads_q, seqlen_q] or [heads_q, total_q]. */
static inline HOST_DEVICE size_t lse_at(const struct problem *p, const struct sequence *s,
                                        size_t h, size_t i)
{
    if (p->packed) return h * p->total_q + s->q_first + i;
    return (s->batch * p->heads_q + h) * p->seqlen_q + i;
}

/* The element of o at which the row begins whose number in lse is `row`. */
static inline HOST_DEVICE size_t o_row_at(const struct problem *p, size_t row)
{
    size_t rows = stored_queries(p), head = row / rows;
    struct strides o = strides_of_o(p);
    size_t batch = p->packed ? 0 : head / p->heads_q, h = p->packed ? head : head % p->heads_q;
    return batch * o.batch + h * o.head + row % rows * o.row;
}
