/* hopper_work.h: what a block of the Hopper rungs of the backward ladder works on: which tile of
 * keys and which tiles of queries, its shared memory, and the producer that fills it. */
#pragma once

#include "backward/gradient.h"
#include "hopper/pipeline.h"

/* A kernel's parameters. */
template <enum dtype T> struct backward_params {
    CUtensorMap q, k, v, d_o;
    struct gradient<T> x;
    float c;      /* scale log2(e) */
    int window;   /* heads whose tiles of keys begin in turn */
    int *counter; /* rung 8: blocks begun, and then additions to each block of dq */
};

/* A tile of queries: their Q and dO, and the terms of lse and of D (gradient.h). */
template <class C> struct queries {
    alignas(1024) typename C::T q[C::Br * C::D];
    alignas(1024) typename C::T d_o[C::Br * C::D];
    alignas(128) typename C::T lse[C::Br * 8], D_i[C::Br * 8];
};

/* The same at D = 256: there is room for one dO, which lies apart (rung 6). */
template <class C>
    requires(C::D == 256)
struct queries<C> {
    alignas(1024) typename C::T q[C::Br * C::D];
    alignas(128) typename C::T lse[C::Br * 8], D_i[C::Br * 8];
};

/* The work of a block: a tile of keys of key head head_kv (of all batches), and the n tiles
 * of queries that see some of them, head after head of the group: first, first + step, ... */
struct key_work { int head_kv, j_0, first, n, step; };

/* A row of a map (hopper_launch.h). */
struct box_row { int row, batch; };

/* Work in packed arrays: with the problem that its sequence is on its own, and the place of its
 * row 0 in the maps. */
template <enum dtype T> struct packed_work : key_work {
    struct gradient<T> x;
    struct box_row q, k;
};
template <class C>
using any_work = std::conditional_t<C::PACKED, struct packed_work<C::TYPE_OF_T>, struct key_work>;

/* The problem that some work belongs to. */
template <class C, enum dtype T>
static __device__ __forceinline__ const struct gradient<T> &
problem_of(const struct backward_params<T> &params, const any_work<C> &w)
{
    if constexpr (C::PACKED) return w.x;
    else return params.x;
}

/* Rows of dk and dv before those of a key head. */
template <class C, enum dtype T>
static __device__ __forceinline__ ptrdiff_t keys_before(const struct gradient<T> &x, int head_kv)
{
    return (ptrdiff_t)head_kv * (C::PACKED ? x.rows_k : x.seqlen_k);
}

/* The tile of queries after i_0, and around to the first. */
template <class C>
static __device__ __forceinline__ int next_queries(const struct key_work &work, int i_0)
{
    const int step = C::STEP ? C::STEP : work.step;
    i_0 += step * C::Br;
    return i_0 == (work.first + work.n * step) * C::Br ? work.first * C::Br : i_0;
}

template <class C> struct backward_memory {
    alignas(1024) typename C::T k[C::Bc * C::D];
    alignas(1024) typename C::T v[C::Bc * C::D];
    struct queries<C> tile[C::STAGES];
    alignas(1024) typename C::T ds[2][C::Br * C::Bc]; /* dS, panels of 64 keys; used in turn */
    uint64_t kv_full, q_full[C::STAGES], q_empty[C::STAGES], do_full[C::STAGES],
        do_empty[C::STAGES], ds_full[2], dq_full[2], dq_empty[2];
    alignas(128) float dq[2][C::STAGED ? 64 * 64 : 4]; /* STAGED: of each consumer */
    any_work<C> work; /* here, not in registers: consumers have none left */
};

