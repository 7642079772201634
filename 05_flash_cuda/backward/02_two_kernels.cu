/* 02_two_kernels.cu: rung 2 of the backward ladder.  No atomics: dk and dv first, then
 * dq.
 *
 * In rung 1 dq is a sum over blocks.  Here its kernel leaves dq out, and a second one turns the
 * loops round: a block owns a tile of queries, holds its dq in registers, and the keys go by.
 * Every number is written once, and its terms are always added in the same order: the same bits
 * in every run.
 *
 * The price: both kernels need p and ds, so s and dp are computed twice, seven products
 * instead of five. */
#define BESIDE_RUNG_1
#include "backward/01_atomics.cu"

/* Block head * query_tiles + t: queries t * Br ... of query head `head`, b * heads_q + h. */
template <class S>
static __global__ void __launch_bounds__(S::THREADS)
    dq_kernel(const struct gradient<F32> x, const struct model_terms terms)
{
    typename S::tiles &shared = dynamic_shared<typename S::tiles>();
    const int head = blockIdx.x / x.query_tiles, i_0 = blockIdx.x % x.query_tiles * S::Br;
    const struct key_range32 seen =
        some_row_sees(x.mask, i_0, min(i_0 + S::Br, x.seqlen_q));
    const int ty = threadIdx.x / S::TX, tx = threadIdx.x % S::TX;
    const int row = threadIdx.x / S::CX, column = threadIdx.x % S::CX * 4;
    typename S::query_rows dq = {};
    load_queries<S>(shared, x, head, i_0);
    for (int j_0 = seen.first / S::Bc * S::Bc; j_0 < seen.end; j_0 += S::Bc) {
        const int nonfinite =
            __syncthreads_or(load_keys<S>(shared, x, head / x.group, j_0));
        typename S::scores p, ds;
        multiply_rows<S>(p, &shared.q[ty], &shared.k[tx]);
        multiply_rows<S>(ds, &shared.d_o[ty], &shared.v[tx]);
        p_and_ds<S>(p, ds, x, terms, shared, head, i_0, j_0);
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
        const struct model_terms terms = begin_terms(p, a);
        const struct model_terms without_bias = {terms.drops, NULL}; /* dq's kernel has its gradient */
        if (key_blocks)
            start(atomics_kernel<S, false>, key_blocks, S::THREADS, sizeof(typename S::tiles), a->stream,
                  x, without_bias);
        if (query_blocks)
            start(dq_kernel<S>, query_blocks, S::THREADS, sizeof(typename S::tiles), a->stream, x, terms);
    });
}

/* The gradient of a bias is added up by atomicAdd: in a fixed order only where each element has one score. */
static const char *refuses(const struct problem *p)
{
    const struct strides *s = &p->bias_strides;
    const bool strided = p->has_bias_strides;
    const bool shared = (strided && !s->row && p->seqlen_q > 1) || (!(strided && s->head) && p->heads_q > 1) ||
                        (!(strided && s->batch) && p->batch > 1);
    if (p->has_bias_gradient && shared) return "the gradient of a bias that several scores share";
    return float_refuses(p);
}

static struct cost cost(const struct problem *p)
{
    return gradient_cost(p, float_shape<64>::Bc, 2);
}

GPU_VARIANT(gradient_two_kernels, "dk, dv first, then dq",
    FLOAT_GRADIENT, .refuses = refuses, .workspace = float_workspace, .cost = cost,
    .does = {{OP_BACKWARD, backward}});
