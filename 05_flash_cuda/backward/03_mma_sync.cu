/* 03_mma_sync.cu: rung 3 of the backward ladder: the five products on tensor cores.
 *
 *     S^T = K Q^T    dP^T = V dO^T    dV += P^T dO    dK += dS^T Q    dQ += dS K
 *
 * The loops are rung 1's.  A warp owns 16 keys of the block's tile: it computes their
 * rows of S^T and dP^T, and P^T and dS^T stay in its registers as operands of the third
 * and fourth product (mma_tiles.h).  The fifth needs all keys of a query, so that dS^T
 * goes through shared memory, once.  While one tile of queries is computed, cp.async
 * brings the next (rung 4 of the forward ladder).
 *
 * dq is summed in float32, by atomicAdd as in rung 1, in a buffer; a last kernel scales
 * and rounds it.
 *
 * At d = 256 a warp has registers for half of the columns of dk and dv.  So two blocks share the
 * keys, a half each, and both compute S and dP: seven products instead of five.
 *
 * sm_80 and later; float16, bfloat16; head dims multiples of 8 up to 256. */
#include "backward/mma_tiles.h"

template <int HEAD_DIM> struct tiling {
    static constexpr int D = HEAD_DIM, COLUMNS = D < 128 ? D : 128; /* of dk, dv, dq in a block */
    static constexpr int PARTS = D / COLUMNS;    /* blocks that share their keys */
    static constexpr int WARPS = 4, THREADS = 32 * WARPS;
    static constexpr int Bc = 16 * WARPS;        /* keys of a block */
    static constexpr int Br = D == 64 ? 64 : 32; /* queries of a tile: 68 KB of 99 on sm_86 */
    static constexpr int BLOCKS = D == 256 ? 1 : 2; /* on a multiprocessor */
    static constexpr int DQ_ROWS = Br / 16, DQ_COLUMNS = COLUMNS * DQ_ROWS / WARPS; /* of a warp */

    struct shared {
        alignas(1024) uint16_t k[Bc * D], v[Bc * D];
        alignas(1024) uint16_t q[2][Br * D], d_o[2][Br * D];
        alignas(1024) uint16_t ds[Bc * 64]; /* dS^T */
        alignas(16) float lse2[2][Br], D_i[2][Br];
    };
    typedef float scores[Br / 8][4]; /* of a warp: 16 keys, as C fragments */
    typedef float rows[COLUMNS / 8][4]; /* dk, dv of its keys */
};

/* Where a block is in its loop: one tile of queries after another, head after head of the group. */
struct place { int head, i_0; };

/* Issues the copies of a tile of queries and of their lse2 and D, as one group. */
template <enum dtype T, class W>
static __forceinline__ __device__ void issue_queries(typename W::shared &shared,
                                                     const struct gradient<T> &x, struct place at,
                                                     int stage)
{
    const int n = x.seqlen_q - at.i_0;
    const ptrdiff_t row = (ptrdiff_t)at.head * x.seqlen_q + at.i_0;
    const ptrdiff_t padded = (ptrdiff_t)at.head * x.padded + at.i_0;
    issue_copy<W, W::Br>(shared.q[stage], x.q + row * x.head_dim, n, x.head_dim);
    issue_copy<W, W::Br>(shared.d_o[stage], x.d_o + row * x.head_dim_v, n, x.head_dim_v);
    copy_floats(shared.lse2[stage], x.lse2 + padded);
    copy_floats(shared.D_i[stage], x.D + padded);
    copies_commit();
}

/* With a bias or a soft cap: what a lane's scores of a tile need beside the products.  lse is the row's
 * own: times log2(e) that of a row whose bias is -1e30 would be off by more than its keys differ. */
template <class W, bool BENT> struct bent {
    float lse[BENT ? W::Br / 8 : 1][2], bias[BENT ? W::Br / 8 : 1][4];
};

/* Loads it before the tile is waited for: all at once, so the loads wait together, and without a branch,
 * which would order them.   j  the lane's first key */
