/* arch: sm_90a */
/* Rung 10: ping-pong (FlashAttention-3).  The two consumers take turns at the tensor cores.
 *
 * Left alone, both consumers of rung 9 soon multiply at the same time and then take
 * exponentials at the same time, and each unit idles while the other works.  Here a consumer
 * may issue its products only after the other has issued its own:
 *
 *     consumer 0   Q K^T, P V | softmax      | Q K^T, P V | softmax
 *     consumer 1              | Q K^T, P V   | softmax    | Q K^T, P V
 *
 * For that the two products of a turn stand together: Q K^T of block n, P V of n - 1. */
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
    wgmma_wait<0>();
    warpgroup_fence_operand(x.s);
    warpgroup_fence_operand(x.o);
    release(kv.k_empty, x.k_at);
    if (!FIRST) release(kv.v_empty, x.v_at);
    if (mask) mask_block<C>(x.s, params, row, n);
    row_maxima(x.s, top);
    bool grown = FIRST || has_grown(x.rows, top, x.c);
    if (grown) update_maximum(x.rows, top, x.c, alpha);
    exponentials(x.s, x.rows, x.c);
    if (!FIRST && grown) scale_rows(x.o, alpha);
    pack_weights<typename C::T>(x.s, x.p);
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
    ping_pong_kernel(const __grid_constant__ struct params params)
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
    start(ping_pong_kernel<C>, n_tiles, C::THREADS, sizeof(memory<C>), a->stream, params);
}

HOPPER_RUNG(ping_pong, "consumers take turns");
