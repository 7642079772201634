/* attention.h: what the tensor-core kernels know of a problem, and where a block of
 * threads works.
 *
 * The work is cut into blocks of Br queries of one head: block number
 * ((b * heads_q + h) * q_blocks + i) computes queries i * Br ... of head h of batch b.  Each
 * reads all keys and values that its queries see, so K and V are read q_blocks times. */
#pragma once

#include "harness.h"
#include "gpu/cuda_check.h"
#include "mask32.h"

/* A kernel's argument.  Arrays as in harness.h; 16-bit elements as their bits. */
struct attention {
    const uint16_t *q, *k, *v;
    const float *bias; /* or NULL */
    uint16_t *o;
    float *lse;
    int heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
    int causal;
    struct mask32 mask;
    float scale;
    int q_blocks; /* blocks of Br queries in a head */
};

/* The argument for blocks of br queries. */
static inline struct attention attention_of(const struct problem *p,
                                            const struct arrays *a, int br)
{
    return {.q = (const uint16_t *)a->q, .k = (const uint16_t *)a->k, .v = (const uint16_t *)a->v,
            .bias = p->has_bias ? a->bias : NULL, .o = (uint16_t *)a->o, .lse = a->lse,
            .heads_q = (int)p->heads_q, .heads_kv = (int)p->heads_kv,
            .seqlen_q = (int)p->seqlen_q, .seqlen_k = (int)p->seqlen_k,
            .head_dim = (int)p->head_dim, .head_dim_v = (int)p->head_dim_v,
            .causal = p->causal, .mask = problem_mask32(p), .scale = p->scale,
            .q_blocks = ((int)p->seqlen_q + br - 1) / br};
}

/* The least of the head dimensions D that holds the problem's two, 0 if none does. */
template <int... D> static inline int head_dim_of(const struct problem *p)
{
    const int dims[] = {D...};
    size_t need = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    int best = 0;
    for (int d : dims)
        if ((size_t)d >= need && (!best || d < best)) best = d;
    return best;
}

/* NULL, or what an int or a grid of blocks of br queries cannot count. */
static inline const char *too_large(const struct problem *p, size_t br)
{
    if (p->seqlen_q > LONGEST || p->seqlen_k > LONGEST)
        return "more than 2^29 queries or keys";
    size_t heads = p->batch * p->heads_q, blocks = (p->seqlen_q + br - 1) / br;
    return blocks && heads > 0x7fffffff / blocks ? "2^31 blocks of queries" : NULL;
}

/* What a block works on. */
struct head_block {
    const uint16_t *k, *v; /* the head's keys and values */
    int number;            /* of the query head: b * heads_q + h */
    int q0;                /* the block's first query */
    int keys;              /* keys that some query sees: none after them is needed */
};

/* The head and the queries of block number `block`, counting br queries a block.  Query
 * heads share key heads in groups of heads_q / heads_kv (grouped-query attention). */
static __forceinline__ __device__ struct head_block
head_block_of(const struct attention &x, int block, int br)
{
    struct head_block h;
    h.number = block / x.q_blocks;
    size_t head_kv = h.number / (x.heads_q / x.heads_kv);
    h.k = x.k + head_kv * x.seqlen_k * x.head_dim;
    h.v = x.v + head_kv * x.seqlen_k * x.head_dim_v;
    h.q0 = block % x.q_blocks * br;
    h.keys = some_row_sees(x.mask, h.q0, min(h.q0 + br, x.seqlen_q)).end;
    return h;
}

/* Where query i of the head lies in q, o and lse. */
static __forceinline__ __device__ const uint16_t *q_row(const struct attention &x,
                                                        const struct head_block &h, int i)
{
    return x.q + ((ptrdiff_t)h.number * x.seqlen_q + i) * x.head_dim;
}

static __forceinline__ __device__ uint16_t *o_row(const struct attention &x,
                                                  const struct head_block &h, int i)
{
    return x.o + ((ptrdiff_t)h.number * x.seqlen_q + i) * x.head_dim_v;
}

static __forceinline__ __device__ float *lse_row(const struct attention &x,
                                                 const struct head_block &h, int i)
{
    return x.lse + (ptrdiff_t)h.number * x.seqlen_q + i;
}
