/* arch: sm_90a */
/* Rung 7: TMA.  One thread asks for a whole tile, and an mbarrier says when it is there.
 *
 * In rung 6 every thread issued the copies of its 16-byte pieces, with their addresses, and waited
 * for its own.  Here one thread issues one instruction for each 64 columns of a tile.  The copy
 * engine (TMA) computes the addresses, swizzles, fills rows that do not exist with zeros, and counts
 * the bytes on an mbarrier, for which all threads wait (notes/hopper_asynchrony.md).  o leaves in
 * the same way, through the place of Q.
 *
 * Fold and products are rung 6's, lazy rescaling included, in the form that the later rungs keep:
 * a thread has the elements of s and o of two rows one after another (wgmma.h), and four warps, a
 * warpgroup, have 64 rows. */
#include "params.h"
#include "pipeline.h"
#include "store.h"
#include "warp_products.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = D == 256 ? 2 : 1, Br = 128;
    static constexpr int MT = 2 / WARPGROUPS; /* tiles of 16 queries in a warp */
    static constexpr int Bc = 64;
    static constexpr int K_STAGES = 2, V_STAGES = 2;
    static constexpr bool Q_IN_REGISTERS = D == 64; /* or loaded for each key block */
    static constexpr int THREADS = 128 * WARPGROUPS;
};

template <class C> struct memory {
    alignas(1024) typename C::T q[C::Br * C::D]; /* in the end: o */
    struct kv_pipeline<C> kv;
    uint64_t q_full;
};

/* What a consumer has in registers. */
template <class C> struct consumer {
    float s[C::MT][C::Bc / 2], o[C::MT][C::D / 2];
    uint32_t p[C::MT][C::Bc / 4];
    uint32_t q[C::Q_IN_REGISTERS ? C::D / 16 : 1][C::MT][4];
    const typename C::T *q_rows;
    struct rows rows[C::MT];
};

/* Issues the copies of key block n. */
template <class C>
static __device__ __forceinline__ void load_block(kv_pipeline<C> &kv, struct pipeline_state at,
                                                  const struct params &params, int n,
                                                  int head_kv, int batch)
{
    struct pipeline_state v_at = at;
    load_k(kv, at, params, n * C::Bc, head_kv, batch);
    load_v(kv, v_at, params, n * C::Bc, head_kv, batch);
}

/* Key block n. */
template <class C>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct params &params, int row, int n,
                                            int n_open, bool load, int head_kv, int batch)
{
    float top[2], alpha[2];
    struct pipeline_state at = {n % 2, (uint32_t)n / 2 % 2}, k_at = at, v_at = at;
    mbarrier_wait(&kv.k_full[at.index], at.phase);
    warp_qk<C>(x.s, x.q, x.q_rows, kv.k[at.index]);
#pragma unroll
    for (int i = 0; i < C::MT; i++) {
        if (n >= n_open) mask_block<C>(x.s[i], params, row + 64 * i, n);
        row_maxima(x.s[i], top);
        if (has_grown(x.rows[i], top, params.c)) {
            update_maximum(x.rows[i], top, params.c, alpha);
            scale_rows(x.o[i], alpha);
        }
        exponentials(x.s[i], x.rows[i], params.c);
        pack_weights<typename C::T>(x.s[i], x.p[i]);
    }
    mbarrier_wait(&kv.v_full[at.index], at.phase);
    warp_pv<C>(x.o, x.p, kv.v[at.index]);
    fence_proxy_async(); /* ordinary loads come before the copies that overwrite K and V */
    __syncthreads();     /* all have read them */
    release(kv.k_empty, k_at);
    release(kv.v_empty, v_at);
    if (load) load_block(kv, at, params, n + 2, head_kv, batch);
}

/* Writes the consumer's rows of o. */
template <class C>
static __device__ __forceinline__ void epilogue(consumer<C> &x, memory<C> &sm,
                                                const struct params &params,
                                                const struct work_tile &t, int w)
{
    size_t head = (size_t)t.batch * params.heads_q + t.head;
#pragma unroll
    for (int i = 0; i < C::MT; i++) {
        int first = t.tile * C::Br + 64 * (w + i);
        normalize(x.o[i], x.rows[i], params, first + first_row(), head);
        store_through_tma<C, C::Br>(x.o[i], sm.q + (w + i) * 64 * 64, params, first, t, 8 + w);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait();
}

/* Consumer w: queries 64 w ... 64 (w + MT) - 1 of the tile. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct work_tile &t, int w)
{
    int first = t.tile * C::Br + 64 * w, row = first + first_row(), n = 0;
    int n_blocks = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
    int n_open = blocks_open<C>(params, first);
#pragma unroll
    for (int i = 0; i < C::MT; i++) clear(x.rows[i], x.o[i]);
    int head_kv = t.head / params.group;
    if (threadIdx.x == 0)
        for (int i = 0; i < min(2, n_blocks); i++)
            load_block(sm.kv, {i, 1}, params, i, head_kv, t.batch);
    for (; n < n_blocks; n++)
        step<C>(x, sm.kv, params, row, n, n_open, threadIdx.x == 0 && n + 2 < n_blocks,
                head_kv, t.batch);
    epilogue(x, sm, params, t, w);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               int w)
{
    consumer<C> x;
    const struct work_tile t = work_tile_of(params, blockIdx.x);
    if (threadIdx.x == 0)
        load_tile<C, C::Br>(sm.q, &params.q, &sm.q_full, t.tile * C::Br, t.head, t.batch);
    mbarrier_wait(&sm.q_full, 0);
    x.q_rows = sm.q + w * 64 * 64;
#pragma unroll
    for (int d = 0; C::Q_IN_REGISTERS && d < C::D / 16; d++) load_warp_q<C>(x.q[d], x.q_rows, d);
    attend(x, sm, params, t, w);
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, C::D <= 128 ? 2 : 1)
    tma_kernel(const __grid_constant__ struct params params)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        mbarrier_init(&sm.q_full, 1);
        kv_init(sm.kv);
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    consume(sm, params, w);
}

template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    using C = config<T, D>;
    const struct params params = params_of(p, a, C::Br, C::Bc);
    int n_tiles = n_work_tiles(params, p);
    start(tma_kernel<C>, n_tiles, C::THREADS, sizeof(memory<C>), a->stream, params);
}

HOPPER_RUNG(tma, "the copy engine loads");
