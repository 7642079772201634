/* arch: sm_90a */
/* 06_wide_heads.cu: rung 6 of the backward ladder: head dims of 129 to 256.
 *
 * At d = 256 dK and dV of 64 keys fill 256 registers of a warpgroup.  So a block has 64 keys, and
 * its two consumers share the work by sums, not by keys: consumer 0 has dV, consumer 1 has dK, 128
 * registers each.
 *
 *     consumer 0     S^T = K Q^T       p         dV += P^T dO
 *     consumer 1     dP^T = V dO^T        ds     dK += dS^T Q
 *
 * Each has its left factor in its registers, as before.  Consumer 1 needs p, too: consumer 0
 * writes it, rounded, to the place where dS will lie, and each warp of consumer 1 reads the keys
 * that it then overwrites.  dQ = dS K is left to the next step as in rung 5; each consumer computes
 * two quarters of 64 columns.
 *
 * Neither P nor dS has an empty barrier.  Consumer 0 overwrites dS(u-2) with p(u).  Its own dQ(u-2)
 * has completed, for all its four warps: a wait speaks for the warpgroup (hopper_asynchrony.md,
 * section 3).  Consumer 1's has, too: each of its warps waited for it before it arrived for
 * ds(u-1), and consumer 0 has waited for these four arrivals to multiply dS(u-1).  Consumer 1
 * overwrites p(u) with dS(u), warp by warp what the same warp has read.
 *
 * 160 KB are tiles of K, V, Q (two) and dO (one), 16 KB dS, 32 KB parts of dq. */
#include "backward/adder.h"
#include "backward/hopper_launch.h"

/* Rung 5's, and the one place for dO. */
template <class C> struct wide_memory : backward_memory<C> {
    alignas(1024) typename C::T d_o[C::Br * C::D];
    uint64_t p_full[2];
};

template <class C> static __device__ __forceinline__ void memory_init(wide_memory<C> &sm)
{
    for (int i = 0; i < 2; i++) mbarrier_init(&sm.p_full[i], 4);
    memory_init<C>((backward_memory<C> &)sm);
}

template <class C>
static __device__ __forceinline__ typename C::T *d_o_of(wide_memory<C> &sm, int)
{
    return sm.d_o;
}

/* What a consumer has in registers, and where it is. */
template <class C> struct wide_consumer {
    float sum[C::D / 2];      /* dV or dK of the block's keys */
    struct pipeline_state at; /* of this tile of queries, and of its dS: both have two places */
    uint32_t weights[4];      /* of the terms of lse and D */
};

/* Issues quarter 2 W + K of dQ of the tile before. */
template <class C, int W, int K>
static __device__ __forceinline__ void issue_quarter(float (&dq)[32], wide_consumer<C> &y,
                                                     wide_memory<C> &sm)
{
    const struct pipeline_state ds = place_before(y.at);
    mbarrier_wait(&sm.ds_full[ds.index], ds.phase);
    wgmma_fence();
    issue_dq<C>(dq, sm.ds[ds.index], sm.k, 2 * W + K);
}

/* p of the warp's 16 keys, from where put_ds() put it. */
template <class C>
static __device__ __forceinline__ void get_p(float (&p)[C::Br / 2], const typename C::T *ds)
{
    const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
    const uint32_t chunk = threadIdx.x % 128 / 32 * 2 + lane / 8 % 2;
    const uint32_t from = shared_address(ds) + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll
    for (int i = 0; i < C::Br / 16; i++) {
        uint32_t packed[4];
        ldmatrix_transposed(packed, from + i * 16 * 128);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            p[8 * i + 2 * e] = as_float<C::TYPE_OF_T>((uint16_t)packed[e]);
            p[8 * i + 2 * e + 1] = as_float<C::TYPE_OF_T>((uint16_t)(packed[e] >> 16));
        }
    }
}

