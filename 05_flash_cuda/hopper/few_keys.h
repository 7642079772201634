/* few_keys.h: attention over at most 128 keys, which are one block: nothing is folded.
 *
 * Main memory is the limit here.  128 queries and keys of a head are 4 x 128 x D values of 2
 * bytes and 4 x 128 x 128 x D operations, 64 for a byte; the tensor cores could do 160.  So the
 * loads must never stop.  All else is plain: the exact maximum, no turns, no pipeline of keys.
 *
 *   stages  a stage holds Q, K and V of a work tile; o leaves through the place of Q
 *   blocks  as many on a multiprocessor as fit, so that one loads while another computes
 *   order   tiles from a counter, also without a mask: some multiprocessors get their data
 *           sooner than others */
#pragma once

#include "scheduler.h"
#include "store.h"

/* For at most KEYS keys. */
template <class Type, int HEAD_DIM, int KEYS> struct few_keys_config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = 2, Br = 64 * WARPGROUPS, Bc = KEYS;
    static constexpr int THREADS = 128 * WARPGROUPS + 32; /* a warp is the producer */
    static constexpr int STAGES = 2, STAGE_BYTES = (Br + 2 * Bc) * D * (int)sizeof(T);
    static constexpr int BLOCKS = 2 * STAGES * STAGE_BYTES < 220 << 10 ? 2 : 1;
};

/* Q, K and V of a work tile; o takes the place of Q. */
template <class C> struct qkv_stage {
    alignas(1024) typename C::T q[C::Br * C::D];
    alignas(1024) typename C::T k[C::Bc * C::D];
    alignas(1024) typename C::T v[C::Bc * C::D];
};

template <class C> struct few_keys_memory {
    struct qkv_stage<C> stage[C::STAGES];
    struct work_tile tile[C::STAGES];
    uint64_t qk_full[C::STAGES], v_full[C::STAGES], empty[C::STAGES];
};

/* Issues the copies of work tile t into stage i, which is empty. */
template <class C>
static __device__ __forceinline__ void load_stage(few_keys_memory<C> &sm, int i,
                                                  const struct params &params,
                                                  const struct work_tile &t)
{
    struct qkv_stage<C> &x = sm.stage[i];
    const int head_kv = t.head / params.group;
    sm.tile[i] = t;
    load_tile<C, C::Br>(x.q, &params.q, &sm.qk_full[i], t.tile * C::Br, t.head, t.batch);
    load_tile<C, C::Bc>(x.k, &params.k, &sm.qk_full[i], 0, head_kv, t.batch);
    load_tile<C, C::Bc>(x.v, &params.v, &sm.v_full[i], 0, head_kv, t.batch);
}

/* The producer, one thread, after the first tile; and the end of work. */
template <class C>
static __device__ __forceinline__ void load_tiles(few_keys_memory<C> &sm,
                                                  const struct params &params,
                                                  const struct scheduler &s)
{
    struct pipeline_state at = {1, 1};
    for (int n = next_tile(s, blockIdx.x); n < s.n_tiles; n = next_tile(s, n)) {
        const struct work_tile t = find_tile(s, params, n);
        mbarrier_wait(&sm.empty[at.index], at.phase);
        load_stage(sm, at.index, params, t);
        advance<C::STAGES>(at);
    }
    mbarrier_wait(&sm.empty[at.index], at.phase);
    sm.tile[at.index].tile = -1;
    mbarrier_arrive(&sm.qk_full[at.index]);
    mbarrier_arrive(&sm.qk_full[at.index]);
}

/* Queries 64 w ... 64 w + 63 of work tile t.  V is there when v_full's phase is complete. */
template <class C>
static __device__ __forceinline__ void
attend_all_keys(struct qkv_stage<C> &x, uint64_t *v_full, uint32_t phase,
                const struct params &params, const struct work_tile &t, int w)
{
    typename C::T *q_rows = x.q + w * 64 * 64;
    int first = t.tile * C::Br + 64 * w, row = first + first_row();
    float s[C::Bc / 2], o[C::D / 2], top[2], alpha[2];
    uint32_t p[C::Bc / 4];
    struct rows rows;
    wgmma_fence();
    issue_qk<C>(s, descriptor_qk(q_rows), x.k);
    wgmma_wait<0>();
    warpgroup_fence_operand(s);
    if (mask_keys(params.mask, first).end < C::Bc) mask_block<C>(s, params, row, 0);
    row_maxima(s, top);
    clear(rows, o);
    update_maximum(rows, top, params.c, alpha);
    exponentials(s, rows, params.c);
    pack_weights<typename C::T>(s, p);
    mbarrier_wait(v_full, phase);
    warpgroup_fence_operand(p);
    warpgroup_fence_operand(o);
    wgmma_fence();
    issue_pv<C>(o, p, x.v);
    wgmma_wait<0>();
    warpgroup_fence_operand(o);
    normalize(o, rows, params, row, (size_t)t.batch * params.heads_q + t.head);
    /* o takes the place of Q: the wait says that all four warps' products have completed */
    store_through_tma<C, C::Br>(o, q_rows, params, first, t, 1 + w);
}

template <class C>
static __device__ __forceinline__ void attend_tiles(few_keys_memory<C> &sm,
                                                    const struct params &params, int w)
{
    struct pipeline_state at = {0, 0};
    for (;; advance<C::STAGES>(at)) {
        const int i = at.index;
        mbarrier_wait(&sm.qk_full[i], at.phase);
        const struct work_tile t = sm.tile[i];
        if (t.tile < 0) break;
        attend_all_keys<C>(sm.stage[i], &sm.v_full[i], at.phase, params, t, w);
        if (threadIdx.x % 128 == 0) tma_store_wait_read();
        mbarrier_arrive(&sm.empty[i]);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait();
}

/* The producer's thread starts the first copies before the block meets. */
template <class C>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    few_keys_kernel(const __grid_constant__ struct params params, const struct scheduler s)
{
    few_keys_memory<C> &sm = dynamic_shared<few_keys_memory<C>>();
    const bool producer = threadIdx.x == 128 * C::WARPGROUPS;
    if (producer) {
        for (int i = 0; i < C::STAGES; i++) {
            mbarrier_init(&sm.qk_full[i], 2);
            mbarrier_init(&sm.v_full[i], 1);
            mbarrier_init(&sm.empty[i], 128 * C::WARPGROUPS);
        }
        fence_mbarrier_init();
        load_stage(sm, 0, params, find_tile(s, params, blockIdx.x));
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w < C::WARPGROUPS) attend_tiles(sm, params, w);
    else if (producer) load_tiles(sm, params, s);
}

/* ---- the host's side ---- */

template <class C>
static void launch_few_keys(const struct problem *p, const struct arrays *a)
{
    const struct params params = params_of(p, a, C::Br, C::Bc);
    struct scheduler s = scheduler_of(params, p, a);
    if (!s.counter) count_from_zero(s, a);
    start(few_keys_kernel<C>, persistent_blocks(s.n_tiles, C::BLOCKS), C::THREADS,
          sizeof(few_keys_memory<C>), a->stream, params, s);
}

/* Up to 128 keys, D <= 128. */
template <class T, int D> static void few_keys(const struct problem *p, const struct arrays *a)
{
    if (p->seqlen_k > 64) launch_few_keys<few_keys_config<T, D, 128>>(p, a);
    else launch_few_keys<few_keys_config<T, D, 64>>(p, a);
}
