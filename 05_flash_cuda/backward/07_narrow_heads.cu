/* arch: sm_90a */
/* 07_narrow_heads.cu: rung 7 of the backward ladder: head dims up to 64, three consumers.
 *
 * In rung 5 the tensor cores idle for a third of the time: both consumers compute, or one waits for
 * the other.  At d = 64 dK and dV of 64 keys take only 64 registers.  With tiles of 64 queries a
 * consumer needs 160, so there is room for a third: while one takes exponentials and one computes
 * ds, the third multiplies.  A block has 192 keys, and adds to each dq less often.
 *
 *     issued:    S(u) dP(u) |      | dV(u)       | dK(u) and in turn dQ(u-1)
 *     computed:             | p(u) |       ds(u) |
 *
 * dQ = dS K is one product of 64 x 64.  Who has its turn multiplies dS of the tile before, which
 * the others wrote long ago.  Here a place of dS needs an empty barrier: two of three consumers do
 * not know when the third has read it.  The weights of lse's and D's terms lie in shared memory,
 * because 160 registers have no room for them.
 *
 * And blocks last, one for each multiprocessor, as in the forward ladder.  K and V have two places:
 * while consumers end with one tile of keys, K, V, Q and dO of the next arrive.  That matters
 * where a tile of keys meets few queries. */
#include "backward/adder.h"
#include "backward/narrow_memory.h"

template <class Type, enum dtype DTYPE, int HEAD_DIM> struct narrow_config {
    using T = Type;
    static constexpr enum dtype TYPE_OF_T = DTYPE;
    static constexpr int CONSUMERS = 3;
    static constexpr int STEP = 1;
    static constexpr bool PACKED = false;
    static constexpr int D = HEAD_DIM, Bc = 64 * CONSUMERS, Br = 64, STAGES = 2, DO_STAGES = 2;
    static constexpr int DQ_BLOCKS = 1; /* in a tile */
    static constexpr int THREADS = 128 * (CONSUMERS + 1);
    static_assert(D == 64, "dQ of a tile is one product");
};

/* ---- the producer and the adder, one thread each ---- */

template <class C, enum dtype T, class WORK>
static __device__ __forceinline__ void produce_all(narrow_memory<C> &sm,
                                                   const struct backward_params<T> &params,
                                                   WORK set_nth)
{
    const struct gradient<T> &x = params.x;
    const int tiles = x.batch * x.heads_kv * x.key_tiles;
    struct pipeline_state at = {0, 1};
    int n = C::STEP ? blockIdx.x : atomicAdd(params.counter, 1);
    for (struct pipeline_state keys = {0, 1};; advance<2>(keys)) {
        any_work<C> &w = sm.work[keys.index];
        mbarrier_wait(&sm.kv_empty[keys.index], keys.phase);
        if (n >= tiles) {
            w.n = -1;
            return mbarrier_arrive(&sm.kv_full[keys.index]);
        }
        set_nth(w, n);
        load_keys<C>(sm.k[keys.index], sm.v[keys.index], &sm.kv_full[keys.index], params, w);
        load_queries<C>(sm, params, w, at);
        /* whoever has time takes the next */
        n = (C::STEP ? gridDim.x : 0) + atomicAdd(params.counter, 1);
    }
}

template <class C, enum dtype T>
static __device__ __forceinline__ void add_all(narrow_memory<C> &sm,
                                               const struct backward_params<T> &params)
{
    struct pipeline_state at = {0, 0};
    for (struct pipeline_state keys = {0, 0};; advance<2>(keys)) {
        mbarrier_wait(&sm.kv_full[keys.index], keys.phase);
        const struct key_work w = sm.work[keys.index];
        const struct gradient<T> &x = problem_of<C>(params, sm.work[keys.index]);
        if (w.n < 0) return;
        for (int h = 0; h < x.group; h++)
            for (int t = w.first; t < w.first + w.n; t++, advance<2>(at)) {
                const int block = dq_block<C>(x, w.head_kv * x.group + h, t * C::Br, 0);
                mbarrier_wait(&sm.dq_full[at.index], at.phase);
                tma_add_floats(x.dq_sum + (ptrdiff_t)block * 4096, sm.dq[at.index]);
                tma_store_commit();
                tma_store_wait_read();
                mbarrier_arrive(&sm.dq_empty[at.index]);
            }
        mbarrier_arrive(&sm.kv_empty[keys.index]);
    }
}

/* ---- a consumer ---- */

struct narrow_consumer {
    float dk[32], dv[32];
    int u;    /* tiles of queries so far, of all tiles of keys */
    int turn; /* tiles until it multiplies dQ; CONSUMERS: it has just done so */
    int keys; /* tiles of keys so far */
};