/* Consumer 0: S, p, dV; and two quarters of dQ of the tile before, unless it is the FIRST. */
template <class C, bool FIRST, enum dtype T>
static __device__ __forceinline__ void step_of_dv(wide_consumer<C> &y, wide_memory<C> &sm,
                                                  const struct backward_params<T> &params,
                                                  const any_work<C> &work, int i_0)
{
    const struct pipeline_state at = y.at;
    float s[C::Br / 2], dq[32];
    uint32_t packed[C::Br / 4];
    if (!FIRST) issue_quarter<C, 0, 0>(dq, y, sm);
    mbarrier_wait(&sm.q_full[at.index], at.phase);
    wgmma_fence();
    issue_scores<C>(s, sm.k, sm.tile[at.index].q, sm.tile[at.index].lse, y.weights);
    if (!FIRST) {
        wgmma_wait<1>();
        warpgroup_fence_operand(dq);
        hand_over(sm, 0, 1, dq);
    }
    wgmma_wait<0>();
    warpgroup_fence_operand(s);
    exponentials<C>(s, params.c);
    const struct gradient<C::TYPE_OF_T> &x = problem_of<C>(params, work);
    if (!sees_all<C>(x, i_0, work.j_0)) hide<C>(s, x, work.j_0, i_0);
    pack_weights<typename C::T>(s, packed);
    put_ds<C>(sm.ds[at.index], packed, 0);
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(&sm.p_full[at.index], threadIdx.x % 32 == 0);
    mbarrier_arrive_if(&sm.q_empty[at.index], threadIdx.x % 32 == 0);
    if (!FIRST) issue_quarter<C, 0, 1>(dq, y, sm);
    mbarrier_wait(&sm.do_full[0], (uint32_t)at.index); /* one place: its phase counts tiles */
    warpgroup_fence_operand(packed);
    wgmma_fence();
    issue_rows<C>(y.sum, packed, sm.d_o);
    if (!FIRST) {
        wgmma_wait<1>();
        warpgroup_fence_operand(dq);
        hand_over(sm, 0, 0, dq);
    }
    wgmma_wait<0>();
    warpgroup_fence_operand(y.sum);
    mbarrier_arrive_if(&sm.do_empty[0], threadIdx.x % 32 == 0);
    advance<2>(y.at);
}

/* Consumer 1: dP, ds, dK; and two quarters of dQ. */
template <class C, bool FIRST, enum dtype T>
static __device__ __forceinline__ void step_of_dk(wide_consumer<C> &y, wide_memory<C> &sm,
                                                  const struct backward_params<T> &params,
                                                  const any_work<C> &work, int i_0)
{
    const struct pipeline_state at = y.at;
    float dp[C::Br / 2], p[C::Br / 2], dq[32];
    uint32_t packed[C::Br / 4];
    if (!FIRST) issue_quarter<C, 1, 0>(dq, y, sm);
    mbarrier_wait(&sm.do_full[0], (uint32_t)at.index);
    wgmma_fence();
    issue_scores<C>(dp, sm.v, sm.d_o, sm.tile[at.index].D_i, y.weights);
    if (!FIRST) {
        wgmma_wait<1>();
        warpgroup_fence_operand(dq);
        hand_over(sm, 1, 1, dq);
        issue_quarter<C, 1, 1>(dq, y, sm);
        wgmma_wait<1>();
    } else {
        wgmma_wait<0>();
    }
    warpgroup_fence_operand(dp);
    mbarrier_wait(&sm.p_full[at.index], at.phase);
    get_p<C>(p, sm.ds[at.index]);
    gradients_of_scores<C>(dp, p);
    const struct gradient<C::TYPE_OF_T> &x = problem_of<C>(params, work);
    if (!sees_all<C>(x, i_0, work.j_0)) hide<C>(dp, x, work.j_0, i_0);
    pack_weights<typename C::T>(dp, packed);
    if (!FIRST) wgmma_wait<0>(); /* dS of the tile before the last is read no more */
    warpgroup_fence_operand(dq);
    __syncwarp();
    mbarrier_arrive_if(&sm.do_empty[0], threadIdx.x % 32 == 0);
    put_ds<C>(sm.ds[at.index], packed, 0);
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(&sm.ds_full[at.index], threadIdx.x % 32 == 0);
    mbarrier_wait(&sm.q_full[at.index], at.phase);
    warpgroup_fence_operand(packed);
    wgmma_fence();
    issue_rows<C>(y.sum, packed, sm.tile[at.index].q);
    if (!FIRST) hand_over(sm, 1, 0, dq);
    wgmma_wait<0>();
    warpgroup_fence_operand(y.sum);
    mbarrier_arrive_if(&sm.q_empty[at.index], threadIdx.x % 32 == 0);
    advance<2>(y.at);
}

