/* pipeline.h: tiles of K and V in shared memory between a producer and its consumers.
 *
 * The pipeline is a circular buffer of stages.  Each stage has two barriers: `full` (the tile
 * has arrived) and `empty` (all consumers have released it).  Both sides go through the stages
 * in the same order and remember where they are, a stage index and a phase bit:
 *
 *     producer: wait(empty), issue the copy        consumer: wait(full), use, arrive(empty)
 *
 * The phase flips when the index comes round.  A consumer starts with phase 0, and waits for
 * the first copy.  The producer starts with phase 1, which a fresh barrier lets through.
 * CUTLASS has the same under the names PipelineState and PipelineTmaAsync. */
#pragma once

#include "work_tile.h"

struct pipeline_state {
    int index;
    uint32_t phase;
};

/* The next stage of N. */
template <int N> static __device__ __forceinline__ void advance(struct pipeline_state &at)
{
    if (++at.index == N) at.index = 0, at.phase ^= 1;
}

/* Numbers in a tile of V: Bc rows, where a kernel has no other form of it. */
template <class C> static constexpr int size_of_v_tile()
{
    if constexpr (requires { C::V_TILE; }) return C::V_TILE;
    else return C::Bc * IN_PANELS<DV<C>>;
}

/* The stages of K and of V. */
template <class C> struct kv_pipeline {
    alignas(1024) typename C::T k[C::K_STAGES][C::Bc * IN_PANELS<C::D>];
    alignas(1024) typename C::T v[C::V_STAGES][size_of_v_tile<C>()];
    uint64_t k_full[C::K_STAGES], k_empty[C::K_STAGES];
    uint64_t v_full[C::V_STAGES], v_empty[C::V_STAGES];
};

/* k_arrivals: of a warpgroup, to release a stage of K. */
template <class C>
static __device__ __forceinline__ void kv_init(kv_pipeline<C> &kv, int k_arrivals = 1)
{
    for (int i = 0; i < C::K_STAGES; i++) {
        mbarrier_init(&kv.k_full[i], 1);
        mbarrier_init(&kv.k_empty[i], k_arrivals * C::WARPGROUPS);
    }
    for (int i = 0; i < C::V_STAGES; i++) {
        mbarrier_init(&kv.v_full[i], 1);
        mbarrier_init(&kv.v_empty[i], C::WARPGROUPS);
    }
}

/* ---- the producer's side ---- */

/* The tile of keys from `row` on. */
template <class C>
static __device__ __forceinline__ void
load_k(kv_pipeline<C> &kv, struct pipeline_state &at, const struct params &params, int row,
       int head_kv, int batch)
{
    mbarrier_wait(&kv.k_empty[at.index], at.phase);
    load_tile<C, C::Bc>(kv.k[at.index], &params.k, &kv.k_full[at.index], row, head_kv,
                        batch);
    advance<C::K_STAGES>(at);
}

template <class C>
static __device__ __forceinline__ void
load_v(kv_pipeline<C> &kv, struct pipeline_state &at, const struct params &params, int row,
       int head_kv, int batch)
{
    mbarrier_wait(&kv.v_empty[at.index], at.phase);
    if constexpr (requires { C::V_TILE; })
        load_tile<C, C::V_ROWS, C::V_COLUMNS>(kv.v[at.index], &params.v, &kv.v_full[at.index],
                                              row / C::Bc * C::V_ROWS, head_kv, batch);
    else
        load_tile<C, C::Bc, DV<C>>(kv.v[at.index], &params.v, &kv.v_full[at.index], row,
                                   head_kv, batch);
    advance<C::V_STAGES>(at);
}

/* ---- a consumer's side ---- */

/* Releases a stage.  One thread arrives for its warpgroup: a warp's wgmma_wait() says that the
 * product has completed for all four (notes/hopper_asynchrony.md, section 3). */
template <int STAGES>
static __device__ __forceinline__ void release(uint64_t (&empty)[STAGES],
                                               struct pipeline_state &at)
{
    mbarrier_arrive_if(&empty[at.index], threadIdx.x % 128 == 0);
    advance<STAGES>(at);
}
