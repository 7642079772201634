/* one_tile.h: a block of threads with a producer and consumers for one work tile (rungs 9 to 11):
 * its memory, the producer, and how a consumer ends. */
#pragma once

#include "producer.h"
#include "store.h"

template <class C> struct memory {
    alignas(1024) typename C::T q[C::Br * C::D]; /* in the end: o */
    struct kv_pipeline<C> kv;
    uint64_t q_full;
};

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer {
    float s[C::Bc / 2], o[C::D / 2], c; /* c = scale log2(e) */
    uint32_t p[C::Bc / 4];
    uint64_t q; /* descriptor */
    struct rows rows;
    struct pipeline_state k_at, v_at;
};

/* The producer, one thread: Q, then K and V block by block. */
template <class C>
static __device__ __forceinline__ void produce(memory<C> &sm, const struct params &params)
{
    const struct work_tile t = work_tile_of(params, blockIdx.x);
    struct pipeline_state k_at = {0, 1}, v_at = {0, 1};
    int n_blocks = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
    int head_kv = t.head / params.group;
    load_tile<C, C::Br>(sm.q, &params.q, &sm.q_full, t.tile * C::Br, t.head, t.batch);
    load_kv(sm.kv, k_at, v_at, params, n_blocks, head_kv, t.batch);
    load_last_v(sm.kv, v_at, params, n_blocks, head_kv, t.batch);
}

/* Writes the consumer's 64 rows of o. */
template <class C>
static __device__ __forceinline__ void epilogue(consumer<C> &x, memory<C> &sm,
                                                const struct params &params,
                                                const struct work_tile &t, int w)
{
    size_t head = (size_t)t.batch * params.heads_q + t.head;
    int first = t.tile * C::Br + 64 * w;
    normalize(x.o, x.rows, params, first + first_row(), head);
    store_through_tma<C, C::Br>(x.o, sm.q + w * 64 * 64, params, first, t, 8 + w);
    if (threadIdx.x % 128 == 0) tma_store_wait();
}
