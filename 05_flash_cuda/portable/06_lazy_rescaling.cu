/* 04_pipelined.cu: rung 4, rung 3 without its waits; roughly FlashAttention-2 (Dao 2023).
 *
 *     P = 2^(c S - c m),  c = scale log2(e);    m, l, O = fold over key blocks;    O / l
 *
 * What rung 3 waited for, and what is done about it here:
 *   - global memory: cp.async copies key block t + 1 while block t is computed (two
 *     buffers)
 *   - shared memory: a warp has 32 queries (MT = 2 tiles of 16), so that each fragment of
 *     K and V that it loads is multiplied twice; and rows are swizzled instead of padded:
 *     16-byte piece p of row r lies at place p ^ (r % 8) of its 128 bytes, so the eight
 *     rows of ldmatrix, and the pieces that cp.async writes, meet eight different groups
 *     of banks
 *   - exp: the scale is folded into the exponent, one fused multiply-add and one ex2
 *   - the row sum: lanes add up their own columns and meet once, at the end
 *   - the multiplication of O by 2^(c (m - m_new)): left out until a maximum has grown by
 *     more than 8 / c since m was taken; numerator and denominator use the same m, so O /
 *     l is the same, and p <= 2^8 is far from overflow
 *   - the mask: key blocks that every query of the block sees go without
 *
 * sm_80 and later; bfloat16 and float16; head_dim and head_dim_v multiples of 8 up to
 * 256, padded with zeros to the next of HEADS.  A hidden key takes part with p = 0: V
 * must not hold NaN there. */
#include "attention.h"
#include "portable/mma_sync.h"

/* The head dimensions that are compiled, ascending up to 256; others are padded to the
 * next.  Multiples of 16: add one here for heads that should not be padded. */
#define HEADS 64, 128, 256

/* Tiles for heads of up to D columns.  They decide registers (o has 4 MT D / 8, s has
 * 4 MT BC / 8; the addresses of a bias want some too) and shared memory (2 D (BR + 4 BC)
 * bytes: 96 KB, as sm_86 has 99, or LARGE, 192 KB). */
template <int HEAD_DIM, int WITH_BIAS, int LARGE = 0> struct tiling {
    static constexpr int D = HEAD_DIM, BIAS = WITH_BIAS;
    static constexpr int WARPS = LARGE ? 8 : 4, THREADS = 32 * WARPS;
    static constexpr int BLOCKS = LARGE ? 1 : 2;  /* on a multiprocessor */
    static constexpr int MT = D <= 128 ? 2 : 1;   /* 16-query tiles of a warp */
    static constexpr int BR = 16 * MT * WARPS;    /* queries of a block */
    static constexpr int BC = (D <= 128 && !BIAS) || LARGE ? 64 : 32; /* keys of it */
    static constexpr int HOLD_Q = D <= 64; /* in registers, or loaded each time */
    static constexpr int PANELS = (D + 63) / 64; /* of 64 columns, 128 bytes a row */
    static_assert(D % 16 == 0 && BC % 16 == 0, "a product takes 16 columns or keys");

    struct shared {
        alignas(1024) uint16_t q[PANELS * BR * 64]; /* in the end: o */
        alignas(1024) uint16_t k[2][PANELS * BC * 64];
        alignas(1024) uint16_t v[2][PANELS * BC * 64];
    };
    /* The running state of a warp's queries, as C fragments.  m is not scaled; l is this
     * lane's part of the sum.  And Q as A fragments, all of it or one step. */
    struct state {
        float o[MT][D / 8][4];
        float m[MT][2], l[MT][2];
        uint32_t q[HOLD_Q ? D / 16 : 1][MT][4];
    };
    typedef float scores[MT][BC / 8][4]; /* of a warp and a key block, as C fragments */
};

/* Where piece `piece` (8 columns) of row `row` lies in a tile of ROWS rows: panels of 64
 * columns one after the other, rows of 128 bytes in them, pieces swizzled in a row. */
template <int ROWS> static __forceinline__ __device__ int place_of(int row, int piece)
{
    return (piece / 8 * ROWS + row) * 64 + (piece % 8 ^ row % 8) * 8;
}

