/* Rung 4: rung 3 without its waits.  Roughly FlashAttention-2 (Dao 2023) for sm_80 and later.
 *
 *     P = 2^(c S - c m),  c = scale log2(e)       m, l, O = fold over key blocks,  O / l
 *
 * What rung 3 waited for, and what is done about it here:
 *   - global memory: cp.async copies key block t + 1 while block t is computed (two buffers)
 *   - shared memory: a warp has 32 queries (MT = 2 tiles of 16), so each fragment of K and V
 *     that it loads is multiplied twice; and rows lie in a 128-byte swizzle instead of being
 *     padded: 16-byte piece p of row r lies at place p ^ (r % 8), so that the eight rows of
 *     ldmatrix, and the pieces of cp.async, meet eight different groups of banks
 *   - exp: the scale is folded into the exponent, one fused multiply-add and one ex2
 *   - the row sum: lanes add up their own columns and meet once, at the end
 *   - the multiplication of O by 2^(c (m - m_new)): left out until the maximum has grown by
 *     more than a factor 2^8 since m was taken; numerator and denominator use the same m, so
 *     O / l stays the same, and p <= 2^8 is far from overflow
 *   - the mask: key blocks that every query of the block sees take a loop without it
 *
 * bfloat16 and float16; head_dim and head_dim_v multiples of 8 up to 256, padded with zeros
 * to the next of HEAD_DIMS. */
#include "attention.h"
#include "mma.h"

enum { WARPS = 4, THREADS = 32 * WARPS };

/* Tiles for heads of up to D columns: they decide registers (o: 4 MT D / 8, s: 4 MT BC / 8)
 * and shared memory (2 D (BR + 4 BC) bytes, at most 96 KB: sm_86 has 99). */
template <int D> struct tiling {
    static constexpr int MT = D <= 128 ? 2 : 1;   /* 16-query tiles of a warp */
    static constexpr int BR = 16 * MT * WARPS;    /* queries of a block */
    static constexpr int BC = D <= 128 ? 64 : 32; /* keys of a block */
    static constexpr int PANELS = (D + 63) / 64;  /* of 64 columns, 128 bytes a row */
    static constexpr int BLOCKS = 2;              /* wanted on a multiprocessor */
    static constexpr int HOLD_Q = D <= 64;        /* in registers, else in shared memory */
    static_assert(D % 16 == 0 && BC % 16 == 0, "a product takes 16 columns or keys");
};

template <int D> struct tiles {
    alignas(1024) uint16_t q[tiling<D>::PANELS * tiling<D>::BR * 64]; /* later: o */
    alignas(1024) uint16_t k[2][tiling<D>::PANELS * tiling<D>::BC * 64];
    alignas(1024) uint16_t v[2][tiling<D>::PANELS * tiling<D>::BC * 64];
};

/* The running state of a warp's queries, as C fragments.  m is not scaled; l is this lane's
 * part of the sum. */
template <int D> struct state {
    float o[tiling<D>::MT][D / 8][4];
    float m[tiling<D>::MT][2], l[tiling<D>::MT][2];
};

/* Where piece `piece` (8 columns) of row `row` lies in a tile of ROWS rows: panels of 64
 * columns one after the other, rows of 128 bytes in them, pieces swizzled in a row. */
template <int ROWS> static __forceinline__ __device__ int place_of(int row, int piece)
{
    return (piece / 8 * ROWS + row) * 64 + (piece % 8 ^ row % 8) * 8;
}

/* Starts the copy of a tile of ROWS rows; each thread keeps to one column of pieces where
 * it can.
 *   to (ROWS, D) swizzled   from (n_rows, n_columns); what lies beyond it becomes zero */
template <int D, int ROWS>
static __forceinline__ __device__ void start_copy(const uint16_t *to, const uint16_t *from,
                                                  int n_rows, int n_columns)
{
    constexpr int PIECES = D / 8, STEP = THREADS / PIECES; /* rows that all threads copy */
    int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    if (8 * piece >= n_columns || row >= STEP) n_rows = 0;
    from += (ptrdiff_t)row * n_columns + 8 * piece;
#pragma unroll
    for (int i = 0; i < (ROWS + STEP - 1) / STEP; i++, row += STEP) {
        if ((ROWS % STEP == 0 && THREADS % PIECES == 0) ||
            (row < ROWS && threadIdx.x < STEP * PIECES))
            copy_16_bytes(address_of(to) + 2 * place_of<ROWS>(row, piece),
                          from + (ptrdiff_t)i * STEP * n_columns, row < n_rows);
    }
}

/* Q's fragments, or one step of them where registers do not hold all. */
template <int D> struct queries {
    uint32_t a[tiling<D>::HOLD_Q ? D / 16 : 1][tiling<D>::MT][4];
};