template <enum dtype T, class W>
static __forceinline__ __device__ void load_bent(struct bent<W, true> &b, const struct gradient<T> &x,
                                                 struct place at, int j)
{
    const float *bias = x.bias ? x.bias + bias_of_head(x, at.head) : NULL;
    const float *lse = x.lse + (ptrdiff_t)at.head * x.seqlen_q;
#pragma unroll
    for (int n = 0; n < W::Br / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = at.i_0 + 8 * n + threadIdx.x % 4 * 2 + e % 2, row = min(i, x.seqlen_q - 1);
            const int key = min(j + e / 2 * 8, x.seqlen_k - 1);
            b.bias[n][e] = bias ? bias[row * x.bias_strides.row + key] : 0.0f;
            if (e < 2) b.lse[n][e] = i < x.seqlen_q ? lse[row] : -INFINITY;
        }
}

/* S^T becomes P^T and dP^T dS^T, of the warp's 16 keys.  A lane has the keys j and j + 8,
 * and of each eight queries the columns 2 t and 2 t + 1.  What is hidden is set to 0
 * after the exponential: there K may be 0 (beyond seqlen_k), and 2^(0 - lse2) overflow.
 *   BENT  there is a bias or a soft cap      DROPS  there is dropout: dv is multiplied by its factor at the end */
template <enum dtype T, class W, bool MASK, bool BENT, bool DROPS>
static __forceinline__ __device__ void p_and_ds(typename W::scores &s, typename W::scores &dp,
                                                const typename W::shared &shared,
                                                const struct gradient<T> &x,
                                                const struct model_terms &terms,
                                                const struct bent<W, BENT> &b, int stage, int j,
                                                struct place at)
{
    const int t = threadIdx.x % 4, i_0 = at.i_0;
    const float c = x.scale * 1.44269504f;
    struct key_range32 seen[2];
    for (int r = 0; MASK && r < 2; r++) {
        seen[r] = queries_of(x.mask, x.seqlen_q, j + 8 * r, j + 8 * r + 1);
        if (j + 8 * r >= x.seqlen_k) seen[r].end = 0;
        seen[r].first -= i_0 + 2 * t, seen[r].end -= i_0 + 2 * t;
    }
    const size_t of_head = BENT ? bias_of_head(x, at.head) : 0;
    struct four drawn[2]; /* for queries 2 t and 2 t + 1, of each 16 */
#pragma unroll
    for (int n = 0; n < W::Br / 8; n++) {
        for (int e = 0; DROPS && n % 2 == 0 && e < 2; e++)
            drawn[e] = philox(&terms.drops, at.head, i_0 + 8 * n + 2 * t + e, j);
        const float2 lse2 = *(const float2 *)&shared.lse2[stage][8 * n + 2 * t];
        const float2 D_i = *(const float2 *)&shared.D_i[stage][8 * n + 2 * t];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int query = 8 * n + e % 2, key = j + e / 2 * 8;
            float slope = 1.0f, p = 0.0f;
            if (!BENT) p = exp2_fast(fmaf(s[n][e], c, -(e % 2 ? lse2.y : lse2.x)));
            else if (b.lse[n][e % 2] > -INFINITY && key < x.seqlen_k)
                p = exp2_fast((exponent_of(x, s[n][e], b.bias[n][e], &slope) - b.lse[n][e % 2]) * 1.44269504f);
            const bool kept = !DROPS || drawn[e % 2].x[n % 2 * 2 + e / 2] >= terms.drops.below;
            const float of_v = !DROPS ? dp[n][e] : kept ? dp[n][e] * terms.drops.factor : 0.0f;
            float ds = p * (of_v - (e % 2 ? D_i.y : D_i.x));
            if (!kept) p = 0.0f;
            if (MASK && (query < seen[e / 2].first || query >= seen[e / 2].end)) p = ds = 0.0f;
            if (BENT && terms.dbias && ds != 0.0f)
                atomicAdd(&terms.dbias[of_head + (i_0 + 2 * t + query) * x.bias_strides.row + key], ds);
            s[n][e] = p, dp[n][e] = ds * slope;
        }
    }
}

/* dQ += dS K: a warp has 16 queries and DQ_COLUMNS columns; `first` is the block's first. */
template <enum dtype T, class W>
static __forceinline__ __device__ void add_dq(const typename W::shared &shared,
                                              const struct gradient<T> &x, struct place at,
                                              int first)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int query = warp % W::DQ_ROWS * 16, column = first + warp / W::DQ_ROWS * W::DQ_COLUMNS;
    const shared_address k = address_of(shared.k + swizzled<W::Bc>(lane % 16, lane / 16)) +
                             column / 64 * W::Bc * 128;
    float dq[W::DQ_COLUMNS / 8][4] = {};
