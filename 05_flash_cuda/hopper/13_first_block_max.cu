/* arch: sm_90a */
/* Rung 13: the maximum of the first key block only, and a repair.
 *
 * m need not be the maximum (rung 6): it must keep 2^(s c - m c) in range, and a bfloat16
 * reaches from 2^-126 to 2^127.  So m is the maximum of the row's first block; the loop has no
 * maximum, no exchange between lanes, no rescaling.  After each block the warp votes whether some
 * l has passed 2^76, so that a row may be 2^90 above m.  Nothing is lost yet: P V of this block has
 * not been issued, and its K is still in the pipeline (the price: K is released later).  The warp
 * alone computes the block again with its maximum (first_block.h), by rung 3's mma.sync, whose scores
 * lie in the same lanes as those of wgmma.  float16 ends at 2^16, and at d = 256 the maximum is hidden:
 * both are computed as in rung 12.  The repair has fragments of Q, and at d = 128 they stay: registers
 * are free now, and no product Q K^T reads Q from shared memory. */
#include "first_block.h"
#include "params.h"
#include "q_fragments.h"
#include "scheduler.h"
#include "store.h"
#include "turns.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = D == 64 ? 4 : 2, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 128 ? 128 : 64;
    static constexpr int K_STAGES = D == 64 ? 4 : 2, V_STAGES = K_STAGES;
    static constexpr bool FIRST_BLOCK_MAX = D <= 128 && std::is_same_v<T, __nv_bfloat16>;
    static constexpr int K_ARRIVALS = FIRST_BLOCK_MAX ? 4 : 1; /* by each warp, or one for all */
    static constexpr bool Q_IN_REGISTERS = D == 128;
    static constexpr int Q_STAGES = D == 256 ? 1 : 2;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = D == 64 ? 32 : 40, REGISTERS = D == 64 ? 112 : 232;
    static constexpr bool TMA_STORE = D <= 128; /* shared memory is left for a tile of o */
};

template <class C> struct memory {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::TMA_STORE ? C::Br * C::D : 8];
    float c; /* for registers: ptxas loads a parameter anew in every block (hopper.md, section 6) */
};

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer {
    float s[C::Bc / 2], o[C::D / 2], c; /* c = scale log2(e) */
    uint32_t p[C::Bc / 4];
    q_operand<C> q;
    const typename C::T *q_rows;
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

/* Block n again with its maximum; `l` is the rows' l without it.  It is not in o yet. */
template <class C>
static __device__ __forceinline__ void repair(consumer<C> &x, const typename C::T *k,
                                              const struct params &params, int row, int n,
                                              bool mask, const float (&l)[2])
{
    float top[2], alpha[2];
    warp_scores<C>(x.s, x.q, x.q_rows, k);
    fence_proxy_async(); /* the warp's ordinary loads of K come before its release */
    __syncwarp();
    if (mask) mask_block<C>(x.s, params, as_new(row), n); /* or step() stores its comparisons */
    row_maxima(x.s, top);
    repair_rows(x.rows, l, top, x.c, alpha);
    exponentials(x.s, x.rows, x.c);
    scale_rows(x.o, alpha);
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.o);
    warpgroup_fence_operand(x.p);
}

/* Key block n, and the output of block n - 1 (there is none before block 0). */
template <class C, bool FIRST>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct params &params, int w, int row,
                                            int n, bool mask)
{
    float top[2], alpha[2];
    int k_index = x.k_at.index;
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    issue_qk<C>(x.s, x.q, kv.k[x.k_at.index]);
    if (!FIRST) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    pass_turn_on<C>(w);
    wgmma_wait<FIRST ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    warpgroup_fence_operand(x.s);
    if (!C::FIRST_BLOCK_MAX) release(kv.k_empty, x.k_at);
    if (mask) mask_block<C>(x.s, params, row, n);
    if (FIRST || !C::FIRST_BLOCK_MAX) row_maxima(x.s, top);
    bool grown = !C::FIRST_BLOCK_MAX && (FIRST || has_grown(x.rows, top, x.c));
    if (grown) update_maximum(x.rows, top, x.c, alpha);
    if (FIRST && C::FIRST_BLOCK_MAX) refer_to(x.rows, top, x.c, alpha);
    const float l[2] = {x.rows.l[0], x.rows.l[1]};
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
    if (C::FIRST_BLOCK_MAX) {
        advance<C::K_STAGES>(x.k_at);
        if (any_has_outgrown(x.rows))
            repair(x, kv.k[k_index], params, row, n, mask, l);
        mbarrier_arrive_if(&kv.k_empty[k_index], threadIdx.x % 32 == 0);
    }
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
        x.q_rows = sm.q.q[q_index] + w * 64 * 64;
        set_q<C>(x.q, x.q_rows);
        step<C, true>(x, sm.kv, params, w, row, n++, n_open == 0);
        for (; n < n_open; n++) step<C, false>(x, sm.kv, params, w, row, n, false);
        for (; n < n_blocks; n++) step<C, false>(x, sm.kv, params, w, row, n, true);
    }
    release_q(&sm.q.empty[q_index]);
    if (n_blocks > 0) last_pv(x, sm.kv);
    for (; n < n_tile; n++) { /* the other consumer needs these */
        acquire_turn(w);
        pass_turn_on<C>(w);
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w, C::K_ARRIVALS);
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
    x.c = *(volatile float *)&sm.c;
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) pass_turn_on<C>(w); /* consumer 0 begins */
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
    first_block_max_kernel(const __grid_constant__ struct params params, const struct scheduler s)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        q_init(sm.q);
        kv_init(sm.kv, C::K_ARRIVALS);
        sm.c = params.c;
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
    start(first_block_max_kernel<C>, blocks, C::THREADS, sizeof(memory<C>), a->stream, params, s);
}

/* The counter that gives out work tiles. */
static size_t workspace(const struct problem *) { return sizeof(int); }

HOPPER_RUNG(first_block_max, "first block's maximum", workspace);