/* Columns 16 d ... 16 d + 15 of Q as A fragments.
 *   q0  address of piece lane / 16 of row lane % 16 of this warp's queries
 * Two pieces further in a row (d + 1) flips bits 5 and 6 of an address: see place_of(). */
template <int D>
static __forceinline__ __device__ void load_q(struct queries<D> &q, shared_address q0, int d)
{
#pragma unroll
    for (int i = 0; i < tiling<D>::MT; i++)
        load_matrices(q.a[tiling<D>::HOLD_Q ? d : 0][i],
                      (q0 ^ d % 4 * 32) + (d / 4 * tiling<D>::BR + 16 * i) * 128);
}

/* S = Q K^T: s[i][j] is the C fragment of query tile i and keys 8 j ... 8 j + 7.
 *   k (BC, D)  swizzled tile */
template <enum dtype T, int D, int MT, int BC>
static __forceinline__ __device__ void scores(float (&s)[MT][BC / 8][4], struct queries<D> &q,
                                              shared_address q0, const uint16_t *k)
{
    int lane = threadIdx.x % 32;
    shared_address k0 = address_of(k + place_of<BC>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < BC / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) s[i][j][c] = 0.0f;
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
        if (!tiling<D>::HOLD_Q) load_q(q, q0, d);
        const uint32_t(&a)[MT][4] = q.a[tiling<D>::HOLD_Q ? d : 0];
#pragma unroll
        for (int j = 0; j < BC / 8; j += 2) {
            uint32_t b[4];
            load_matrices(b, (k0 ^ d % 4 * 32) + (d / 4 * BC + 8 * j) * 128);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma_16x8x16<T>(s[i][j], a[i], b[0], b[1]);
                mma_16x8x16<T>(s[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* s = s + bias / scale: the scale is multiplied in later. */
template <int MT, int BC>
static __device__ void add_bias(float (&s)[MT][BC / 8][4], const struct attention &x, int row,
                                int j0)
{
    float inverse = 1.0f / x.scale;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < BC / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int query = row + 16 * i + 8 * (c / 2);
                int key = j0 + 8 * n + 2 * (threadIdx.x % 4) + c % 2;
                float bias = -INFINITY; /* hides the key, whatever Q and K hold */
                if (query < x.seqlen_q && key < x.seqlen_k)
                    bias = x.bias[(size_t)query * x.seqlen_k + key];
                s[i][n][c] = bias == -INFINITY ? bias : s[i][n][c] + bias * inverse;
            }
}

/* s = -inf where the key is hidden.
 *   row  query of the lane's first row      j0  first key of the block */
template <int MT, int BC>
static __forceinline__ __device__ void mask(float (&s)[MT][BC / 8][4],
                                            const struct attention &x, int row, int j0)
{
    j0 += 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int end = x.seqlen_k - j0; /* of the visible keys, counted from this lane's */
            if (x.causal) end = min(end, row + 16 * i + 8 * (c / 2) + 1 - x.seqlen_q + end);
#pragma unroll
            for (int n = 0; n < BC / 8; n++)
                if (8 * n + c % 2 >= end) s[i][n][c] = -INFINITY;
        }
}

/* Folds the scores of a key block into m and l and turns them into P:
 *     m_new = max(m, max_j s_j), but m while no row of the warp grew by more than 8 / c
 *     o, l *= 2^(c (m - m_new)),  p_j = 2^(c s_j - c m_new),  l += sum_j p_j
 * In a block with hidden keys m may be -inf still; then 0 takes its place. */
template <int D, int BC, int hidden>
static __forceinline__ __device__ void softmax_step(struct state<D> &f,
                                                    float (&s)[tiling<D>::MT][BC / 8][4],
                                                    float c)
{
    constexpr int MT = tiling<D>::MT;
    float top[MT][2];
    int grown = 0;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = fmaxf(s[i][0][2 * r], s[i][0][2 * r + 1]);
#pragma unroll
            for (int n = 1; n < BC / 8; n++)
                x = fmaxf(x, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
            top[i][r] = x;
            grown |= (x - f.m[i][r]) * c > 8.0f;
        }
    if (__any_sync(~0u, grown)) {
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float m_new = fmaxf(f.m[i][r], top[i][r]);
                float base = hidden && m_new == -INFINITY ? 0.0f : m_new;
                float alpha = exp2_fast((f.m[i][r] - base) * c);
                f.m[i][r] = m_new;
                f.l[i][r] *= alpha;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    f.o[i][n][2 * r] *= alpha;
                    f.o[i][n][2 * r + 1] *= alpha;
                }
            }
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float base = hidden && f.m[i][r] == -INFINITY ? 0.0f : f.m[i][r] * c;
#pragma unroll
            for (int n = 0; n < BC / 8; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++)
                    f.l[i][r] += s[i][n][e] = exp2_fast(fmaf(s[i][n][e], c, -base));
        }
}