#pragma unroll
    for (int j = 0; j < W::Bc / 16; j++) { /* keys 16 j ...: rows of dS^T, columns of dS */
        uint32_t a[4];
        load_matrices_transposed(
            a, address_of(shared.ds + swizzled<W::Bc>(16 * j + lane / 16 * 8 + lane % 8,
                                                      query / 8 + lane / 8 % 2)));
        add_product<T, W::Bc>(dq, a, k + 16 * j * 128);
    }
    const int i = at.i_0 + query + lane / 4;
    float *row = x.dq_sum + ((ptrdiff_t)at.head * x.seqlen_q + i) * x.head_dim;
#pragma unroll
    for (int n = 0; n < W::DQ_COLUMNS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int c = column + 8 * n + lane % 4 * 2 + e % 2;
            if (i + e / 2 * 8 < x.seqlen_q && c < x.head_dim)
                atomicAdd(row + (ptrdiff_t)(e / 2 * 8) * x.head_dim + c, dq[n][e]);
        }
}

/* Block ((b * heads_kv + h) * key_tiles + t) * PARTS + i: keys t * Bc ... of key head h of batch
 * b, part i of the columns. */
template <enum dtype T, class W, bool BENT, bool DROPS>
static __global__ void __launch_bounds__(W::THREADS, W::BLOCKS)
    mma_sync_kernel(const struct gradient<T> x, const struct model_terms terms)
{
    typename W::shared &shared = dynamic_shared<typename W::shared>();
    const int block = blockIdx.x / W::PARTS, column = blockIdx.x % W::PARTS * W::COLUMNS;
    const int head_kv = block / x.key_tiles, j_0 = block % x.key_tiles * W::Bc;
    const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16, j = j_0 + row0 + lane / 4;
    const ptrdiff_t keys = (ptrdiff_t)head_kv * x.seqlen_k;
    const struct key_range32 seen = queries_of(x.mask, x.seqlen_q, j_0, j_0 + W::Bc);
    const int first = seen.first / W::Br, n = max(0, (seen.end + W::Br - 1) / W::Br - first);
    auto place_of = [&](int u) {
        return (struct place){head_kv * x.group + u / n, (first + u % n) * W::Br};
    };
    issue_copy<W, W::Bc>(shared.k, x.k + (keys + j_0) * x.head_dim, x.seqlen_k - j_0, x.head_dim);
    issue_copy<W, W::Bc>(shared.v, x.v + (keys + j_0) * x.head_dim_v, x.seqlen_k - j_0,
                         x.head_dim_v);
    if (n) issue_queries<T, W>(shared, x, place_of(0), 0);
    const shared_address k = address_of(shared.k + swizzled<W::Bc>(row0 + lane % 16, lane / 16));
    const shared_address v = address_of(shared.v + swizzled<W::Bc>(row0 + lane % 16, lane / 16));
    typename W::rows dk = {}, dv = {};
    for (int u = 0; u < n * x.group; u++) {
        const struct place at = place_of(u);
        struct bent<W, BENT> b;
        if constexpr (BENT) load_bent<T, W>(b, x, at, j);
        const int stage = u % 2;
        copies_wait<0>();
        __syncthreads(); /* tile u is here for all, and all have finished tile u - 1 */
        if (u + 1 < n * x.group) issue_queries<T, W>(shared, x, place_of(u + 1), 1 - stage);
        typename W::scores p, ds;
        multiply_rows<T, W>(p, k, shared.q[stage]);
        multiply_rows<T, W>(ds, v, shared.d_o[stage]);
        struct key_range32 all = all_rows_see(x.mask, at.i_0, min(at.i_0 + W::Br, x.seqlen_q));
        if (all.first <= j_0 && j_0 + W::Bc <= all.end)
            p_and_ds<T, W, false, BENT, DROPS>(p, ds, shared, x, terms, b, stage, j, at);
        else
            p_and_ds<T, W, true, BENT, DROPS>(p, ds, shared, x, terms, b, stage, j, at);
        add_rows<T, W>(dv, p, shared.d_o[stage] + column * W::Br);
        put_ds<T, W>(shared, ds);
        add_rows<T, W>(dk, ds, shared.q[stage] + column * W::Br);
        __syncthreads(); /* dS is complete */
        add_dq<T, W>(shared, x, at, column);
    }
    copies_wait<0>(); /* K and V, should there be no query */
    store_rows<T, W>(x.dk + keys * x.head_dim, dk, j, x.seqlen_k, column, x.head_dim,
                     x.scale);
    store_rows<T, W>(x.dv + keys * x.head_dim_v, dv, j, x.seqlen_k, column, x.head_dim_v, terms.drops.factor);
}

