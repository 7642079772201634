/* arch: sm_90a */
/* Rung 12: persistent blocks, heavy tiles first (Graham's LPT rule; FlashAttention-3 does both).
 *
 * In rung 11 every tile takes extra time to start and end.  Here one block per multiprocessor works
 * through many tiles: its producer goes on to the next tile's Q, K and V while the consumers finish
 * the tile before, and tells them with each Q which tile it is (q_pipeline.h).
 *
 * Under a causal mask the last tile of a sequence has as many key blocks as the sequence, the
 * first one has one.  So a block that is free takes the next tile from a counter, the heaviest
 * first, and heads go by in sections that fit the L2 cache (scheduler.h). */
#include "params.h"
#include "scheduler.h"
#include "store.h"
#include "turns.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = D == 64 ? 4 : 2, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 128 ? 128 : 64;
    static constexpr int K_STAGES = D == 64 ? 4 : 2, V_STAGES = K_STAGES;
    static constexpr int Q_STAGES = D == 256 ? 1 : 2;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = D == 64 ? 32 : 40, REGISTERS = D == 64 ? 112 : 232;
    static constexpr bool TMA_STORE = D <= 128; /* shared memory is left for a tile of o */
};

template <class C> struct memory {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::TMA_STORE ? C::Br * C::D : 8];
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
static __device__ __forceinline__ void produce(memory<C> &sm, const struct params &params,
                                               const struct scheduler &s)
{
    struct pipeline_state q_at = {0, 1}, k_at = {0, 1}, v_at = {0, 1};
    for (int tile = blockIdx.x; tile < s.n_tiles;) {
        const struct work_tile t = find_tile(s, params, tile);
        mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
        load_q(sm.q, q_at.index, params, t);
        advance<C::Q_STAGES>(q_at);
        int n_blocks = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
        int head_kv = t.head / params.group;
        load_kv(sm.kv, k_at, v_at, params, n_blocks, head_kv, t.batch);
        tile = next_tile(s, tile);
        load_last_v(sm.kv, v_at, params, n_blocks, head_kv, t.batch);
    }
    mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
    end_of_work(sm.q, q_at.index);
}

/* Key block n, and the output of block n - 1 (there is none before block 0). */
template <class C, bool FIRST>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct params &params, int w, int row,
                                            int n, bool mask)
{
    float top[2], alpha[2];
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    issue_qk<C>(x.s, x.q, kv.k[x.k_at.index]);
    if (!FIRST) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    release_turn<C>(w);
    wgmma_wait<FIRST ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    warpgroup_fence_operand(x.s);
    release(kv.k_empty, x.k_at);
    if (mask) mask_block<C>(x.s, params, row, n);
    row_maxima(x.s, top);
    bool grown = FIRST || has_grown(x.rows, top, x.c);
    if (grown) update_maximum(x.rows, top, x.c, alpha);
    exponentials(x.s, x.rows, x.c);
    if (!FIRST) {
        wgmma_wait<0>();
        warpgroup_fence_operand(x.o);
        release(kv.v_empty, x.v_at);
        if (grown) scale_rows(x.o, alpha);
        warpgroup_fence_operand(x.o);
    }
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.p);
}

/* Consumer w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct work_tile &t, int w, int q_index)
{
    int first = t.tile * C::Br + 64 * w, row = first + first_row(), n = 0;
    int n_tile = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
    int n_blocks = first < params.seqlen_q ? blocks_seen<C>(params, first + 63) : 0;
    int n_open = blocks_open<C>(params, first);
    clear(x.rows, x.o);
    if (n_blocks > 0) {
        x.q = descriptor_qk(sm.q.q[q_index] + w * 64 * 64);
        step<C, true>(x, sm.kv, params, w, row, n++, n_open == 0);
        for (; n < n_open; n++) step<C, false>(x, sm.kv, params, w, row, n, false);
        for (; n < n_blocks; n++) step<C, false>(x, sm.kv, params, w, row, n, true);
    }
    release_q(&sm.q.empty[q_index]);
    if (n_blocks > 0) last_pv(x, sm.kv);
    for (; n < n_tile; n++) { /* the other consumer needs these */
        acquire_turn(w);
        release_turn<C>(w);
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w);
    }
    store_tile<C>(x.o, sm.o, params, t, w, [&](int row, size_t head) {
        normalize(x.o, x.rows, params, row, head);
    });
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               int w)
{
    consumer<C> x;
    struct pipeline_state q_at = {0, 0};
    x.c = params.c;
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) release_turn<C>(w); /* consumer 0 begins */
    for (;; advance<C::Q_STAGES>(q_at)) {
        mbarrier_wait(&sm.q.full[q_at.index], q_at.phase);
        const struct work_tile t = sm.q.tile[q_at.index];
        if (t.tile < 0) break;
        attend(x, sm, params, t, w, q_at.index);
    }
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    heavy_first_kernel(const __grid_constant__ struct params params, const struct scheduler s)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        q_init(sm.q);
        kv_init(sm.kv);
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(sm, params, s);
    } else {
        setmaxnreg_inc<C::REGISTERS>();
        consume(sm, params, w - 1);
    }
}

template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    using C = config<T, D>;
    const struct params params = params_of(p, a, C::Br, C::Bc);
    const struct scheduler s = scheduler_of(params, p, a);
    int blocks = persistent_blocks(s.n_tiles);
    start(heavy_first_kernel<C>, blocks, C::THREADS, sizeof(memory<C>), a->stream, params, s);
}

/* The counter that gives out work tiles. */
static size_t workspace(const struct problem *) { return sizeof(int); }

HOPPER_RUNG(heavy_first, "heaviest tiles first", workspace);