/* O += P V.
 *   v (BC, D)  swizzled tile */
template <enum dtype T, int D, int MT, int BC>
static __forceinline__ __device__ void add_pv(float (&o)[MT][D / 8][4],
                                              const float (&p)[MT][BC / 8][4],
                                              const uint16_t *v)
{
    int lane = threadIdx.x % 32;
    shared_address v0 = address_of(v + place_of<BC>(lane % 16, lane / 16));
#pragma unroll
    for (int j = 0; j < BC / 16; j++) { /* keys 16 j ... 16 j + 15 */
        uint32_t a[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                a[i][e] = pack<T>(p[i][2 * j + e / 2][2 * (e % 2)],
                                  p[i][2 * j + e / 2][2 * (e % 2) + 1]);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, (v0 ^ n % 8 * 16) + (n / 8 * BC + 16 * j) * 128);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                mma_16x8x16<T>(o[i][n], a[i], b[0], b[1]);
                mma_16x8x16<T>(o[i][n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* One key block of a warp. */
template <enum dtype T, int D, int hidden>
static __forceinline__ __device__ void step(struct state<D> &f, struct queries<D> &q,
                                            const struct tiles<D> &shared,
                                            const struct attention &x, int q0, int j0)
{
    constexpr int MT = tiling<D>::MT, BR = tiling<D>::BR, BC = tiling<D>::BC;
    int lane = threadIdx.x % 32, stage = j0 / BC % 2;
    int row0 = threadIdx.x / 32 * 16 * MT; /* this warp's first row of the tile */
    shared_address q_at = address_of(shared.q + place_of<BR>(row0 + lane % 16, lane / 16));
    float s[MT][BC / 8][4];
    scores<T, D, MT, BC>(s, q, q_at, shared.k[stage]);
    int row = q0 + row0 + lane / 4;
    if (hidden && x.bias) add_bias<MT, BC>(s, x, row, j0);
    if (hidden) mask<MT, BC>(s, x, row, j0);
    softmax_step<D, BC, hidden>(f, s, x.scale * 1.44269504f);
    add_pv<T, D, MT, BC>(f.o, s, shared.v[stage]);
}

/* o = O / l and lse = m scale + ln l; a query without visible keys gets 0 and -inf.  O goes
 * through the warp's own rows of the Q tile, so that 16 bytes a lane leave together. */
template <enum dtype T, int D>
static __forceinline__ __device__ void store(struct state<D> &f, struct tiles<D> &shared,
                                             const struct head &h, const struct attention &x)
{
    constexpr int MT = tiling<D>::MT, BR = tiling<D>::BR;
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * MT;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) { /* the row's sum from its four lanes */
            f.l[i][r] += __shfl_xor_sync(~0u, f.l[i][r], 1);
            f.l[i][r] += __shfl_xor_sync(~0u, f.l[i][r], 2);
        }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = row0 + 16 * i + lane / 4 + 8 * r;
            float l = f.l[i][r], scale = l == 0.0f ? 0.0f : __fdividef(1.0f, l);
            shared_address o0 = address_of(shared.q + place_of<BR>(row, 0) + 2 * (lane % 4));
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                store_pair((o0 ^ n % 8 * 16) + n / 8 * BR * 128,
                           pack<T>(f.o[i][n][2 * r] * scale, f.o[i][n][2 * r + 1] * scale));
            if (lane % 4 == 0 && h.q0 + row < x.seqlen_q)
                *lse_row(x, h, h.q0 + row) = l == 0.0f ? -INFINITY : f.m[i][r] * x.scale + logf(l);
        }
    __syncwarp();
    for (int n = lane; n < 16 * MT * D / 8; n += 32) {
        int row = row0 + n / (D / 8), piece = n % (D / 8);
        if (h.q0 + row < x.seqlen_q && 8 * piece < x.head_dim_v)
            *(uint4 *)(o_row(x, h, h.q0 + row) + 8 * piece) =
                *(const uint4 *)(shared.q + place_of<BR>(row, piece));
    }
}

template <int D>
static __forceinline__ __device__ void start_keys(struct tiles<D> &shared, const struct head &h,
                                                  const struct attention &x, int t)
{
    constexpr int BC = tiling<D>::BC;
    start_copy<D, BC>(shared.k[t % 2], h.k + (size_t)t * BC * x.head_dim, x.seqlen_k - t * BC,
                      x.head_dim);
    start_copy<D, BC>(shared.v[t % 2], h.v + (size_t)t * BC * x.head_dim_v,
                      x.seqlen_k - t * BC, x.head_dim_v);
    copies_commit();
}

/* A block computes BR queries of a head (attention.h).  One barrier a key block: after it
 * block t is here for all, and all have finished block t - 1, whose buffer block t + 1 may
 * take.  Blocks with few keys to do (causal) come last, so that they fill the gaps. */
template <enum dtype T, int D>
__global__ void __launch_bounds__(THREADS, tiling<D>::BLOCKS)
    pipelined_kernel(const struct attention x)
{
    constexpr int MT = tiling<D>::MT, BR = tiling<D>::BR, BC = tiling<D>::BC;
    struct tiles<D> &shared = dynamic_shared<struct tiles<D>>();
    int last = x.q_blocks - 1 - 2 * (blockIdx.x % x.q_blocks);
    const struct head h = head_of(x, x.causal ? blockIdx.x + last : blockIdx.x, BR);
    int n_blocks = (h.keys + BC - 1) / BC, offset = x.seqlen_k - x.seqlen_q;
    int n_open = (x.causal ? max(0, min(x.seqlen_k, h.q0 + 1 + offset)) : x.seqlen_k) / BC;
    if (x.bias) n_open = 0;

    struct state<D> f;
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) f.o[i][n][c] = 0.0f;
        for (int r = 0; r < 2; r++) f.m[i][r] = -INFINITY, f.l[i][r] = 0.0f;
    }

    start_copy<D, BR>(shared.q, q_row(x, h, h.q0), x.seqlen_q - h.q0, x.head_dim);
    start_keys(shared, h, x, 0);
    struct queries<D> q;
    if (tiling<D>::HOLD_Q) {
        copies_wait<0>();
        __syncthreads();
        int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * MT;
        shared_address q_at = address_of(shared.q + place_of<BR>(row0 + lane % 16, lane / 16));
#pragma unroll
        for (int d = 0; d < D / 16; d++) load_q(q, q_at, d);
    }
    int t = 0;
    for (; t < n_open; t++) { /* key blocks without hidden keys */
        copies_wait<0>();
        __syncthreads();
        if (t + 1 < n_blocks) start_keys(shared, h, x, t + 1);
        step<T, D, 0>(f, q, shared, x, h.q0, t * BC);
    }
    int warp_end = h.q0 + (threadIdx.x / 32 + 1) * 16 * MT + offset; /* keys this warp sees */
    for (; t < n_blocks; t++) { /* diagonal, ragged end, bias */
        copies_wait<0>();
        __syncthreads();
        if (t + 1 < n_blocks) start_keys(shared, h, x, t + 1);
        if (!x.causal || t * BC < warp_end) step<T, D, 1>(f, q, shared, x, h.q0, t * BC);
    }
    copies_wait<0>();
    __syncwarp();
    store<T, D>(f, shared, h, x);
}