/* Multiplies dS of the tile before, waits for all products issued, and hands dQ over. */
template <class C>
static __device__ __forceinline__ void multiply_dq(narrow_memory<C> &sm, const narrow_consumer &y)
{
    const int u = y.u - 1;
    float dq[32];
    mbarrier_wait(&sm.ds_full[u & 1], phase_of(u));
    wgmma_fence();
    issue_dq<C>(dq, sm.ds[u & 1], sm.k[y.keys & 1], 0);
    wgmma_wait<0>();
    warpgroup_fence_operand(dq);
    __syncwarp();
    mbarrier_arrive_if(&sm.ds_empty[u & 1], threadIdx.x % 32 == 0);
    hand_over(sm, u & 1, phase_of(u) ^ 1, dq);
}

/* Writes dS of this tile; after it the other consumers may multiply it. */
template <class C>
static __device__ __forceinline__ void write_ds(narrow_memory<C> &sm, const narrow_consumer &y,
                                                const uint32_t (&packed)[C::Br / 4], int w)
{
    mbarrier_wait(&sm.ds_empty[y.u & 1], phase_of(y.u) ^ 1);
    put_ds<C>(sm.ds[y.u & 1], packed, w);
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(&sm.ds_full[y.u & 1], threadIdx.x % 32 == 0);
}

/* The warp is done with Q and dO.  It arrives for itself: of a tile that was passed over no product
 * says that the other warps have seen it.  On to the next tile. */
template <class C>
static __device__ __forceinline__ void next_tile(narrow_consumer &y, narrow_memory<C> &sm)
{
    __syncwarp();
    mbarrier_arrive_if(&sm.q_empty[y.u & 1], threadIdx.x % 32 == 0);
    mbarrier_arrive_if(&sm.do_empty[y.u & 1], threadIdx.x % 32 == 0);
    y.u++;
    y.turn = y.turn ? y.turn - 1 : C::CONSUMERS - 1;
}

/* A tile whose queries see none of the consumer's keys: its dS is 0. */
template <class C>
static __device__ __forceinline__ void pass_over(narrow_consumer &y, narrow_memory<C> &sm, int w)
{
    const uint32_t zeros[C::Br / 4] = {};
    if (!y.turn) multiply_dq(sm, y);
    write_ds(sm, y, zeros, w);
    mbarrier_wait(&sm.q_full[y.u & 1], phase_of(y.u));
    mbarrier_wait(&sm.do_full[y.u & 1], phase_of(y.u));
    next_tile(y, sm);
}

/* The tile of queries i_0 ..., and dQ of the tile before if it is the consumer's turn and the tile
 * is not the first of these keys. */
template <class C, enum dtype T>
static __device__ __forceinline__ void step(narrow_consumer &y, narrow_memory<C> &sm,
                                            const struct backward_params<T> &params,
                                            const any_work<C> &work, int i_0)
{
    const struct gradient<T> &x = problem_of<C>(params, work);
    const int w = warpgroup_index() - 1, j = work.j_0 + 64 * w;
    if (j >= x.seqlen_k || !sees_some<C>(x, i_0, j)) return pass_over(y, sm, w);
    const bool open = sees_all<C>(x, i_0, j, 64);
    struct queries<C> &tile = sm.tile[y.u & 1];
    const uint64_t weights = descriptor_of_weights(sm.weights);
    float s[C::Br / 2], dp[C::Br / 2];
    uint32_t p_packed[C::Br / 4], ds_packed[C::Br / 4];
    mbarrier_wait(&sm.q_full[y.u & 1], phase_of(y.u));
    wgmma_fence();
    issue_scores<C>(s, sm.k[y.keys & 1] + w * 64 * 64, tile.q, tile.lse, weights);
    mbarrier_wait(&sm.do_full[y.u & 1], phase_of(y.u));
    wgmma_fence();
    issue_scores<C>(dp, sm.v[y.keys & 1] + w * 64 * 64, tile.d_o, tile.D_i, weights);
    wgmma_wait<1>(); /* S has completed, dP may still run */
    warpgroup_fence_operand(s);
    exponentials<C>(s, params.c);
    if (!open) hide<C>(s, x, j, i_0);
    pack_weights<typename C::T>(s, p_packed);
    warpgroup_fence_operand(p_packed);
    wgmma_fence();
    issue_rows<C>(y.dv, p_packed, tile.d_o);
    wgmma_wait<1>(); /* dP has completed, dV may still run */
    warpgroup_fence_operand(dp);
    gradients_of_scores<C>(dp, s);
    if (!open) hide<C>(dp, x, j, i_0);
    pack_weights<typename C::T>(dp, ds_packed);
    write_ds(sm, y, ds_packed, w);
    warpgroup_fence_operand(ds_packed);
    wgmma_fence();
    issue_rows<C>(y.dk, ds_packed, tile.q);
    if (!y.turn) multiply_dq(sm, y);
    wgmma_wait<0>();
    warpgroup_fence_operand(y.dv);
    warpgroup_fence_operand(y.dk);
    next_tile(y, sm);
}