/* The last two quarters of dQ. */
template <class C, int W>
static __device__ __forceinline__ void last_dq(wide_consumer<C> &y, wide_memory<C> &sm)
{
    float dq[32];
    issue_quarter<C, W, 0>(dq, y, sm);
    wgmma_wait<0>();
    warpgroup_fence_operand(dq);
    hand_over(sm, W, 1, dq);
    issue_quarter<C, W, 1>(dq, y, sm);
    wgmma_wait<0>();
    warpgroup_fence_operand(dq);
    hand_over(sm, W, 0, dq);
}

template <class C, int W, enum dtype T>
static __device__ __forceinline__ void consume_sum(wide_memory<C> &sm,
                                                   const struct backward_params<T> &params)
{
    const any_work<C> &work = sm.work;
    const struct gradient<T> &x = problem_of<C>(params, work);
    wide_consumer<C> y;
#pragma unroll
    for (int i = 0; i < C::D / 2; i++) y.sum[i] = 0.0f;
    warpgroup_fence_operand(y.sum);
    y.at = {0, 0};
    set_weights<C>(y.weights);
    mbarrier_wait(&sm.kv_full, 0);
    int i_0 = work.first * C::Br;
    for (int left = work.n * x.group; left; left--) {
        if (left == work.n * x.group)
            W ? step_of_dk<C, true>(y, sm, params, work, i_0)
              : step_of_dv<C, true>(y, sm, params, work, i_0);
        else
            W ? step_of_dk<C, false>(y, sm, params, work, i_0)
              : step_of_dv<C, false>(y, sm, params, work, i_0);
        i_0 = next_queries<C>(work, i_0); /* and of the next head */
    }
    if (work.n) last_dq<C, W>(y, sm);
    const ptrdiff_t keys = keys_before<C>(x, work.head_kv);
    const int cols = W ? x.head_dim : x.head_dim_v;
    store_gradient<typename C::T>((W ? x.dk : x.dv) + keys * cols, y.sum, W ? x.scale : 1.0f,
                                  work.j_0 + first_row(), x.seqlen_k, 0, cols);
}

template <class C, enum dtype T>
static __device__ __forceinline__ void consume(wide_memory<C> &sm,
                                               const struct backward_params<T> &params, int w)
{
    w == 0 ? consume_sum<C, 0>(sm, params) : consume_sum<C, 1>(sm, params);
}

#ifndef BESIDE_RUNG_6 /* 08_in_order.cu takes what stands above */
template <class C, enum dtype T>
static __global__ void __launch_bounds__(C::THREADS, 1)
    gradient_wide_heads_kernel(const __grid_constant__ struct backward_params<T> params)
{
    wide_memory<C> &sm = dynamic_shared<wide_memory<C>>();
    if (threadIdx.x == 0) {
        memory_init(sm);
        set_work<C>(sm.work, params, nth_tile(params, blockIdx.x));
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce<C>(sm, params);
        if (threadIdx.x == 32 || threadIdx.x == 64)
            add_all<C>(sm, params, threadIdx.x / 32 - 1);
    } else {
        setmaxnreg_inc<240>();
        consume(sm, params, w - 1);
    }
}

static void backward(const struct problem *p, const struct arrays *a)
{
    with_config<staged_config, 256>(p, [&](auto c) {
        using C = decltype(c);
        launch_backward<C, wide_memory<C>>(gradient_wide_heads_kernel<C, C::TYPE_OF_T>,
                                               backward_params_of<C>(p, a), a->stream);
    });
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, 64); }

static int yields(const struct problem *p)
{
    return is_faster_in_order(p) || !narrow_refuses(p);
}

GPU_VARIANT(gradient_wide_heads, "dk, dv apart: d = 256",
    HOPPER_GRADIENT, .in_any_order = 1, .refuses = wide_refuses, .yields = yields,
    .workspace = workspace_of<staged_config, 256>, .cost = cost,
    .does = {{OP_BACKWARD, backward}});
#endif
