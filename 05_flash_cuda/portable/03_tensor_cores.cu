/* 03_tensor_cores.cu: rung 3, the two matrix products run on tensor cores.
 *
 *     S = scale Q K^T;   m, l, O = fold over key blocks of (P = exp(S - m), V)
 *
 * In rung 2 each thread did one fused multiply-add in an instruction.  Here a warp multiplies
 * 16 x 16 by 16 x 8 in one instruction (mma_sync.h).  A block has four warps of 16 queries
 * each.  Q stays in registers all the time, as A fragments (heads above 128 leave no
 * room: their Q is loaded again for every key block).  K and V pass through shared memory
 * with ordinary loads and stores (padded_tile.h).  S comes out as C fragments, and P goes in as A
 * fragments, which hold the same elements in the same lanes: P never leaves the
 * registers.
 *
 * A lane
 * sums its own columns of P, and the four lanes of a row add up their sums once, at the end.
 *
 * float16 from sm_75 on, bfloat16 from sm_80 on; any head_dim and head_dim_v up to 256,
 * padded with zeros to 64, 128 or 256 columns. */
#include "attention.h"
#include "cost.h"
#include "portable/isolated_v.h"
#include "portable/launch.h"
#include "portable/mma_sync.h"
#include "portable/padded_tile.h"

enum { WARPS = 4, THREADS = 32 * WARPS, Br = 16 * WARPS };

/* The sizes of a kernel for heads of up to D columns. */
template <int D> struct tile {
    static constexpr int Bc = D <= 128 ? 64 : 32; /* keys: K and V fit in 48 KB */
    static constexpr int Q_FRAGMENTS = D <= 128 ? D / 16 : 1; /* of Q, in registers */
    alignas(16) uint16_t k[Bc * (D + PAD)];
    alignas(16) uint16_t v[Bc * (D + PAD)];
};

/* The state of a warp's 16 queries, spread over its lanes: o as C fragments, one per 8
 * columns; m and the lane's part of l of the two queries (g and g + 8) that the lane's
 * elements belong to. */
template <int D> struct state {
    float o[D / 8][4];
    float m[2], l[2];
};

/* S = Q K^T of a warp: s[j] is the C fragment of keys 8 j ... 8 j + 7.  K's rows are
 * the columns of K^T, so ldmatrix without transposition makes B fragments of them:
 * matrices 0 and 1 are the upper and lower half of B for keys 0-7, matrices 2 and 3
 * for keys 8-15. */
