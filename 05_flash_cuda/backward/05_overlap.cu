/* arch: sm_90a */
/* 05_overlap.cu: rung 5 of the backward ladder: products of one tile overlap p and ds of
 * another.
 *
 * In rung 4 the tensor cores idle while both consumers compute p and ds: they meet at a
 * barrier for every tile, because each needs the other's dS at once.  Here a consumer
 * leaves dQ of tile u to the step of tile u + 1.  By then the other's dS has been
 * written, and the two may drift apart by half a step: one computes while the other
 * multiplies.
 *
 *     issued:    dQ(u-1) S(u) | dP(u)         | dV(u) | dK(u) | dQ(u) S(u+1) | ...
 *     computed:               | dQ(u-1), p(u) | ds(u) |
 *
 * p is computed while dP runs, ds while dV runs.
 *
 * dQ is handed over while S runs: TMA adds it to dq (adder.h).
 *
 * dS has two places in shared memory with a full barrier each.  They need no empty one: a
 * consumer that writes dS(u) has waited for the other's dS(u-1), which the other wrote
 * after its dQ(u-2), the last that read this place.
 *
 * At a causal diagonal the second consumer's keys are hidden from the first 64 queries: it passes
 * over a tile of 64 (d = 128).
 *
 * Blocks of a causal head begin with the first keys, which most queries see: heavy tiles first.
 * Eight heads take turns: else the heaviest block of the last head would begin when everybody
 * else is nearly done. */
#include "backward/adder.h"
#include "backward/hopper_launch.h"

/* What a consumer has in registers, and where it is in the pipelines. */
template <class C> struct gradient_consumer {
    float dk[C::D / 2], dv[C::D / 2];
    struct pipeline_state at;     /* of this tile of queries and of its dS: both have two places */
    int w;                        /* which consumer */
    uint32_t weights[4];          /* of the terms of lse and D */
};

/* Issues dQ of the tile whose dS lies at `ds`, once both consumers have written it. */
template <class C>
static __device__ __forceinline__ void issue_dq_of(float (&dq)[32], backward_memory<C> &sm,
                                                   struct pipeline_state ds, int w)
{
    mbarrier_wait(&sm.ds_full[ds.index], ds.phase);
    wgmma_fence();
    issue_dq<C>(dq, sm.ds[ds.index], sm.k, w);
}

/* A tile whose queries see none of the consumer's keys: its dS is 0. */
template <class C, bool FIRST>
static __device__ __forceinline__ void pass_over(gradient_consumer<C> &y, backward_memory<C> &sm)
{
    const struct pipeline_state at = y.at;
    const uint32_t zeros[C::Br / 4] = {};
    if (!FIRST) {
        float dq[32];
        issue_dq_of<C>(dq, sm, place_before(at), y.w);
        wgmma_wait<0>();
        warpgroup_fence_operand(dq);
        hand_over(sm, y.w, at.index, dq);
    }
    put_ds<C>(sm.ds[at.index], zeros, y.w);
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(&sm.ds_full[at.index], threadIdx.x % 32 == 0);
    mbarrier_wait(&sm.q_full[at.index], at.phase);
    mbarrier_wait(&sm.do_full[at.index], at.phase);
    named_barrier_sync(1 + y.w, 128); /* all have seen the tile: no product tells */
    mbarrier_arrive_if(&sm.do_empty[at.index], threadIdx.x % 128 == 0);
    release(sm.q_empty, y.at);
}

/* The tile of queries i_0 ..., and dQ of the tile before, unless it is the FIRST. */
template <class C, bool FIRST, enum dtype T>
static __device__ __forceinline__ void step(gradient_consumer<C> &y, backward_memory<C> &sm,
                                            const struct backward_params<T> &params,
                                            const any_work<C> &work, int i_0)
{
    const struct gradient<T> &x = problem_of<C>(params, work);
    if (!sees_some<C>(x, i_0, work.j_0 + 64 * y.w)) return pass_over<C, FIRST>(y, sm);
    const struct pipeline_state at = y.at;
    struct queries<C> &tile = sm.tile[at.index];
    float s[C::Br / 2], dp[C::Br / 2], dq[32];
    uint32_t p_packed[C::Br / 4], ds_packed[C::Br / 4];
    if (!FIRST) issue_dq_of<C>(dq, sm, place_before(y.at), y.w);
    mbarrier_wait(&sm.q_full[at.index], at.phase);
    wgmma_fence();
    issue_scores<C>(s, sm.k + y.w * 64 * 64, tile.q, tile.lse, y.weights);
    if (!FIRST) {
        wgmma_wait<1>(); /* dQ has completed, S may still run */
        warpgroup_fence_operand(dq);
        hand_over(sm, y.w, y.at.index, dq);
    }
    mbarrier_wait(&sm.do_full[at.index], at.phase);
    wgmma_fence();
    issue_scores<C>(dp, sm.v + y.w * 64 * 64, tile.d_o, tile.D_i, y.weights);
    wgmma_wait<1>(); /* S has completed, dP may still run */
    warpgroup_fence_operand(s);
    exponentials<C>(s, params.c);
    const bool open = sees_all<C>(x, i_0, work.j_0 + 64 * y.w, 64);
    if (!open) hide<C>(s, x, work.j_0 + 64 * y.w, i_0);
    pack_weights<typename C::T>(s, p_packed);
    warpgroup_fence_operand(p_packed);
    wgmma_fence();
    issue_rows<C>(y.dv, p_packed, tile.d_o);
    wgmma_wait<1>(); /* dP has completed, dV may still run */
    warpgroup_fence_operand(dp);
    gradients_of_scores<C>(dp, s);
    if (!open) hide<C>(dp, x, work.j_0 + 64 * y.w, i_0);
    pack_weights<typename C::T>(dp, ds_packed);
    put_ds<C>(sm.ds[y.at.index], ds_packed, y.w);
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(&sm.ds_full[y.at.index], threadIdx.x % 32 == 0);
    warpgroup_fence_operand(ds_packed);
    wgmma_fence();
    issue_rows<C>(y.dk, ds_packed, tile.q);
    wgmma_wait<0>();
    warpgroup_fence_operand(y.dv);
    warpgroup_fence_operand(y.dk);
    mbarrier_arrive_if(&sm.do_empty[at.index], threadIdx.x % 128 == 0);
    release(sm.q_empty, y.at); /* and on to the next */
}