/* dq = scale dq_sum in 16 bits; rows are multiples of 8 columns. */
template <enum dtype T>
static __global__ void __launch_bounds__(D_THREADS) scale_dq_kernel(const struct gradient<T> x)
{
    const size_t n = (size_t)x.batch * x.heads_q * x.seqlen_q * x.head_dim / 4;
    const size_t i = (size_t)blockIdx.x * D_THREADS + threadIdx.x;
    if (i >= n) return;
    const float4 dq = ((const float4 *)x.dq_sum)[i];
    ((uint2 *)x.dq)[i] = make_uint2(pack<T>(dq.x * x.scale, dq.y * x.scale),
                                    pack<T>(dq.z * x.scale, dq.w * x.scale));
}

template <enum dtype T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    using W = tiling<D>;
    const struct gradient<T> x = gradient_of<T>(p, a, W::Br, W::Bc);
    const size_t n = p->batch * p->heads_q * p->seqlen_q * p->head_dim;
    const size_t blocks = p->batch * p->heads_kv * x.key_tiles * W::PARTS;
    launch_row_sums<T>(x, a->stream);
    CUDA_CHECK(cudaMemsetAsync(x.dq_sum, 0, n * sizeof(float), (cudaStream_t)a->stream));
    const struct model_terms terms = begin_terms(p, a);
    const bool bent = x.bias || x.softcap > 0.0f, drops = terms.drops.below;
    auto kernel = bent ? drops ? mma_sync_kernel<T, W, true, true> : mma_sync_kernel<T, W, true, false>
                       : drops ? mma_sync_kernel<T, W, false, true> : mma_sync_kernel<T, W, false, false>;
    if (blocks) start(kernel, blocks, W::THREADS, sizeof(typename W::shared), a->stream, x, terms);
    if (n) start(scale_dq_kernel<T>, (n / 4 + D_THREADS - 1) / D_THREADS, D_THREADS, 0, a->stream, x);
}

template <enum dtype T> static void launch_for(const struct problem *p, const struct arrays *a)
{
    const int d = head_dim_of<64, 128, 256>(p);
    d == 64 ? launch<T, 64>(p, a) : d == 128 ? launch<T, 128>(p, a) : launch<T, 256>(p, a);
}

static void backward(const struct problem *p, const struct arrays *a)
{
    p->dtype == F16 ? launch_for<F16>(p, a) : launch_for<BF16>(p, a);
}

static size_t workspace(const struct problem *p)
{
    return gradient_workspace(p, head_dim_of<64, 128>(p) == 64 ? +tiling<64>::Br : +tiling<128>::Br);
}

static const char *refuses(const struct problem *p)
{
    const int d = head_dim_of<64, 128, 256>(p);
    if (!d) return "a head_dim above 256";
    if (p->head_dim % 8 || p->head_dim_v % 8) return "a head_dim that is no multiple of 8";
    if (d == 256 && sizeof(tiling<256>::shared) > shared_memory_limit())
        return "a head_dim above 128 without 137 KB of shared memory";
    return gradient_too_large(p);
}

static struct cost cost(const struct problem *p) { return gradient_cost(p, tiling<64>::Bc); }

GPU_VARIANT(gradient_mma_sync, "tensor cores; S^T",
    .group = IN_BACKWARD, .device = GPU_DEVICE, .least_arch = 80, .types = TYPE(F16) | TYPE(BF16),
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |
                WITH_BIAS_STRIDES | WITH_DROPOUT | WITH_BIAS_GRADIENT,
    .max_score = INFINITY, .masked_rows = 1, .in_any_order = 1, .refuses = refuses,
    .workspace = workspace, .cost = cost, .does = {{OP_BACKWARD, backward}});
