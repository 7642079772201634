/* wide_few_keys.h: attention over 65 to 256 keys by heads wider than 128, all keys at once.
 *
 * As in few_keys.h main memory is the limit, and loads must never stop.  But Q, K and V of a
 * work tile, 192 KB and more, do not fit into shared memory beside those of the next one.  So
 * they arrive as *panels* of 64 columns in a ring of slots, in the order of their use: Q and K
 * panel by panel, then V.  A panel of Q and K adds to the scores, one of V makes a panel of o.
 * So a slot is free after a few products, and the next tile is always on its way. */
#ifndef HOPPER_WIDE_FEW_KEYS_H
#define HOPPER_WIDE_FEW_KEYS_H

#include "scheduler.h"
#include "store.h"

/* At most two blocks of keys. */
template <class Type, int HEAD_DIM, int HEAD_DIM_V> struct wide_config {
    using T = Type;
    static constexpr int D = HEAD_DIM, DV = HEAD_DIM_V, Bc = 128, SLOTS = 13;
    static constexpr int WARPGROUPS = 2, Br = 64 * WARPGROUPS, THREADS = 128 * (WARPGROUPS + 1);
};

template <class C> struct panels {
    alignas(1024) typename C::T slot[C::SLOTS][C::Br * 64];
    alignas(1024) typename C::T o[C::Br * 64]; /* a panel of it, on its way out */
    uint64_t full[C::SLOTS], empty[C::SLOTS];
    struct work_tile tile; /* that begins next; its first panel's `full` says that it is there */
    uint64_t tile_read;
};

/* Blocks of keys that some query of the tile sees, at least one. */
template <class C>
static __device__ __forceinline__ int blocks_of_tile(const struct params &params, int tile)
{
    return max(1, blocks_seen<C>(params, tile * C::Br + C::Br - 1));
}

/* ---- the producer, one thread ---- */

/* Waits for the next slot and issues the copy of a panel of ROWS rows. */
template <class C, int ROWS>
static __device__ __forceinline__ void load_panel(panels<C> &sm, struct pipeline_state &at,
                                                  const CUtensorMap *map, int panel, int row,
                                                  int head, int batch)
{
    mbarrier_wait(&sm.empty[at.index], at.phase);
    mbarrier_arrive_expect_tx(&sm.full[at.index], ROWS * 64 * 2);
    tma_load_box(sm.slot[at.index], map, &sm.full[at.index], 64 * panel, row, head, batch);
    advance<C::SLOTS>(at);
}

template <class C>
static __device__ __forceinline__ void load_panels(panels<C> &sm, struct pipeline_state &at,
                                                   const struct params &params,
                                                   const struct work_tile &t)
{
    const int head_kv = t.head / params.group, n = blocks_of_tile<C>(params, t.tile);
    for (int i = 0; i < C::D / 64; i++) {
        load_panel<C, C::Br>(sm, at, &params.q, i, t.tile * C::Br, t.head, t.batch);
        for (int b = 0; b < n; b++)
            load_panel<C, C::Bc>(sm, at, &params.k, i, b * C::Bc, head_kv, t.batch);
    }
    for (int i = 0; i < C::DV / 64; i++)
        for (int b = 0; b < n; b++)
            load_panel<C, C::Bc>(sm, at, &params.v, i, b * C::Bc, head_kv, t.batch);
}

template <class C>
static __device__ __forceinline__ void load_tiles(panels<C> &sm, const struct params &params,
                                                  const struct scheduler &s)
{
    struct pipeline_state at = {0, 1};
    uint32_t phase = 1;
    for (int n = blockIdx.x; n < s.n_tiles; n = next_tile(s, n), phase ^= 1) {
        const struct work_tile t = find_tile(s, params, n);
        mbarrier_wait(&sm.tile_read, phase);
        sm.tile = t;
        load_panels(sm, at, params, t);
    }
    mbarrier_wait(&sm.tile_read, phase);
    sm.tile.tile = -1;
    mbarrier_wait(&sm.empty[at.index], at.phase);
    mbarrier_arrive(&sm.full[at.index]);
}

/* ---- a consumer ---- */

/* Waits for the next panel. */
template <class C>
static __device__ __forceinline__ typename C::T *next_panel(panels<C> &sm,
                                                            struct pipeline_state &at)
{
    mbarrier_wait(&sm.full[at.index], at.phase);
    typename C::T *panel = sm.slot[at.index];
    advance<C::SLOTS>(at);
    return panel;
}

/* Releases the n panels from `at` on, whose products have completed. */
template <class C>
static __device__ __forceinline__ void release_panels(panels<C> &sm, struct pipeline_state &at,
                                                      int n)
{
    for (int i = 0; i < n; i++) release(sm.empty, at);
}

/* All scores Q K^T, panel by panel, of the consumer's 64 rows and N blocks of keys.
 *   at  the next panel */