template <class C> static __device__ __forceinline__ void memory_init(backward_memory<C> &sm)
{
    mbarrier_init(&sm.kv_full, 1);
    for (int i = 0; i < C::STAGES; i++) {
        mbarrier_init(&sm.q_full[i], 1);
        mbarrier_init(&sm.do_full[i], 1);
        mbarrier_init(&sm.q_empty[i], C::RELEASES);
        mbarrier_init(&sm.do_empty[i], C::RELEASES);
    }
    for (int i = 0; i < 2; i++) {
        mbarrier_init(&sm.ds_full[i], C::DS_WARPS);
        mbarrier_init(&sm.dq_full[i], 4);
        mbarrier_init(&sm.dq_empty[i], 1);
    }
    fence_mbarrier_init();
}

/* Are some keys hidden behind a query, so that the first keys have most queries? */
template <enum dtype T> static inline HOST_DEVICE bool is_causal(const struct gradient<T> &x)
{
    return x.mask.last < x.seqlen_k;
}

/* The tile of keys, of all heads, that is the n-th to begin: the first tile of `window` heads, then
 * their second, and so on; then those of the next heads. */
template <enum dtype T>
static __device__ __forceinline__ int nth_tile(const struct backward_params<T> &params, int n,
                                               int head = 0)
{
    const struct gradient<T> &x = params.x;
    head += (n / x.key_tiles - head) / params.window * params.window;
    const int heads = min(params.window, x.batch * x.heads_kv - head), r = n - head * x.key_tiles;
    return (head + r % heads) * x.key_tiles + r / heads;
}

template <class C, enum dtype T>
static __device__ __forceinline__ struct key_work key_work_of(const struct gradient<T> &x,
                                                              int head_kv, int tile)
{
    struct key_work w = {head_kv, tile * C::Bc, 0, 0, 1};
    struct key_range32 seen = queries_of(x.mask, x.seqlen_q, w.j_0, min(w.j_0 + C::Bc, x.seqlen_k));
    w.first = seen.first / C::Br;
    w.n = seen.first < seen.end ? (seen.end + C::Br - 1) / C::Br - w.first : 0;
    return w;
}

/* x as the problem of sequence s alone.  Its tiles of queries are those after the others'. */
template <class C, enum dtype T>
static __device__ __forceinline__ void set_sequence(struct gradient<T> &x,
                                                    const struct rows_of_sequence &s, int number)
{
    const ptrdiff_t first = s.q / C::Br + number;
    x.seqlen_q = s.seqlen_q, x.seqlen_k = s.mask.seqlen_k, x.mask = s.mask;
    x.dq += (ptrdiff_t)s.q * x.head_dim;
    x.dk += (ptrdiff_t)s.k * x.head_dim, x.dv += (ptrdiff_t)s.k * x.head_dim_v;
    x.terms += first * C::Br * 8, x.dq_sum += first * C::Br * C::D;
}

/* The work of a block of threads: tile block % key_tiles of a head. */
template <class C, enum dtype T>
static __device__ __forceinline__ void set_work(any_work<C> &w,
                                                const struct backward_params<T> &params, int block)
{
    const struct gradient<T> &x = params.x;
    const int head = block / x.key_tiles, tile = block % x.key_tiles;
    if constexpr (C::PACKED) {
        const int *first = x.all.cu_seqlens_k, s = sequence_of_tile<C::Bc>(first, x.all.n, tile);
        const struct rows_of_sequence rows = find_sequence(x.all, s);
        w.x = x;
        set_sequence<C>(w.x, rows, s);
        w.q = {x.rows_q - rows.seqlen_q, rows.q + rows.seqlen_q};
        w.k = {x.rows_k - w.x.seqlen_k, rows.k + w.x.seqlen_k};
        (struct key_work &)w = key_work_of<C>(w.x, head, tile - rows.k / C::Bc - s);
        if (w.j_0 >= w.x.seqlen_k) w.n = 0;
    } else {
        w = key_work_of<C>(x, head, tile);
    }
}

/* ---- the producer, one thread: K and V, then tile after tile of queries ---- */

