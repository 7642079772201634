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
#include "launch.h"
#include "pipeline.h"
#include "store.h"
#include "warp_products.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = D == 256 ? 2 : 1, Br = 128;
    static constexpr int MT = 2 / WARPGROUPS; /* tiles of 16 queries in a warp */
    static constexpr int Bc = 64;
    static constexpr int K_STAGES = 1, V_STAGES = 1;
    static constexpr int THREADS = 128 * WARPGROUPS;
};

template <class C> struct memory {
    alignas(1024) typename C::T q[C::Br * C::D]; /* in the end: o */
    struct kv_pipeline<C> kv;
    uint64_t q_full;
};

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer {
    float s[C::MT][C::Bc / 2], o[C::MT][C::D / 2], c; /* c = scale log2(e) */
    uint32_t p[C::MT][C::Bc / 4];
    const typename C::T *q;
    struct rows rows[C::MT];
    struct pipeline_state k_at, v_at, next_k, next_v;
};

/* Key block n. */
template <class C>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct params &params, int row, int n,
                                            bool mask, bool load, int head_kv, int batch)
{
    float top[2], alpha[2];
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    warp_qk<C>(x.s, x.q, kv.k[x.k_at.index]);
    fence_proxy_async(); /* ordinary loads of K come before the copy that overwrites it */
    __syncthreads();     /* all have read K */
    release(kv.k_empty, x.k_at);
    if (load) load_k(kv, x.next_k, params, (n + 1) * C::Bc, head_kv, batch);
#pragma unroll
    for (int i = 0; i < C::MT; i++) {
        if (mask) mask_block<C>(x.s[i], params, row + 64 * i, n);
        row_maxima(x.s[i], top);
        if (has_grown(x.rows[i], top, x.c)) {
            update_maximum(x.rows[i], top, x.c, alpha);
            scale_rows(x.o[i], alpha);
        }
        exponentials(x.s[i], x.rows[i], x.c);
        pack_weights<typename C::T>(x.s[i], x.p[i]);
    }
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    warp_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    fence_proxy_async();
    __syncthreads(); /* all have read V */
    release(kv.v_empty, x.v_at);
    if (load) load_v(kv, x.next_v, params, (n + 1) * C::Bc, head_kv, batch);
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
    if (threadIdx.x == 0 && n_blocks > 0) {
        load_k(sm.kv, x.next_k, params, 0, head_kv, t.batch);
        load_v(sm.kv, x.next_v, params, 0, head_kv, t.batch);
    }
    for (; n < n_blocks; n++)
        step<C>(x, sm.kv, params, row, n, n >= n_open, threadIdx.x == 0 && n + 1 < n_blocks,
                head_kv, t.batch);
    epilogue(x, sm, params, t, w);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               int w)
{
    consumer<C> x;
    const struct work_tile t = work_tile_of(params, blockIdx.x);
    x.c = params.c;
    x.k_at = x.v_at = {0, 0}, x.next_k = x.next_v = {0, 1};
    if (threadIdx.x == 0)
        load_tile<C, C::Br>(sm.q, &params.q, &sm.q_full, t.tile * C::Br, t.head, t.batch);
    mbarrier_wait(&sm.q_full, 0);
    x.q = sm.q + w * 64 * 64;
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
    start<C, memory<C>>(tma_kernel<C>, n_tiles, a->stream, params);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}

static struct cost cost(const struct problem *p) { return attention_cost(p, 128); }

GPU_VARIANT(tma) = {
    .name = "tma",
    .idea = "the copy engine loads",
    HOPPER_VARIANT,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
    .on_gpu = GPU_TWIN(tma),
};