template <class C, int N>
static __device__ __forceinline__ void add_scores(float (&all)[N * C::Bc / 2], panels<C> &sm,
                                                  struct pipeline_state &at, int w)
{
    struct pipeline_state done = at;
#pragma unroll
    for (int i = 0; i < C::D / 64; i++) {
        const uint64_t q = descriptor_qk(next_panel(sm, at) + w * 64 * 64);
#pragma unroll
        for (int b = 0; b < N; b++) {
            const uint64_t k = descriptor_qk(next_panel(sm, at));
            auto &s = reinterpret_cast<float(&)[C::Bc / 2]>(all[b * C::Bc / 2]);
            wgmma_fence();
            if (i == 0) wgmma_qk<typename C::T, true>(s, q, k);
            else wgmma_qk<typename C::T, false>(s, q, k);
#pragma unroll
            for (int x = 1; x < 4; x++)
                wgmma_qk<typename C::T, false>(s, q + 2 * x, k + 2 * x);
        }
        wgmma_commit();
        if (i == 0) continue;
        wgmma_wait<1>();
        release_panels(sm, done, 1 + N);
    }
    wgmma_wait<0>();
    release_panels(sm, done, 1 + N);
    warpgroup_fence_operand(all);
}

/* Issues o = P V of the next panel. */
template <class C, int N>
static __device__ __forceinline__ void
issue_panel(float (&o)[32], const uint32_t (&p)[N * C::Bc / 4], panels<C> &sm,
            struct pipeline_state &at)
{
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] = 0.0f;
    warpgroup_fence_operand(o);
#pragma unroll
    for (int b = 0; b < N; b++) {
        const uint64_t v = descriptor_v(next_panel(sm, at), C::Bc);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < C::Bc / 16; i++)
            wgmma_pv<typename C::T>(o, p + b * C::Bc / 4 + 4 * i, v + 128 * i);
    }
    wgmma_commit();
}

/* A panel, for store_through_tma(); N blocks of keys, for mask_block(). */
template <class C> struct panel_of { using T = typename C::T; static constexpr int D = 64; };
template <class C, int N> struct keys_of { static constexpr int Bc = N * C::Bc; };

/* Queries 64 w ... 64 w + 63 of work tile t, which sees N blocks of keys. */
template <class C, int N>
static __device__ __forceinline__ void
attend_all_keys(panels<C> &sm, struct pipeline_state &at, const struct params &params,
                const struct work_tile &t, int w)
{
    const int first = t.tile * C::Br + 64 * w, row = first + first_row();
    float s[N * C::Bc / 2], o[2][32], top[2], factor[2];
    uint32_t p[N * C::Bc / 4];
    struct rows rows;
    add_scores<C, N>(s, sm, at, w);
    if (mask_keys(params.mask, first).end < N * C::Bc)
        mask_block<keys_of<C, N>>(s, params, row, 0);
    row_maxima(s, top);
    clear(rows, o[0]);
    update_maximum(rows, top, params.c, factor);
    exponentials(s, rows, params.c);
    pack_weights<typename C::T>(s, p);
    const size_t head = (size_t)t.batch * params.heads_q + t.head;
    inverse_sums(rows, params.lse + head * params.seqlen_q + row, params.seqlen_q - row, factor);
    warpgroup_fence_operand(p);
    struct pipeline_state done = at;
    issue_panel<C, N>(o[0], p, sm, at);
#pragma unroll
    for (int i = 1; i <= C::DV / 64; i++) { /* panel i is multiplied, i - 1 leaves */
        float(&out)[32] = o[(i - 1) % 2];
        if (i < C::DV / 64) {
            issue_panel<C, N>(o[i % 2], p, sm, at);
            wgmma_wait<1>();
        } else {
            wgmma_wait<0>();
        }
        warpgroup_fence_operand(out);
        release_panels(sm, done, N);
        scale_rows(out, factor);
        if (threadIdx.x % 128 == 0) tma_store_wait_read(); /* the panel before */
        named_barrier_sync(1 + w, 128);
        store_through_tma<panel_of<C>>(out, sm.o + w * 64 * 64, params, first, t, 1 + w,
                                       64 * (i - 1));
    }
}

template <class C>
static __device__ __forceinline__ void attend_tiles(panels<C> &sm, const struct params &params,
                                                    int w)
{
    struct pipeline_state at = {0, 0};
    for (;;) {
        mbarrier_wait(&sm.full[at.index], at.phase);
        const struct work_tile t = sm.tile;
        if (t.tile < 0) break;
        mbarrier_arrive(&sm.tile_read);
        if (blocks_of_tile<C>(params, t.tile) == 1) attend_all_keys<C, 1>(sm, at, params, t, w);
        else attend_all_keys<C, 2>(sm, at, params, t, w);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    wide_kernel(const __grid_constant__ struct params params, const struct scheduler s)
{
    panels<C> &sm = dynamic_shared<panels<C>>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < C::SLOTS; i++) {
            mbarrier_init(&sm.full[i], 1);
            mbarrier_init(&sm.empty[i], C::WARPGROUPS);
        }
        mbarrier_init(&sm.tile_read, 128 * C::WARPGROUPS);
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 0) load_tiles(sm, params, s);
    } else {
        setmaxnreg_inc<232>();
        attend_tiles(sm, params, w - 1);
    }
}

/* ---- the host's side ---- */

/* 65 to 256 keys, D > 128; fewer gain nothing. */
template <class T, int D, int DV>
static void wide_few_keys(const struct problem *p, const struct arrays *a)
{
    using C = wide_config<T, D, DV>;
    const struct params params = params_of(p, a, C::Br, C::Bc);
    struct scheduler s = scheduler_of(params, p, a);
    if (!s.counter) count_from_zero(s, a);
    start<C, panels<C>>(wide_kernel<C>, persistent_blocks(s.n_tiles), a->stream, params, s);
}

#endif