/* All tiles of the block's work, head after head of the group. */
template <class C, enum dtype T>
static __device__ __forceinline__ void all_tiles(gradient_consumer<C> &y, backward_memory<C> &sm,
                                                 const struct backward_params<T> &params,
                                                 const any_work<C> &work)
{
    int i_0 = work.first * C::Br;
    float dq[32];
    step<C, true>(y, sm, params, work, i_0);
    for (int left = work.n * params.x.group - 1; left; left--) {
        i_0 = next_queries<C>(work, i_0); /* and of the next head */
        step<C, false>(y, sm, params, work, i_0);
    }
    issue_dq_of<C>(dq, sm, place_before(y.at), y.w);
    wgmma_wait<0>();
    warpgroup_fence_operand(dq);
    hand_over(sm, y.w, y.at.index, dq);
}

template <class C, enum dtype T>
static __device__ __forceinline__ void consume(backward_memory<C> &sm,
                                               const struct backward_params<T> &params, int w)
{
    const any_work<C> &work = sm.work;
    const struct gradient<T> &x = problem_of<C>(params, work);
    gradient_consumer<C> y;
#pragma unroll
    for (int i = 0; i < C::D / 2; i++) y.dk[i] = y.dv[i] = 0.0f;
    warpgroup_fence_operand(y.dk);
    warpgroup_fence_operand(y.dv);
    y.at = {0, 0};
    set_weights<C>(y.weights);
    y.w = w;
    mbarrier_wait(&sm.kv_full, 0);
    if (work.n) all_tiles(y, sm, params, work);
    const ptrdiff_t keys = keys_before<C>(x, work.head_kv);
    const int j = work.j_0 + 64 * w + first_row();
    store_gradient<typename C::T>(x.dk + keys * x.head_dim, y.dk, x.scale, j, x.seqlen_k, 0,
                                  x.head_dim);
    store_gradient<typename C::T>(x.dv + keys * x.head_dim_v, y.dv, 1.0f, j, x.seqlen_k, 0,
                                  x.head_dim_v);
}

#ifndef BESIDE_RUNG_5 /* 08_in_order.cu takes what stands above */
template <class C, enum dtype T>
static __global__ void __launch_bounds__(C::THREADS, 1)
    gradient_overlap_kernel(const __grid_constant__ struct backward_params<T> params)
{
    backward_memory<C> &sm = dynamic_shared<backward_memory<C>>();
    if (threadIdx.x == 0) {
        memory_init(sm);
        set_work<C>(sm.work, params, nth_tile(params, blockIdx.x));
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce<C>(sm, params);
        if (threadIdx.x == 32 || threadIdx.x == 64) add_all(sm, params, threadIdx.x / 32 - 1);
    } else {
        setmaxnreg_inc<240>();
        consume(sm, params, w - 1);
    }
}

static void backward(const struct problem *p, const struct arrays *a)
{
    with_config<staged_config, 64, 128>(p, [&](auto c) {
        using C = decltype(c);
        launch_backward<C, backward_memory<C>>(gradient_overlap_kernel<C, C::TYPE_OF_T>,
                                               backward_params_of<C>(p, a), a->stream);
    });
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, 128); }

GPU_VARIANT(gradient_overlap, "dQ one tile later",
    HOPPER_GRADIENT, .in_any_order = 1,
    .refuses = narrow_refuses, .yields = is_faster_in_order,
    .workspace = workspace_of<staged_config, 64, 128>, .cost = cost,
    .does = {{OP_BACKWARD, backward}});
#endif