/* Starts the copy of a tile of ROWS rows; a thread keeps to one column of pieces.
 *   to (ROWS, D) swizzled   from (n_rows, n_columns); what lies beyond it becomes zero */
template <class W, int ROWS>
static __forceinline__ __device__ void start_copy(const uint16_t *to,
                                                  const uint16_t *from, int n_rows,
                                                  int n_columns)
{
    constexpr int PIECES = W::D / 8;
    constexpr int STEP = W::THREADS / PIECES; /* rows that all threads copy */
    int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    if (8 * piece >= n_columns) n_rows = 0;
    from += (ptrdiff_t)row * n_columns + 8 * piece;
#pragma unroll
    for (int i = 0; i < (ROWS + STEP - 1) / STEP; i++, row += STEP)
        if (W::THREADS % PIECES == 0 || (threadIdx.x < STEP * PIECES && row < ROWS))
            copy_16_bytes(address_of(to) + 2 * place_of<ROWS>(row, piece),
                          from + (ptrdiff_t)i * STEP * n_columns, row < n_rows);
}

template <class W>
static __forceinline__ __device__ void start_keys(const typename W::shared &shared,
                                                  const struct head &h,
                                                  const struct attention &x, int t)
{
    int j0 = t * W::BC, n = x.seqlen_k - j0;
    start_copy<W, W::BC>(shared.k[t % 2], h.k + (size_t)j0 * x.head_dim, n, x.head_dim);
    start_copy<W, W::BC>(shared.v[t % 2], h.v + (size_t)j0 * x.head_dim_v, n,
                            x.head_dim_v);
    copies_commit();
}

/* Columns 16 d ... 16 d + 15 of Q as A fragments.
 *   q0  address of piece lane / 16 of row lane % 16 of this warp's queries
 * A step of d moves two pieces: in a swizzled row that flips bits 5 and 6 of the
 * address. */
template <class W>
static __forceinline__ __device__ void load_q(typename W::state &f, shared_address q0,
                                              int d)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++)
        load_matrices(f.q[W::HOLD_Q ? d : 0][i],
                      (q0 ^ d % 4 * 32) + (d / 4 * W::BR + 16 * i) * 128);
}

/* S = Q K^T: s[i][j] has query tile i and keys 8 j ... 8 j + 7.
 *   k (BC, D)  swizzled tile      q0  as in load_q() */
template <enum dtype T, class W>
static __forceinline__ __device__ void multiply_qk(typename W::scores &s,
                                                   typename W::state &f,
                                                   shared_address q0, const uint16_t *k)
{
    int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    shared_address k0 = address_of(k + place_of<W::BC>(row, lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int j = 0; j < W::BC / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) s[i][j][c] = 0.0f;
#pragma unroll
    for (int d = 0; d < W::D / 16; d++) {
        if (!W::HOLD_Q) load_q<W>(f, q0, d);
#pragma unroll
        for (int j = 0; j < W::BC / 8; j += 2) {
            uint32_t b[4];
            load_matrices(b, (k0 ^ d % 4 * 32) + (d / 4 * W::BC + 8 * j) * 128);
#pragma unroll
            for (int i = 0; i < W::MT; i++) {
                const uint32_t(&a)[4] = f.q[W::HOLD_Q ? d : 0][i];
                mma_16x8x16<T>(s[i][j], a, b[0], b[1]);
                mma_16x8x16<T>(s[i][j + 1], a, b[2], b[3]);
            }
        }
    }
}

/* s = s + bias / scale (the scale is multiplied in later), and -inf where the bias is,
 * whatever Q and K hold.
 *   row  query of the lane's first row      j0  first key of the block */
template <class W>
static __forceinline__ __device__ void add_bias(typename W::scores &s,
                                                const struct attention &x, int row,
                                                int j0)
{
    j0 += 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int query = row + 16 * i + 8 * (c / 2);
            const float *bias = x.bias + (size_t)query * x.seqlen_k + j0 + c % 2;
#pragma unroll
            for (int n = 0; n < W::BC / 8; n++)
                if (query < x.seqlen_q && j0 + c % 2 + 8 * n < x.seqlen_k) {
                    float b = bias[8 * n];
                    s[i][n][c] = b == -INFINITY ? b : s[i][n][c] + __fdividef(b, x.scale);
                }
        }
}

