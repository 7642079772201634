/* arch: sm_90a */
/* 04_wgmma.cu: rung 4 of the backward ladder: wgmma, TMA and a producer warp.
 *
 * Rung 3's products and order, in Hopper's instructions (hopper_tiles.h).  A producer
 * thread brings tiles of queries, two ahead, as in `warp_specialized` of the forward
 * ladder.  Two consumer warpgroups share 128 keys, twice those of rung 3: each tile of
 * queries is read, and each dq added to, half as often. Four numbers of dq at a time are
 * added by one instruction, red.global.add.v4, in a buffer whose order is that of the
 * registers.  And lse and D are columns of the products: 16 more of K and V, and of Q and dO
 * (issue_scores()), so that nobody reads and subtracts them.
 *
 * A consumer issues products, waits for them, computes, issues the next: what overlaps is
 * what the other consumer happens to do. */
#include "backward/hopper_launch.h"

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct gradient_consumer {
    float dk[C::D / 2], dv[C::D / 2];
    struct pipeline_state at;
    uint32_t weights[4]; /* of the terms of lse and D */
    int ds; /* which of the two dS */
};

/* The tile of queries i_0 ... of head `head`; w: which consumer. */
template <class C, enum dtype T>
static __device__ __forceinline__ void step(gradient_consumer<C> &y, backward_memory<C> &sm,
                                            const struct backward_params<T> &params, int w,
                                            int j_0, int head, int i_0)
{
    const struct gradient<T> &x = problem_of<C>(params, sm.work);
    struct queries<C> &tile = sm.tile[y.at.index];
    float s[C::Br / 2], dp[C::Br / 2], dq[32];
    uint32_t p_packed[C::Br / 4], ds_packed[C::Br / 4];
    mbarrier_wait(&sm.q_full[y.at.index], y.at.phase);
    mbarrier_wait(&sm.do_full[y.at.index], y.at.phase);
    wgmma_fence();
    issue_scores<C>(s, sm.k + w * 64 * 64, tile.q, tile.lse, y.weights);
    issue_scores<C>(dp, sm.v + w * 64 * 64, tile.d_o, tile.D_i, y.weights);
    wgmma_wait<0>();
    warpgroup_fence_operand(s);
    warpgroup_fence_operand(dp);
    exponentials<C>(s, params.c);
    const bool open = sees_all<C>(x, i_0, j_0);
    if (!open) hide<C>(s, x, j_0 + 64 * w, i_0);
    gradients_of_scores<C>(dp, s);
    if (!open) hide<C>(dp, x, j_0 + 64 * w, i_0);
    pack_weights<typename C::T>(s, p_packed);
    pack_weights<typename C::T>(dp, ds_packed);
    put_ds<C>(sm.ds[y.ds], ds_packed, w);
    fence_proxy_async();
    named_barrier_sync(1, 256); /* dS of both consumers is complete */
    warpgroup_fence_operand(p_packed);
    warpgroup_fence_operand(ds_packed);
    wgmma_fence();
    issue_rows<C>(y.dv, p_packed, tile.d_o);
    issue_rows<C>(y.dk, ds_packed, tile.q);
    issue_dq<C>(dq, sm.ds[y.ds], sm.k, w);
    wgmma_wait<0>();
    warpgroup_fence_operand(y.dv);
    warpgroup_fence_operand(y.dk);
    warpgroup_fence_operand(dq);
    mbarrier_arrive_if(&sm.do_empty[y.at.index], threadIdx.x % 128 == 0);
    release(sm.q_empty, y.at);
    y.ds ^= 1;
    float *to =
        x.dq_sum + (ptrdiff_t)dq_block<C>(x, head, i_0, w) * 4096 + threadIdx.x % 128 * 4;
#pragma unroll
    for (int i = 0; i < 32; i += 4)
        add_four(to + i * 128, dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
}

template <class C, enum dtype T>
static __device__ __forceinline__ void consume(backward_memory<C> &sm,
                                               const struct backward_params<T> &params, int w)
{
    const any_work<C> &work = sm.work;
    const struct gradient<T> &x = problem_of<C>(params, work);
    const int j = work.j_0 + 64 * w + first_row();
    gradient_consumer<C> y;
#pragma unroll
    for (int i = 0; i < C::D / 2; i++) y.dk[i] = y.dv[i] = 0.0f;
    y.at = {0, 0};
    set_weights<C>(y.weights);
    y.ds = 0;
    mbarrier_wait(&sm.kv_full, 0);
    for (int h = 0; h < x.group; h++)
        for (int t = work.first; t < work.first + work.n; t++)
            step(y, sm, params, w, work.j_0, work.head_kv * x.group + h, t * C::Br);
    const ptrdiff_t keys = keys_before<C>(x, work.head_kv);
    store_gradient<typename C::T>(x.dk + keys * x.head_dim, y.dk, x.scale, j, x.seqlen_k, 0,
                                  x.head_dim);
    store_gradient<typename C::T>(x.dv + keys * x.head_dim_v, y.dv, 1.0f, j, x.seqlen_k, 0,
                                  x.head_dim_v);
}

template <class C, enum dtype T>
static __global__ void __launch_bounds__(C::THREADS, 1)
    gradient_wgmma_kernel(const __grid_constant__ struct backward_params<T> params)
{
    backward_memory<C> &sm = dynamic_shared<backward_memory<C>>();
    if (threadIdx.x == 0) {
        memory_init(sm);
        set_work<C>(sm.work, params, blockIdx.x);
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce<C>(sm, params);
    } else {
        setmaxnreg_inc<240>();
        consume(sm, params, w - 1);
    }
}

static void backward(const struct problem *p, const struct arrays *a)
{
    with_config<backward_config, 64, 128>(p, [&](auto c) {
        using C = decltype(c);
        launch_backward<C, backward_memory<C>>(gradient_wgmma_kernel<C, C::TYPE_OF_T>,
                                               backward_params_of<C>(p, a), a->stream);
    });
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, 128); }

GPU_VARIANT(gradient_wgmma, "wgmma, TMA, a producer",
    HOPPER_GRADIENT, .in_any_order = 1, .refuses = narrow_refuses,
    .workspace = workspace_of<backward_config, 64, 128>, .cost = cost,
    .does = {{OP_BACKWARD, backward}});