template <enum dtype T, int D, int Bc>
static __forceinline__ __device__ void multiply_qk(float (&s)[Bc / 8][4],
                                                   uint32_t (&q)[tile<D>::Q_FRAGMENTS][4],
                                                   const uint16_t *k, const uint16_t *q_first,
                                                   int n_rows, int n_columns)
{
    int lane = threadIdx.x % 32;
    k += (lane % 8 + lane / 16 * 8) * (D + PAD) + lane / 8 % 2 * 8;
#pragma unroll
    for (int j = 0; j < Bc / 8; j++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[j][c] = 0.0f;
#pragma unroll(tile<D>::Q_FRAGMENTS)
    for (int i = 0; i < D / 16; i++) {
        if (tile<D>::Q_FRAGMENTS == 1) load_q(q[0], q_first, i, n_rows, n_columns);
#pragma unroll
        for (int j = 0; j < Bc / 8; j += 2) {
            const uint32_t(&a)[4] = q[i % tile<D>::Q_FRAGMENTS];
            uint32_t b[4];
            load_matrices(b, address_of(k + 8 * j * (D + PAD) + 16 * i));
            mma_16x8x16<T>(s[j], a, b[0], b[1]);
            mma_16x8x16<T>(s[j + 1], a, b[2], b[3]);
        }
    }
}

/* s = scale s + bias, and -inf where the key is masked: by causal, by the bias, or beyond
 * seqlen_k.
 *   i  query of the lane's upper row      j0  key of s[0]'s first column
 *   partial  0: every query of the block sees every key of it, and there is no bias */
template <int Bc>
static __forceinline__ __device__ void scale_and_mask(float (&s)[Bc / 8][4],
                                                      const struct attention &x, int i,
                                                      int j0, int partial)
{
#pragma unroll
    for (int n = 0; n < Bc / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] *= x.scale;
    if (!partial) return;
#pragma unroll
    for (int n = 0; n < Bc / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = i + 8 * (e / 2), key = j0 + 8 * n + 2 * (threadIdx.x % 4) + e % 2;
            int end = mask_keys(x.mask, row).end;
            float bias = 0.0f;
            if (x.bias && row < x.seqlen_q && key < end)
                bias = x.bias[(size_t)row * x.seqlen_k + key];
            bool is_masked = key >= end || bias == -INFINITY; /* whatever Q and K hold */
            s[n][e] = is_masked ? -INFINITY : s[n][e] + bias;
        }
}

/* Folds the scores of a key block into m and l, and turns them into P:
 *     m_new = max(m, max_j s_j),   p_j = exp(s_j - m_new)
 *     l     = l exp(m - m_new) + sum_j p_j (this lane's columns)
 * and o is multiplied by exp(m - m_new).  The elements of a row lie in the four lanes of a
 * group, so two exchanges make the maximum of the row.  While m_new is -inf (no visible key
 * yet) 0 takes its place: exp(-inf - 0) = 0, and -inf - -inf never arises. */
template <int D, int Bc>
static __forceinline__ __device__ void softmax_step(struct state<D> &f,
                                                    float (&s)[Bc / 8][4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) { /* rows g and g + 8 */
        float m_new = f.m[r];
#pragma unroll
        for (int n = 0; n < Bc / 8; n++)
            m_new = fmaxf(m_new, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, 1));
        m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, 2));
        float base = m_new == -INFINITY ? 0.0f : m_new;
        float alpha = __expf(f.m[r] - base);
        f.m[r] = m_new;
        f.l[r] *= alpha;
#pragma unroll
        for (int n = 0; n < Bc / 8; n++)
#pragma unroll
            for (int c = 2 * r; c < 2 * r + 2; c++)
                f.l[r] += s[n][c] = __expf(s[n][c] - base);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 2 * r; c < 2 * r + 2; c++) f.o[n][c] *= alpha;
    }
}

/* O += P V.  Two neighbouring C fragments of P are one A fragment; V lies in memory as
 * it is multiplied, so its B fragments come through the transposing ldmatrix. */
template <enum dtype T, int D, int Bc>
static __forceinline__ __device__ void add_pv(float (&o)[D / 8][4],
                                              const float (&p)[Bc / 8][4],
                                              const uint16_t *v)
{
    int lane = threadIdx.x % 32;
    v += lane % 16 * (D + PAD) + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < Bc / 16; j++) { /* keys 16 j ... 16 j + 15 */
        uint32_t a[4] = {pack<T>(p[2 * j][0], p[2 * j][1]),
                         pack<T>(p[2 * j][2], p[2 * j][3]),
                         pack<T>(p[2 * j + 1][0], p[2 * j + 1][1]),
                         pack<T>(p[2 * j + 1][2], p[2 * j + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, address_of(v + 16 * j * (D + PAD) + 8 * n));
            mma_16x8x16<T>(o[n], a, b[0], b[1]);
            mma_16x8x16<T>(o[n + 1], a, b[2], b[3]);
        }
    }
}

