/* arch: sm_90a */
/* Rung 11: overlap inside a warpgroup (FlashAttention-3).  The softmax of block n overlaps
 * P V of block n - 1.
 *
 * Both products of a turn are issued as in rung 10, but the consumer waits only for the first:
 * the tensor cores go on with P V while it takes the exponentials.
 *
 *     tensor cores    Q K^T (n)  P V (n-1)            Q K^T (n+1)  P V (n)
 *     this consumer              softmax (n) ......               softmax (n+1) ......
 *
 * Nothing may touch o and p until P V has completed, so the weights stay in s until then.  While
 * a product runs, no mask may depend on a run-time condition, or ptxas serializes the product.
 * So there is a loop for blocks without masked keys, and one for the others. */
#include "params.h"
#include "one_tile.h"
#include "turns.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = D == 64 ? 4 : 2, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 128 ? 128 : 64;
    static constexpr int K_STAGES = D == 64 ? 4 : 2, V_STAGES = K_STAGES;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = D == 64 ? 32 : 40, REGISTERS = D == 64 ? 112 : 232;
};

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
                                              const struct work_tile &t, int w)
{
    int first = t.tile * C::Br + 64 * w, row = first + first_row(), n = 0;
    int n_tile = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
    int n_blocks = first < params.seqlen_q ? blocks_seen<C>(params, first + 63) : 0;
    int n_open = blocks_open<C>(params, first);
    clear(x.rows, x.o);
    if (n_blocks > 0) {
        step<C, true>(x, sm.kv, params, w, row, n++, n_open == 0);
        for (; n < n_open; n++) step<C, false>(x, sm.kv, params, w, row, n, false);
        for (; n < n_blocks; n++) step<C, false>(x, sm.kv, params, w, row, n, true);
        last_pv(x, sm.kv);
    }
    for (; n < n_tile; n++) { /* the other consumer needs these */
        acquire_turn(w);
        release_turn<C>(w);
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w);
    }
    epilogue(x, sm, params, t, w);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               int w)
{
    consumer<C> x;
    const struct work_tile t = work_tile_of(params, blockIdx.x);
    x.c = params.c;
    x.k_at = x.v_at = {0, 0};
    mbarrier_wait(&sm.q_full, 0);
    if (w == C::WARPGROUPS - 1) release_turn<C>(w); /* consumer 0 begins */
    x.q = descriptor_qk(sm.q + w * 64 * 64);
    attend(x, sm, params, t, w);
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    intra_warpgroup_overlap_kernel(const __grid_constant__ struct params params)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        mbarrier_init(&sm.q_full, 1);
        kv_init(sm.kv);
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(sm, params);
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
    int n_tiles = n_work_tiles(params, p);
    start(intra_warpgroup_overlap_kernel<C>, n_tiles, C::THREADS, sizeof(memory<C>), a->stream,
          params);
}

HOPPER_RUNG(intra_warpgroup_overlap, "softmax overlaps P V");