template <enum dtype T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    struct attention x = attention_of(p, a, tiling<D>::BR);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(p->batch * p->heads_q * (size_t)x.q_blocks));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = sizeof(struct tiles<D>);
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(cudaFuncSetAttribute(pipelined_kernel<T, D>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)sizeof(struct tiles<D>)));
    CUDA_CHECK(cudaLaunchKernelEx(&config, pipelined_kernel<T, D>, x));
}

/* The first compiled head dimension that holds d columns. */
template <enum dtype T, int D, int... LARGER>
static void launch_for(size_t d, const struct problem *p, const struct arrays *a)
{
    if (d <= D) return launch<T, D>(p, a);
    if constexpr (sizeof...(LARGER) > 0) launch_for<T, LARGER...>(d, p, a);
}

/* Ascending, the last one is 256.  Add one here for heads that should not be padded. */
#define HEADS 64, 128, 256

static void attention(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    if (p->dtype == F16) launch_for<F16, HEADS>(d, p, a);
    else launch_for<BF16, HEADS>(d, p, a);
}

static const char *refuses(const struct problem *p)
{
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if (p->head_dim % 8 || p->head_dim_v % 8) return "a head_dim that is no multiple of 8";
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
    struct cost c = {0.0, heads * (2.0 * d * p->seqlen_q + 2.0 * d * keys), heads * pairs};
    return c;
}

GPU_VARIANT(pipelined) = {
    .name = "pipelined",
    .idea = "swizzle, cp.async double buffering, exp2, deferred sum: FlashAttention-2",
    .device = GPU_DEVICE,
    .least_arch = 80,
    .types = TYPE(F16) | TYPE(BF16),
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = refuses,
    .cost = cost,
    .attention = attention,
    .on_gpu = GPU_TWIN(pipelined),
};