/* A block computes Br queries of a head (attention.h).  BF16 or F16, heads of up to D. */
template <enum dtype T, int D>
__global__ void __launch_bounds__(THREADS, D <= 64 ? 3 : 2)
    tensor_cores_kernel(const struct attention x)
{
    constexpr int Bc = tile<D>::Bc;
    struct tile<D> &shared = dynamic_shared<struct tile<D>>();
    int i = blockIdx.x % x.q_blocks; /* causal: blocks with most keys come first */
    const struct head h =
        head_of(x, blockIdx.x + (x.causal ? x.q_blocks - 1 - 2 * i : 0), Br);
    const int first = h.q0 + threadIdx.x / 32 * 16; /* this warp's first query */
    const uint16_t *q_first = q_row(x, h, first);
    const int n_rows = x.seqlen_q - first; /* queries of this warp that exist */
    uint32_t q[tile<D>::Q_FRAGMENTS][4];
#pragma unroll
    for (int i = 0; i < tile<D>::Q_FRAGMENTS; i++)
        load_q(q[i], q_first, i, n_rows, x.head_dim);

    struct state<D> f;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) f.o[n][c] = 0.0f;
    for (int r = 0; r < 2; r++) f.m[r] = -INFINITY, f.l[r] = 0.0f;

    for (int j0 = 0; j0 < h.keys; j0 += Bc) {
        /* can a key of this block be masked for one of the block's queries? */
        int partial = x.bias || j0 + Bc > all_rows_see(x.mask, h.q0, h.q0 + Br).end;
        __syncthreads(); /* the block before has been read */
        load_tile<T, D, Bc, THREADS>(shared.k, h.k + (size_t)j0 * x.head_dim,
                                     x.seqlen_k - j0, x.head_dim, 0);
        int nonfinite =
            load_tile<T, D, Bc, THREADS>(shared.v, h.v + (size_t)j0 * x.head_dim_v,
                                         x.seqlen_k - j0, x.head_dim_v, 1);
        int isolate = __syncthreads_or(nonfinite); /* K and V are here */

        float s[Bc / 8][4];
        multiply_qk<T, D, Bc>(s, q, shared.k, q_first, n_rows, x.head_dim);
        scale_and_mask<Bc>(s, x, first + threadIdx.x % 32 / 4, j0, partial);
        uint32_t masked = isolate ? masked_keys<Bc>(s) : 0;
        softmax_step<D, Bc>(f, s);
        if (isolate) {
            __syncthreads(); /* K has been read: its memory is free */
            add_pv_isolated<T, D, Bc>(f.o, s, masked, shared.v, shared.k);
        } else {
            add_pv<T, D, Bc>(f.o, s, shared.v);
        }
    }
    store<T, D>(f.o, f.m, f.l, h, x, first);
}

template <enum dtype T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    struct attention x = attention_of(p, a, Br);
    size_t blocks = p->batch * p->heads_q * (size_t)x.q_blocks;
    start<struct tile<D>>(tensor_cores_kernel<T, D>, blocks, THREADS, a->stream, x);
}

template <enum dtype T>
static void attention_in(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    if (d <= 64) launch<T, 64>(p, a);
    else if (d <= 128) launch<T, 128>(p, a);
    else launch<T, 256>(p, a);
}

/* The instance for p in words. */
static const char *picks(const struct problem *p)
{
    static char text[120];
    size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    int bc = d <= 64 ? tile<64>::Bc : d <= 128 ? tile<128>::Bc : tile<256>::Bc;
    snprintf(text, sizeof text, "blocks of %d queries and %d keys; head dims up to %d", Br,
             bc, d <= 64 ? 64 : d <= 128 ? 128 : 256);
    return text;
}

static void attention(const struct problem *p, const struct arrays *a)
{
    if (p->dtype == F16) attention_in<F16>(p, a);
    else attention_in<BF16>(p, a);
}

static const char *refuses(const struct problem *p)
{
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
#ifdef __CUDACC__
    int device, major;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    if (p->dtype == BF16 && major < 8)
        return "bfloat16 on this GPU (its tensor cores, of sm_75, multiply float16 only)";
#endif
    return too_large(p, Br);
}

static struct cost cost(const struct problem *p) { return attention_cost(p, Br); }

GPU_VARIANT(tensor_cores) = {
    .name = "tensor_cores",
    .idea = "mma.sync; P in registers",
    .group = IN_PORTABLE,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = TYPE(F16) | TYPE(BF16),
    .supports = BASIC_FEATURES | WITH_SHIFT,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .refuses = refuses,
    .picks = picks,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
    .on_gpu = GPU_TWIN(tensor_cores),
};
