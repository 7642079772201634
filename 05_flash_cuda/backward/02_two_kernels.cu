/* 02_two_kernels.cu: rung 2 of the backward ladder.  No atomics: dk and dv first, then
 * dq.
 *
 * In rung 1 dq is a sum over blocks.  Here a second kernel turns the loops round: a block
 * owns a tile of queries, holds its dq in registers, and the keys go by.  Every number is
 * written once, and its terms are always added in the same order: the same bits in every
 * run.
 *
 * The price: both kernels need p and ds, so s and dp are computed twice, seven products
 * instead of five. */
#include "backward/float_tiles.h"

/* p and ds of the tiles in shared memory. */
template <class S>
static __device__ __forceinline__ void weigh(typename S::scores &p, typename S::scores &ds,
                                             const typename S::tiles &shared,
                                             const struct gradient<F32> &x, int head, int i_0, int j_0)
{
    const int ty = threadIdx.x / S::TX, tx = threadIdx.x % S::TX;
    multiply_rows<S>(p, &shared.q[ty], &shared.k[tx]);
    multiply_rows<S>(ds, &shared.d_o[ty], &shared.v[tx]);
    p_and_ds<S>(p, ds, x, shared, head, i_0, j_0);
}

/* dk and dv of the block's keys from one tile of queries. */
template <class S, bool SKIP>
static __device__ void add_queries(typename S::key_rows &dk, typename S::key_rows &dv,
                                   typename S::tiles &shared, const struct gradient<F32> &x,
                                   int head, int i_0, int j_0)
{
    const int keys = threadIdx.x / S::CX * S::KEYS, column = threadIdx.x % S::CX * 4;
    typename S::scores p, ds;
    weigh<S>(p, ds, shared, x, head, i_0, j_0);
    put_weights<S>(shared, p);
    __syncthreads(); /* p is complete */
    sum_over_queries<S, SKIP>(dv, &shared.w[0][keys], &shared.d_o[0][column]);
    __syncthreads(); /* nobody reads p any more */
    put_weights<S>(shared, ds);
    __syncthreads(); /* ds is complete */
    sum_over_queries<S, SKIP>(dk, &shared.w[0][keys], &shared.q[0][column]);
}

/* Block (b * heads_kv + h) * key_tiles + t: keys t * Bc ... of key head h of batch b. */
template <class S>
static __global__ void __launch_bounds__(S::THREADS) dk_dv_kernel(const struct gradient<F32> x)
{
    typename S::tiles &shared = dynamic_shared<typename S::tiles>();
    const int head_kv = blockIdx.x / x.key_tiles, j_0 = blockIdx.x % x.key_tiles * S::Bc;
    const struct key_range32 seen = queries_of(x.mask, x.seqlen_q, j_0, j_0 + S::Bc);
    typename S::key_rows dk = {}, dv = {};
    load_keys<S>(shared, x, head_kv, j_0);
    for (int h = 0; h < x.group; h++)
        for (int i_0 = seen.first / S::Br * S::Br; i_0 < seen.end; i_0 += S::Br) {
            const int head = head_kv * x.group + h;
            const int nonfinite = load_queries<S>(shared, x, head, i_0);
            if (__syncthreads_or(nonfinite)) add_queries<S, true>(dk, dv, shared, x, head, i_0, j_0);
            else add_queries<S, false>(dk, dv, shared, x, head, i_0, j_0);
            __syncthreads(); /* nobody reads the tiles any more */
        }
    store_keys<S>(x, dk, dv, head_kv, j_0);
}

/* Block head * query_tiles + t: queries t * Br ... of query head `head`, b * heads_q + h. */
template <class S>
static __global__ void __launch_bounds__(S::THREADS) dq_kernel(const struct gradient<F32> x)
{
    typename S::tiles &shared = dynamic_shared<typename S::tiles>();
    const int head = blockIdx.x / x.query_tiles, i_0 = blockIdx.x % x.query_tiles * S::Br;
    const struct key_range32 seen =
        some_row_sees(x.mask, i_0, min(i_0 + S::Br, x.seqlen_q));
    const int row = threadIdx.x / S::CX, column = threadIdx.x % S::CX * 4;
    typename S::query_rows dq = {};
    load_queries<S>(shared, x, head, i_0);
    for (int j_0 = seen.first / S::Bc * S::Bc; j_0 < seen.end; j_0 += S::Bc) {
        const int nonfinite =
            __syncthreads_or(load_keys<S>(shared, x, head / x.group, j_0));
        typename S::scores p, ds;
        weigh<S>(p, ds, shared, x, head, i_0, j_0);
        put_weights<S>(shared, ds);
        __syncthreads(); /* ds is complete */
        if (nonfinite) sum_over_keys<S, true>(dq, &shared.w[row], &shared.k[0][column]);
        else sum_over_keys<S, false>(dq, &shared.w[row], &shared.k[0][column]);
        __syncthreads(); /* nobody reads the tiles any more */
    }
#pragma unroll
    for (int a = 0; a < S::ROWS; a++) {
        const int i = i_0 + row + S::THREADS / S::CX * a;
        if (i >= x.seqlen_q) continue;
        put_columns<S>(x.dq + ((ptrdiff_t)head * x.seqlen_q + i) * x.head_dim, x.head_dim, dq[a],
                       x.scale, [](float *to, float y) { *to = y; });
    }
}

static void backward(const struct problem *p, const struct arrays *a)
{
    with_float_shape(p, [&](auto s) {
        using S = decltype(s);
        const struct gradient<F32> x = gradient_of<F32>(p, a, S::Br, S::Bc);
        const size_t key_blocks = p->batch * p->heads_kv * x.key_tiles;
        const size_t query_blocks = p->batch * p->heads_q * x.query_tiles;
        launch_row_sums<F32>(x, a->stream);
        if (key_blocks)
            start<typename S::tiles>(dk_dv_kernel<S>, key_blocks, S::THREADS, a->stream, x);
        if (query_blocks)
            start<typename S::tiles>(dq_kernel<S>, query_blocks, S::THREADS, a->stream, x);
    });
}

static struct cost cost(const struct problem *p)
{
    return gradient_cost(p, float_shape<64>::Bc, 2);
}

GPU_VARIANT(gradient_two_kernels) = {
    .name = "gradient_two_kernels",
    .idea = "dk, dv first, then dq",
    FLOAT_GRADIENT,
    .refuses = float_refuses,
    .workspace = float_workspace,
    .cost = cost,
    .does = {{OP_BACKWARD, backward}},
    .on_gpu = GPU_TWIN(gradient_two_kernels),
};