template <class C, enum dtype T>
static __device__ __forceinline__ void consume_all(narrow_memory<C> &sm,
                                                   const struct backward_params<T> &params, int w)
{
    narrow_consumer y;
    y.u = 0, y.turn = w ? w : C::CONSUMERS;
    for (y.keys = 0;; y.keys++) {
        const any_work<C> &work = sm.work[y.keys & 1];
        const struct gradient<T> &x = problem_of<C>(params, work);
        mbarrier_wait(&sm.kv_full[y.keys & 1], phase_of(y.keys));
        if (work.n < 0) return;
#pragma unroll
        for (int i = 0; i < 32; i++) y.dk[i] = y.dv[i] = 0.0f;
        warpgroup_fence_operand(y.dk);
        warpgroup_fence_operand(y.dv);
        int i_0 = work.first * C::Br;
#pragma unroll 1
        for (int left = work.n * x.group; left; left--) {
            step(y, sm, params, work, i_0);
            i_0 = next_queries<C>(work, i_0); /* and of the next head */
        }
        if (work.n && !y.turn) {
            multiply_dq(sm, y);
            y.turn = C::CONSUMERS;
        }
        const ptrdiff_t keys = keys_before<C>(x, work.head_kv);
        const int j = work.j_0 + 64 * w + first_row();
        store_gradient<typename C::T>(x.dk + keys * x.head_dim, y.dk, x.scale, j, x.seqlen_k, 0,
                                      x.head_dim);
        store_gradient<typename C::T>(x.dv + keys * x.head_dim_v, y.dv, 1.0f, j, x.seqlen_k, 0,
                                      x.head_dim_v);
        __syncwarp();
        mbarrier_arrive_if(&sm.kv_empty[y.keys & 1], threadIdx.x % 32 == 0);
    }
}

/* A block that lasts.
 *   add  the adder's loop      set_nth  sets the work of the n-th tile of keys to begin */
template <class C, enum dtype T, class ADD, class WORK>
static __device__ __forceinline__ void lasting_block(narrow_memory<C> &sm,
                                                     const struct backward_params<T> &params,
                                                     ADD add, WORK set_nth)
{
    if (threadIdx.x == 0) {
        init_place(sm, 0);
        init_place(sm, 1);
        fence_mbarrier_init();
    }
    set_weights<C>(sm.weights);
    __syncthreads();
    const int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<32>();
        if (threadIdx.x == 0) produce_all(sm, params, set_nth);
        if (threadIdx.x == 32) add();
    } else {
        setmaxnreg_inc<160>();
        consume_all<C>(sm, params, w - 1);
    }
}

#ifndef BESIDE_RUNG_7 /* 08_in_order.cu takes what stands above */
template <class C, enum dtype T>
static __global__ void __launch_bounds__(C::THREADS, 1)
    gradient_narrow_heads_kernel(const __grid_constant__ struct backward_params<T> params)
{
    narrow_memory<C> &sm = dynamic_shared<narrow_memory<C>>();
    lasting_block(
        sm, params, [&] { add_all<C>(sm, params); },
        [&](any_work<C> &w, int n) { set_work<C>(w, params, nth_narrow_tile(params, n)); });
}

static void backward(const struct problem *p, const struct arrays *a)
{
    with_config<narrow_config, 64>(p, [&](auto c) {
        using C = decltype(c);
        struct backward_params<C::TYPE_OF_T> params = backward_params_of<C>(p, a);
        params.counter = (int *)((char *)a->workspace + backward_workspace<C>(p));
        launch_backward<C, narrow_memory<C>>(gradient_narrow_heads_kernel<C, C::TYPE_OF_T>, params,
                                             a->stream, true);
    });
}

static size_t workspace(const struct problem *p)
{
    return workspace_of<narrow_config, 64>(p) + sizeof(int);
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, 192); }

static const char *refuses(const struct problem *p)
{
    return p->head_dim > 64 || p->head_dim_v > 64 ? "a head_dim above 64" : narrow_refuses(p);
}

GPU_VARIANT(gradient_narrow_heads, "three consumers: d = 64",
    HOPPER_GRADIENT, .in_any_order = 1, .refuses = refuses, .yields = is_faster_in_order,
    .workspace = workspace, .cost = cost, .does = {{OP_BACKWARD, backward}});
#endif
