/* producer.h: the tiles of K and V from rung 9 on: a producer loads them for a whole work tile, and
 * a consumer releases those that only others need. */
#pragma once

#include "pipeline.h"

/* Loads K and V of a work tile, n_blocks key blocks from row `row` on.  V runs one block behind
 * K, because the consumers need it later.  The last V is left to load_last_v(). */
template <class C>
static __device__ __forceinline__ void
load_kv(kv_pipeline<C> &kv, struct pipeline_state &k_at, struct pipeline_state &v_at,
        const struct params &params, int n_blocks, int head_kv, int batch, int row = 0)
{
    for (int n = 0; n < n_blocks; n++) {
        load_k(kv, k_at, params, row + n * C::Bc, head_kv, batch);
        if (n > 0) load_v(kv, v_at, params, row + (n - 1) * C::Bc, head_kv, batch);
    }
}

template <class C>
static __device__ __forceinline__ void
load_last_v(kv_pipeline<C> &kv, struct pipeline_state &v_at, const struct params &params,
            int n_blocks, int head_kv, int batch, int row = 0)
{
    if (n_blocks > 0) load_v(kv, v_at, params, row + (n_blocks - 1) * C::Bc, head_kv, batch);
}

/* Releases a block that the warpgroup does not need.  All its threads must have seen the block
 * full first: a late one could otherwise be lapped by two phases and wait for ever. */
template <class C>
static __device__ __forceinline__ void skip_block(kv_pipeline<C> &kv,
                                                  struct pipeline_state &k_at,
                                                  struct pipeline_state &v_at, int id,
                                                  int k_arrivals = 1)
{
    mbarrier_wait(&kv.k_full[k_at.index], k_at.phase);
    mbarrier_wait(&kv.v_full[v_at.index], v_at.phase);
    named_barrier_sync(id, 128);
    mbarrier_arrive_if(&kv.k_empty[k_at.index], threadIdx.x % (128 / k_arrivals) == 0);
    advance<C::K_STAGES>(k_at);
    release(kv.v_empty, v_at);
}