/* s = -inf where the key is hidden: by causal, or beyond seqlen_k. */
template <class W>
static __forceinline__ __device__ void mask(typename W::scores &s,
                                            const struct attention &x, int row, int j0)
{
    int left = x.seqlen_k - j0 - 2 * (int)(threadIdx.x % 4); /* keys from here on */
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int end = left;
            if (x.causal)
                end = min(end, end - x.seqlen_q + row + 16 * i + 8 * (c / 2) + 1);
#pragma unroll
            for (int n = 0; n < W::BC / 8; n++)
                if (8 * n + c % 2 >= end) s[i][n][c] = -INFINITY;
        }
}

/* o, l *= 2^(c (m - m_new)),  m = m_new = max(m, top).  While m_new is -inf (no
 * visible key yet) 0 takes its place in the difference: -inf - -inf never arises. */
template <class W>
static __forceinline__ __device__ void rescale(typename W::state &f,
                                               const float (&top)[W::MT][2], float c)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float m_new = fmaxf(f.m[i][r], top[i][r]);
            float base = m_new == -INFINITY ? 0.0f : m_new;
            float alpha = exp2_fast((f.m[i][r] - base) * c);
            f.m[i][r] = m_new;
            f.l[i][r] *= alpha;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++) {
                f.o[i][n][2 * r] *= alpha;
                f.o[i][n][2 * r + 1] *= alpha;
            }
        }
}

/* Folds the scores of a key block into m and l and turns them into P:
 *     m = max(m, max_j s_j) if some row of the warp grew by more than 8 / c, else m stays
 *     p_j = 2^(c s_j - c m),  l += sum_j p_j (this lane's columns) */
template <class W>
static __forceinline__ __device__ void softmax_step(typename W::state &f,
                                                    typename W::scores &s, float c)
{
    float top[W::MT][2];
    int grown = 0;
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = fmaxf(s[i][0][2 * r], s[i][0][2 * r + 1]);
#pragma unroll
            for (int n = 1; n < W::BC / 8; n++)
                x = fmaxf(x, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
            top[i][r] = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
            grown |= (top[i][r] - f.m[i][r]) * c > 8.0f;
        }
    if (__any_sync(~0u, grown)) rescale<W>(f, top, c);
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float base = f.m[i][r] == -INFINITY ? 0.0f : f.m[i][r] * c;
#pragma unroll
            for (int n = 0; n < W::BC / 8; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++)
                    f.l[i][r] += s[i][n][e] = exp2_fast(fmaf(s[i][n][e], c, -base));
        }
}

/* O += P V.
 *   v (BC, D)  swizzled tile */
