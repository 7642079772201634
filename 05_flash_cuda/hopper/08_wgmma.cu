/* arch: sm_90a */
/* Rung 8: wgmma.  One instruction multiplies 64 x 16 by 16 x N, and reads K and V where TMA has put
 * them.
 *
 * In rung 7 each warp read fragments of K and V out of shared memory and multiplied 16 x 16 by
 * 16 x 8.  Here the four warps of a warpgroup issue one product together.  Its operands in shared
 * memory are named by descriptors (wgmma.h), P and o stay in registers.  Nobody holds fragments of
 * Q, K or V: a warpgroup has 64 queries, 128 keys at a time, and two or three of them share a
 * multiprocessor.  That leaves no room for rung 7's second stage of K and V: the copies of one
 * block of threads run beside the products of another (make diff RUNG=one_warpgroup).  wgmma reads
 * in TMA's own way (the async proxy), so no fence lies between. */
#include "params.h"
#include "pipeline.h"
#include "store.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = 1, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 256 ? 64 : 128;
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
    float s[C::Bc / 2], o[C::D / 2], c; /* c = scale log2(e) */
    uint32_t p[C::Bc / 4];
    uint64_t q; /* descriptor */
    struct rows rows;
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
    wgmma_fence();
    issue_qk<C>(x.s, x.q, kv.k[x.k_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.s);
    release(kv.k_empty, x.k_at);
    if (load) load_k(kv, x.next_k, params, (n + 1) * C::Bc, head_kv, batch);
    if (mask) mask_block<C>(x.s, params, row, n);
    row_maxima(x.s, top);
    if (has_grown(x.rows, top, x.c)) {
        update_maximum(x.rows, top, x.c, alpha);
        scale_rows(x.o, alpha);
    }
    exponentials(x.s, x.rows, x.c);
    pack_weights<typename C::T>(x.s, x.p);
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    wgmma_fence();
    issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.o);
    release(kv.v_empty, x.v_at);
    if (load) load_v(kv, x.next_v, params, (n + 1) * C::Bc, head_kv, batch);
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

/* Consumer w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct work_tile &t, int w)
{
    int first = t.tile * C::Br + 64 * w, row = first + first_row(), n = 0;
    int n_blocks = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
    int n_open = blocks_open<C>(params, first);
    clear(x.rows, x.o);
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
    x.q = descriptor_qk(sm.q + w * 64 * 64);
    attend(x, sm, params, t, w);
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, C::D == 64 ? 3 : C::D == 128 ? 2 : 1)
    wgmma_kernel(const __grid_constant__ struct params params)
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
    start(wgmma_kernel<C>, n_tiles, C::THREADS, sizeof(memory<C>), a->stream, params);
}

HOPPER_RUNG(wgmma, "warpgroups multiply");
