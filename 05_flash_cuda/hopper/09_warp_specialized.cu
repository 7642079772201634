/* arch: sm_90a */
/* Rung 9: warp specialization.  One warpgroup only issues copies; two or four compute.
 *
 * In rung 8 a copy waits until the warpgroup that issues it has used the tile before.  Here a
 * producer runs ahead as far as the stages of the pipeline let it.  It gives its registers to the
 * consumers, which share each tile of K and V: twice the queries or more for the same traffic.  A
 * consumer skips the blocks that none of its rows sees (causal).
 *
 * Registers decide how many consumers there are.  o and s of 64 rows take 128 registers a thread at
 * d = 128, and 64 at d = 64 with 64 keys.  There four fit, and are needed: exponentials take as long
 * as products, and both units must always have work. */
#include "params.h"
#include "one_tile.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = D == 64 ? 4 : 2, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 128 ? 128 : 64;
    static constexpr int K_STAGES = D == 64 ? 4 : 2, V_STAGES = K_STAGES;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = D == 64 ? 32 : 40, REGISTERS = D == 64 ? 112 : 232;
    static_assert(PRODUCER_REGISTERS + WARPGROUPS * REGISTERS <=
                      (WARPGROUPS + 1) * (65536 / THREADS / 8 * 8),
                  "no more registers than the launch gave");
};

/* Key block n. */
template <class C>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct params &params, int row, int n,
                                            bool mask)
{
    float top[2], alpha[2];
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    wgmma_fence();
    issue_qk<C>(x.s, x.q, kv.k[x.k_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.s);
    release(kv.k_empty, x.k_at);
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
    for (; n < n_blocks; n++) step<C>(x, sm.kv, params, row, n, n >= n_open);
    for (; n < n_tile; n++) /* the other consumer needs these */
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w);
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
    x.q = descriptor_qk(sm.q + w * 64 * 64);
    attend(x, sm, params, t, w);
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    warp_specialized_kernel(const __grid_constant__ struct params params)
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
    start(warp_specialized_kernel<C>, n_tiles, C::THREADS, sizeof(memory<C>), a->stream, params);
}

HOPPER_RUNG(warp_specialized, "a producer warp loads");