template <enum dtype T, class W>
static __forceinline__ __device__ void add_pv(typename W::state &f,
                                              const typename W::scores &p,
                                              const uint16_t *v)
{
    int lane = threadIdx.x % 32;
    shared_address v0 = address_of(v + place_of<W::BC>(lane % 16, lane / 16));
#pragma unroll
    for (int j = 0; j < W::BC / 16; j++) { /* keys 16 j ... 16 j + 15 */
        uint32_t a[W::MT][4];
#pragma unroll
        for (int i = 0; i < W::MT; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                a[i][e] = pack<T>(p[i][2 * j + e / 2][2 * (e % 2)],
                                  p[i][2 * j + e / 2][2 * (e % 2) + 1]);
#pragma unroll
        for (int n = 0; n < W::D / 8; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b,
                                     (v0 ^ n % 8 * 16) + (n / 8 * W::BC + 16 * j) * 128);
#pragma unroll
            for (int i = 0; i < W::MT; i++) {
                mma_16x8x16<T>(f.o[i][n], a[i], b[0], b[1]);
                mma_16x8x16<T>(f.o[i][n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* o = O / l as 16-bit elements, in the warp's own rows of the Q tile, from where 16
 * bytes a lane leave together; lse = m scale + ln l.  A query without visible keys: 0
 * and -inf. */
template <enum dtype T, class W>
static __forceinline__ __device__ void store(typename W::state &f,
                                             typename W::shared &shared,
                                             const struct head &h,
                                             const struct attention &x)
{
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT;
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) { /* the row's sum from its four lanes */
            f.l[i][r] += __shfl_xor_sync(~0u, f.l[i][r], 1);
            f.l[i][r] += __shfl_xor_sync(~0u, f.l[i][r], 2);
        }
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = row0 + 16 * i + lane / 4 + 8 * r;
            float l = f.l[i][r], inverse = l == 0.0f ? 0.0f : __fdividef(1.0f, l);
            shared_address o0 =
                address_of(shared.q + place_of<W::BR>(row, 0)) + lane % 4 * 4;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++)
                store_pair(
                    (o0 ^ n % 8 * 16) + n / 8 * W::BR * 128,
                    pack<T>(f.o[i][n][2 * r] * inverse, f.o[i][n][2 * r + 1] * inverse));
            if (lane % 4 == 0 && h.q0 + row < x.seqlen_q)
                *lse_row(x, h, h.q0 + row) =
                    l == 0.0f ? -INFINITY : f.m[i][r] * x.scale + logf(l);
        }
    __syncwarp();
    for (int n = lane; n < 16 * W::MT * W::D / 8; n += 32) {
        int row = row0 + n / (W::D / 8), piece = n % (W::D / 8);
        if (h.q0 + row < x.seqlen_q && 8 * piece < x.head_dim_v)
            *(uint4 *)(o_row(x, h, h.q0 + row) + 8 * piece) =
                *(const uint4 *)(shared.q + place_of<W::BR>(row, piece));
    }
}

/* A block computes BR queries of a head (attention.h).  One barrier a key block: after
 * it block t is here for all warps, and all have finished block t - 1, whose buffer
 * block t + 1 may take.  Causal: the blocks with most keys come first, so that short
 * ones end the run. */
template <enum dtype T, class W>
__global__ void __launch_bounds__(W::THREADS, W::BLOCKS)
    pipelined_kernel(const struct attention x)
{
    typename W::shared &shared = dynamic_shared<typename W::shared>();
    int i = blockIdx.x % x.q_blocks;
    const struct head h =
        head_of(x, blockIdx.x + (x.causal ? x.q_blocks - 1 - 2 * i : 0), W::BR);
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT; /* of this warp */
    int n_blocks = (h.keys + W::BC - 1) / W::BC, offset = x.seqlen_k - x.seqlen_q;
    /* key blocks that all queries see, and keys that this warp's last query sees */
    int n_open =
        (x.causal ? max(0, min(x.seqlen_k, h.q0 + 1 + offset)) : x.seqlen_k) / W::BC;
    int end = x.causal ? h.q0 + row0 + 16 * W::MT + offset : x.seqlen_k;

    typename W::state f = {};
#pragma unroll
    for (int i = 0; i < W::MT; i++) f.m[i][0] = f.m[i][1] = -INFINITY;

    start_copy<W, W::BR>(shared.q, q_row(x, h, h.q0), x.seqlen_q - h.q0, x.head_dim);
    start_keys<W>(shared, h, x, 0);
    shared_address q0 =
        address_of(shared.q + place_of<W::BR>(row0 + lane % 16, lane / 16));
    if (W::HOLD_Q) {
        copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < W::D / 16; d++) load_q<W>(f, q0, d);
    }
    for (int t = 0; t < n_blocks; t++) {
        int j0 = t * W::BC, row = h.q0 + row0 + lane / 4;
        copies_wait<0>();
        __syncthreads();
        if (t + 1 < n_blocks) start_keys<W>(shared, h, x, t + 1);
        if (j0 >= end) continue; /* hidden from this warp */
        typename W::scores s;
        multiply_qk<T, W>(s, f, q0, shared.k[t % 2]);
        if (W::BIAS) add_bias<W>(s, x, row, j0);
        if (t >= n_open) mask<W>(s, x, row, j0);
        softmax_step<W>(f, s, x.scale * 1.44269504f);
        add_pv<T, W>(f, s, shared.v[t % 2]);
    }
    copies_wait<0>(); /* Q, should there be no key block */
    __syncthreads();
    store<T, W>(f, shared, h, x);
}

template <enum dtype T, class W>
static void launch(const struct problem *p, const struct arrays *a)
{
    struct attention x = attention_of(p, a, W::BR);
    int bytes = (int)sizeof(typename W::shared);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(p->batch * p->heads_q * (size_t)x.q_blocks));
    config.blockDim = dim3(W::THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(cudaFuncSetAttribute(pipelined_kernel<T, W>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CUDA_CHECK(cudaLaunchKernelEx(&config, pipelined_kernel<T, W>, x));
}

/* Shared memory that one block may use, in bytes. */
static size_t shared_memory_limit(void)
{
    int device, bytes;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return (size_t)bytes;
}

/* Calls use(tiling, why) with the first compiled head dimension that holds the problem's;
 * above 128 the large tiles where they fit. */
template <int D, int... MORE, class F> static void with_tiling(const struct problem *p, F use)
{
    using large = tiling<D, 0, (D > 128)>;
    if (p->head_dim > D || p->head_dim_v > D) {
        if constexpr (sizeof...(MORE) > 0) with_tiling<MORE...>(p, use);
    } else if (p->has_bias) {
        use(tiling<D, 1>(), "with a bias");
    } else if (sizeof(typename large::shared) <= shared_memory_limit()) {
        use(large(), D > 128 ? "shared memory has room for large tiles" : "no bias");
    } else {
        use(tiling<D, 0>(), "shared memory has no room for large tiles");
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    with_tiling<HEADS>(p, [&](auto w, const char *) {
        if (p->dtype == F16) launch<F16, decltype(w)>(p, a);
        else launch<BF16, decltype(w)>(p, a);
    });
}

/* The instance for p in words. */
static const char *picks(const struct problem *p)
{
    static char text[160];
    with_tiling<HEADS>(p, [&](auto w, const char *why) {
        snprintf(text, sizeof text, "blocks of %d queries and %d keys; head dims up to %d, %s",
                 w.BR, w.BC, w.D, why);
    });
    return text;
}

static const char *refuses(const struct problem *p)
{
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if (p->head_dim % 8 || p->head_dim_v % 8)
        return "a head_dim that is no multiple of 8";
    if (!(p->scale > 0.0f && p->scale < INFINITY)) return "a scale that is not positive";
    return NULL;
}

/* Q and O once; K and V once for every BR queries that see them. */
static struct cost cost(const struct problem *p)
{
    size_t br = p->head_dim <= 128 && p->head_dim_v <= 128 ? 128 : 64;
    double heads = (double)p->batch * p->heads_q, keys = 0.0, pairs = 0.0;
    for (size_t i = 0; i < p->seqlen_q; i += br) {
        size_t last = i + br < p->seqlen_q ? i + br : p->seqlen_q;
        double seen = p->seqlen_k;
        if (p->causal) seen = fmax(0.0, fmin(seen, (double)last + seen - p->seqlen_q));
        keys += seen;
        pairs += seen * (double)(last - i);
    }
    double d = (double)p->head_dim + p->head_dim_v;
    struct cost c = {0.0, heads * (2.0 * d * p->seqlen_q + 2.0 * d * keys),
                     heads * pairs};
    return c;
}

GPU_VARIANT(pipelined) = {
    .name = "pipelined",
    .idea = "rung 4: swizzle, cp.async double buffering, exp2, deferred sum",
    .group = IN_PORTABLE,
    .device = GPU_DEVICE,
    .least_arch = 80,
    .types = TYPE(F16) | TYPE(BF16),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = refuses,
    .picks = picks,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
    .on_gpu = GPU_TWIN(pipelined),
};
