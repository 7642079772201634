/* heads.h: from a problem to its heads: what the harness does for a variant by_head. */
#pragma once

#include "harness.h"
#include "stage.h"

/* Of a team: with 100,000 OpenMP's runtime crashes. */
enum { MOST_THREADS = 1024 };

/* Query heads of all batches. */
static inline size_t n_heads(const struct problem *p) { return p->batch * p->heads_q; }

/* Query head number bh.  heads_q / heads_kv neighbouring query heads share a head of k, v. */
static inline struct head head_of(const struct problem *p, const struct arrays *a, size_t bh)
{
    size_t group = p->heads_q / p->heads_kv;
    size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / group;
    struct head head = {
        .q = (const float *)a->q + bh * p->seqlen_q * p->head_dim,
        .k = (const float *)a->k + kv * p->seqlen_k * p->head_dim,
        .v = (const float *)a->v + kv * p->seqlen_k * p->head_dim_v,
        .bias = p->has_bias ? a->bias : NULL,
        .o = (float *)a->o + bh * p->seqlen_q * p->head_dim_v,
        .lse = a->lse + bh * p->seqlen_q,
        .seqlen_q = p->seqlen_q,
        .seqlen_k = p->seqlen_k,
        .head_dim = p->head_dim,
        .head_dim_v = p->head_dim_v,
        .scale = p->scale,
        .last = problem_mask(p).last,
    };
    return head;
}