template <class C, enum dtype T>
static __device__ __forceinline__ void load_keys(typename C::T *k, typename C::T *v, uint64_t *full,
                                                 const struct backward_params<T> &params,
                                                 const any_work<C> &w)
{
    const int head = w.head_kv % params.x.heads_kv;
    struct box_row at = {0, w.head_kv / params.x.heads_kv};
    if constexpr (C::PACKED) at = w.k;
    mbarrier_arrive_expect_tx(full, 2 * C::Bc * C::D * 2);
#pragma unroll
    for (int i = 0; i < C::D / 64; i++) {
        tma_load_box(k + i * C::Bc * 64, &params.k, full, 64 * i, at.row + w.j_0, head, at.batch);
        tma_load_box(v + i * C::Bc * 64, &params.v, full, 64 * i, at.row + w.j_0, head, at.batch);
    }
}

/* Where dO of a tile of queries lies. */
template <class MEMORY>
static __device__ __forceinline__ auto *d_o_of(MEMORY &sm, int stage)
{
    return sm.tile[stage].d_o;
}

/* All tiles of queries of the work, head after head of the group. */
template <class C, class MEMORY, enum dtype T>
static __device__ __forceinline__ void load_queries(MEMORY &sm,
                                                    const struct backward_params<T> &params,
                                                    const any_work<C> &w,
                                                    struct pipeline_state &at)
{
    const struct gradient<T> &x = problem_of<C>(params, w);
    const int batch = w.head_kv / x.heads_kv, h_kv = w.head_kv % x.heads_kv;
    struct box_row box = {0, batch};
    if constexpr (C::PACKED) box = w.q;
    for (int h = 0; h < x.group; h++)
        for (int t = w.first, i = t * C::Br; t < w.first + w.n; t++, i = next_queries<C>(w, i)) {
            /* two forms of one number: with either for all, ptxas gives the products of one of the
             * rungs 5 to 8 other registers */
            const int head = h_kv * x.group + h;
            const int i_0 = C::D == 128 && C::STEP == 1 ? t * C::Br : i;
            const ptrdiff_t row = (ptrdiff_t)(batch * x.heads_q + head) * x.padded + i_0;
            struct queries<C> &to = sm.tile[at.index];
            mbarrier_wait(&sm.q_empty[at.index], at.phase);
            mbarrier_arrive_expect_tx(&sm.q_full[at.index], C::Br * (C::D * 2 + 16));
#pragma unroll
            for (int i = 0; i < C::D / 64; i++)
                tma_load_box(to.q + i * C::Br * 64, &params.q, &sm.q_full[at.index], 64 * i,
                             box.row + i_0, head, box.batch);
            tma_load_bytes(to.lse, x.terms + row * 8, C::Br * 16, &sm.q_full[at.index]);
            /* one place for dO: its phase counts tiles */
            const struct pipeline_state d_o =
                C::DO_STAGES == 1 ? (struct pipeline_state){0, (uint32_t)at.index ^ 1} : at;
            mbarrier_wait(&sm.do_empty[d_o.index], d_o.phase);
            mbarrier_arrive_expect_tx(&sm.do_full[d_o.index], C::Br * (C::D * 2 + 16));
#pragma unroll
            for (int i = 0; i < C::D / 64; i++)
                tma_load_box(d_o_of(sm, at.index) + i * C::Br * 64, &params.d_o,
                             &sm.do_full[d_o.index], 64 * i, box.row + i_0, head, box.batch);
            tma_load_bytes(to.D_i, x.terms + (x.rows + row) * 8, C::Br * 16,
                           &sm.do_full[d_o.index]);
            advance<C::STAGES>(at);
        }
}

template <class C, class MEMORY, enum dtype T>
static __device__ __forceinline__ void produce(MEMORY &sm, const struct backward_params<T> &params)
{
    struct pipeline_state at = {0, 1};
    load_keys<C>(sm.k, sm.v, &sm.kv_full, params, sm.work);
    load_queries<C>(sm, params, sm.work, at);
}
