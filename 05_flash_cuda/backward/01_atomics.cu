/* 01_atomics.cu: rung 1 of the backward ladder.  A block owns a tile of keys; the queries
 * go by.
 *
 * dk and dv of the tile stay in the registers of its threads.  For each tile of queries
 * the block computes five products:
 *
 *     s = q k^T    dp = do v^T    dv += p^T do    dk += ds^T q    dq = ds k
 *
 * A query meets every tile of keys, so its dq is a sum over blocks.  They add to it by
 * atomicAdd, in whatever order they come: two runs may differ in the last bits, and every
 * number of dq passes through the L2 cache once for each tile of keys.
 *
 * Query heads that share a key head go by one after another: dk and dv sum over the
 * group.  fp32 with every feature but strides, on any GPU.  (Dao 2023, FlashAttention-2,
 * section 3.1.2.) */
#include "backward/float_tiles.h"

/* The products of one tile of queries with the block's keys; without ADDS_DQ four (rung 2). */
template <class S, bool SKIP, bool ADDS_DQ>
static __device__ void add_tile(typename S::key_rows &dk, typename S::key_rows &dv,
                                typename S::tiles &shared, const struct gradient<F32> &x,
                                const struct model_terms &terms, int head, int i_0, int j_0)
{
    const int ty = threadIdx.x / S::TX, tx = threadIdx.x % S::TX;
    const int keys = threadIdx.x / S::CX * S::KEYS, column = threadIdx.x % S::CX * 4;
    typename S::scores p, ds;
    multiply_rows<S>(p, &shared.q[ty], &shared.k[tx]);
    multiply_rows<S>(ds, &shared.d_o[ty], &shared.v[tx]);
    p_and_ds<S>(p, ds, x, terms, shared, head, i_0, j_0);
    put_weights<S>(shared, p);
    __syncthreads(); /* p is complete */
    sum_over_queries<S, SKIP>(dv, &shared.w[0][keys], &shared.d_o[0][column]);
    __syncthreads(); /* nobody reads p any more */
    put_weights<S>(shared, ds);
    __syncthreads(); /* ds is complete */
    sum_over_queries<S, SKIP>(dk, &shared.w[0][keys], &shared.q[0][column]);
    if (!ADDS_DQ) return;
    typename S::query_rows dq = {};
    const int row = threadIdx.x / S::CX;
    sum_over_keys<S, SKIP>(dq, &shared.w[row], &shared.k[0][column]);
#pragma unroll
    for (int a = 0; a < S::ROWS; a++) {
        const int i = i_0 + row + S::THREADS / S::CX * a;
        if (i >= x.seqlen_q) continue;
        put_columns<S>(x.dq + ((ptrdiff_t)head * x.seqlen_q + i) * x.head_dim, x.head_dim, dq[a],
                       x.scale, [](float *to, float y) { atomicAdd(to, y); });
    }
}

/* Block (b * heads_kv + h) * key_tiles + t: keys t * Bc ... of key head h of batch b. */
template <class S, bool ADDS_DQ = true>
static __global__ void __launch_bounds__(S::THREADS)
    atomics_kernel(const struct gradient<F32> x, const struct model_terms terms)
{
    typename S::tiles &shared = dynamic_shared<typename S::tiles>();
    const int head_kv = blockIdx.x / x.key_tiles, j_0 = blockIdx.x % x.key_tiles * S::Bc;
    const struct key_range32 seen = queries_of(x.mask, x.seqlen_q, j_0, j_0 + S::Bc);
    typename S::key_rows dk = {}, dv = {};
    const int nonfinite = load_keys<S>(shared, x, head_kv, j_0);
    for (int h = 0; h < x.group; h++) {
        const int head = head_kv * x.group + h; /* b * heads_q + its number */
        for (int i_0 = seen.first / S::Br * S::Br; i_0 < seen.end; i_0 += S::Br) {
            const int also = load_queries<S>(shared, x, head, i_0);
            if (__syncthreads_or(also | (ADDS_DQ && nonfinite))) /* the tiles are complete */
                add_tile<S, true, ADDS_DQ>(dk, dv, shared, x, terms, head, i_0, j_0);
            else
                add_tile<S, false, ADDS_DQ>(dk, dv, shared, x, terms, head, i_0, j_0);
            __syncthreads(); /* nobody reads the tiles any more */
        }
    }
    store_keys<S>(x, dk, dv, head_kv, j_0);
}

#ifndef BESIDE_RUNG_1 /* 02_two_kernels.cu takes what stands above */
static void backward(const struct problem *p, const struct arrays *a)
{
    with_float_shape(p, [&](auto s) {
        using S = decltype(s);
        const struct gradient<F32> x = gradient_of<F32>(p, a, S::Br, S::Bc);
        const size_t dq_bytes = p->batch * p->heads_q * p->seqlen_q * p->head_dim * sizeof(float);
        const size_t blocks = p->batch * p->heads_kv * x.key_tiles;
        launch_row_sums<F32>(x, a->stream);
        CUDA_CHECK(cudaMemsetAsync(x.dq, 0, dq_bytes, (cudaStream_t)a->stream));
        if (blocks)
            start(atomics_kernel<S>, blocks, S::THREADS, sizeof(typename S::tiles), a->stream, x,
                  begin_terms(p, a));
    });
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, float_shape<64>::Bc); }

GPU_VARIANT(gradient_atomics, "tiles; dq by atomicAdd",
    FLOAT_GRADIENT, .in_any_order = 1, .refuses = float_refuses,
    .workspace = float_workspace, .cost = cost, .does = {{OP_BACKWARD, backward}});
#endif
