/* float_block.h: what rungs 1 and 2 know of a problem in float32, and where a block of threads
 * works.  Block number head * q_blocks + i computes queries i Br ... of head = b * heads_q + h. */
#pragma once

#include "attention.h"
#include "cost.h"
#include "start.h"

/* The kernel's argument. */
struct work {
    struct problem p;
    struct arrays a;
    struct mask32 mask;
    unsigned q_blocks; /* blocks of Br queries in a head */
    unsigned group;    /* query heads that share a key head */
};

/* What a block works on. */
struct float_block {
    int i_0, n_q;           /* its first query, and how many */
    int n_keys;             /* keys that some query sees: none after them is needed */
    const float *q, *k, *v; /* its queries; the keys and values of the head */
    float *o, *lse;         /* of its queries */
};

static inline __device__ struct float_block block_of(const struct work &x, int br)
{
    size_t head = blockIdx.x / x.q_blocks, head_kv = (unsigned)head / x.group;
    struct float_block b;
    b.i_0 = blockIdx.x % x.q_blocks * br;
    b.n_q = min(br, (int)x.p.seqlen_q - b.i_0);
    b.n_keys = some_row_sees(x.mask, b.i_0, b.i_0 + b.n_q).end;
    b.k = (const float *)x.a.k + head_kv * x.p.seqlen_k * x.p.head_dim;
    b.v = (const float *)x.a.v + head_kv * x.p.seqlen_k * x.p.head_dim_v;
    size_t row = head * x.p.seqlen_q + b.i_0;
    b.q = (const float *)x.a.q + row * x.p.head_dim;
    b.o = (float *)x.a.o + row * x.p.head_dim_v;
    b.lse = x.a.lse + row;
    return b;
}

/* Launches a kernel whose blocks have br queries; MEMORY is their shared memory. */
template <class MEMORY>
static void start_blocks(void (*kernel)(struct work), int br, int threads, const struct problem *p,
                         const struct arrays *a)
{
    struct work x = {*p, *a, problem_mask32(p), (unsigned)((p->seqlen_q + br - 1) / br),
                     (unsigned)(p->heads_q / p->heads_kv)};
    size_t n_blocks = p->batch * p->heads_q * x.q_blocks;
    if (n_blocks) start(kernel, n_blocks, threads, sizeof(MEMORY), a->stream, x);
}

/* The part of the descriptor that both share. */
#define FLOAT_VARIANT                                                                            \
    .group = IN_PORTABLE, .device = GPU_DEVICE, .least_arch = 75, .types = TYPE(F32),            \
    .supports = BASIC_FEATURES | WITH_SHIFT, .max_score = INFINITY, .masked_rows = 1
