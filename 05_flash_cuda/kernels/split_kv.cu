/* split_kv.cu: few queries and many keys (one new token against a long past).
 *
 *     each part of the keys gives (o_i, lse_i);    w_i = exp(lse_i - max_i lse_i)
 *     o = sum_i w_i o_i / sum_i w_i,    lse = max_i lse_i + log sum_i w_i
 *
 * Rung 4 gives a head to one block per 128 queries; with one query most of the GPU would
 * idle, and most of each product would be padding.  But attention is a fold in a monoid
 * (stage 4): keys may be cut into parts, folded by different blocks, and the parts
 * merged.  Time is what it takes to read K and V once, so everything serves to keep
 * memory busy:
 *   - the queries of all heads that share a key head (GQA) are the rows of one tile of
 *     16, so K and V are read once for the group
 *   - each warp folds its own keys, 16 at a time, and has its own ring of copies under
 *     way; no barrier until the warps' states are merged at the end
 *   - the number of parts fills the multiprocessors; a second small kernel merges parts
 *
 * A part without keys has lse = -inf and is skipped.  bfloat16 and float16; head_dim and
 * head_dim_v multiples of 8 up to 256; at most 64 queries for a key head. */
#include "attention.h"
#include "mma.h"

enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16, KEYS = 16 };
enum { MOST_PARTS = 128, MOST_ROWS = 64 };

/* How the keys are cut, and where the parts' results go. */
struct parts {
    int n, keys;  /* number of parts, keys in each (the last may have fewer or none) */
    int n_rows;   /* queries of all heads that share a key head */
    int all_rows; /* of o and lse: batch * heads_q * seqlen_q */
    float *o;     /* (n, all_rows, head_dim_v) */
    float *lse;   /* (n, all_rows) */
};

/* A ring of slots for each warp: item 2 t is tile t of K, item 2 t + 1 tile t of V.
 * 96 KB a block whatever D.  Later the warps' states lie there. */
template <int D> struct ring {
    static constexpr int SLOTS = 768 / D;
    static constexpr int PANELS = (D + 63) / 64;
    union {
        alignas(1024) uint16_t slot[WARPS][SLOTS][PANELS * KEYS * 64];
        struct { float o[WARPS][ROWS][D + 4], m[WARPS][ROWS], l[WARPS][ROWS]; } state;
    };
};

template <int D> struct state {
    float o[D / 8][4], m[2], l[2]; /* m in units of log 2; l this lane's part */
};

/* Where piece `piece` (8 columns) of row `row` lies in a slot: rung 4's swizzle. */
static __forceinline__ __device__ int place_of(int row, int piece)
{
    return (piece / 8 * KEYS + row) * 64 + (piece % 8 ^ row % 8) * 8;
}

/* Starts the warp's copy of KEYS rows.
 *   slot (KEYS, D) swizzled   from (n_rows, n_columns); what lies beyond becomes zero */
template <int D>
static __forceinline__ __device__ void start_copy(const uint16_t *slot,
                                                  const uint16_t *from, int n_rows,
                                                  int n_columns)
{
    constexpr int PIECES = D / 8;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < KEYS * PIECES / 32; i++) {
        int row = (lane + 32 * i) / PIECES, piece = (lane + 32 * i) % PIECES;
        copy_16_bytes(address_of(slot + place_of(row, piece)),
                      from + (ptrdiff_t)row * n_columns + 8 * piece,
                      row < n_rows && 8 * piece < n_columns);
    }
}

/* The queries of a tile as A fragments.
 *   q (n_rows, n_columns)  rows and columns beyond are zeros */
template <int D>
static __forceinline__ __device__ void load_q(uint32_t (&a)[D / 16][4], const uint16_t *q,
                                              int n_rows, int n_columns)
{
#pragma unroll
    for (int d = 0; d < D / 16; d++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int row = threadIdx.x % 32 / 4 + 8 * (r % 2);
            int column = 16 * d + 8 * (r / 2) + 2 * (threadIdx.x % 4);
            a[d][r] = 0;
            if (row < n_rows && column < n_columns)
                a[d][r] = *(const uint32_t *)(q + (size_t)row * n_columns + column);
        }
}

/* S = Q K^T for 16 keys: two C fragments. */
template <enum dtype T, int D>
static __forceinline__ __device__ void scores(float (&s)[2][4],
                                              const uint32_t (&q)[D / 16][4],
                                              const uint16_t *k)
{
    int lane = threadIdx.x % 32;
    shared_address k0 = address_of(k + place_of(lane % 8 + lane / 16 * 8, lane / 8 % 2));
#pragma unroll
    for (int c = 0; c < 4; c++) s[0][c] = s[1][c] = 0.0f;
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
        uint32_t b[4];
        load_matrices(b, (k0 ^ d % 4 * 32) + d / 4 * KEYS * 128);
        mma_16x8x16<T>(s[0], q[d], b[0], b[1]);
        mma_16x8x16<T>(s[1], q[d], b[2], b[3]);
    }
}

/* s = (scale s + bias) log2(e), -inf where the key is hidden.
 *   row0  first row of the tile, a row being head * seqlen_q + query of the group
 *   j0    first key      end  of the part's keys */
static __forceinline__ __device__ void scale_and_mask(float (&s)[2][4],
                                                      const struct attention &x, int row0,
                                                      int n_rows, int j0, int end)
{
    const float log2_e = 1.44269504f;
    bool all_visible = !x.bias && j0 + KEYS <= end && (!x.causal || x.seqlen_q == 1);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            s[n][c] *= x.scale * log2_e;
            if (all_visible) continue;
            int row = row0 + threadIdx.x % 32 / 4 + 8 * (c / 2), query = row % x.seqlen_q;
            int key = j0 + 8 * n + 2 * (threadIdx.x % 4) + c % 2;
            bool hidden =
                key >= end || (x.causal && key > query + x.seqlen_k - x.seqlen_q);
            float bias = 0.0f;
            if (x.bias && !hidden && row < n_rows)
                bias = x.bias[(size_t)query * x.seqlen_k + key] * log2_e;
            s[n][c] = hidden || bias == -INFINITY ? -INFINITY : s[n][c] + bias;
        }
}

/* Folds 16 scores a row into m, l and o, and turns them into P (rung 3, in powers of
 * 2). */
template <int D>
static __forceinline__ __device__ void softmax_step(struct state<D> &f, float (&s)[2][4])
{
    float m_new[2];
    for (int r = 0; r < 2; r++) {
        float x = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]),
                        fmaxf(s[1][2 * r], s[1][2 * r + 1]));
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
        m_new[r] = fmaxf(f.m[r], x);
    }
    if (__any_sync(~0u, m_new[0] > f.m[0] || m_new[1] > f.m[1]))
        for (int r = 0; r < 2; r++) {
            float alpha = m_new[r] > f.m[r] ? exp2_fast(f.m[r] - m_new[r]) : 1.0f;
            f.l[r] *= alpha;
            f.m[r] = m_new[r];
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                f.o[n][2 * r] *= alpha;
                f.o[n][2 * r + 1] *= alpha;
            }
        }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float base = f.m[c / 2] == -INFINITY ? 0.0f : f.m[c / 2];
            f.l[c / 2] += s[n][c] = exp2_fast(s[n][c] - base);
        }
}

/* O += P V for 16 keys. */
template <enum dtype T, int D>
static __forceinline__ __device__ void add_pv(float (&o)[D / 8][4],
                                              const float (&p)[2][4], const uint16_t *v)
{
    int lane = threadIdx.x % 32;
    shared_address v0 = address_of(v + place_of(lane % 16, lane / 16));
    uint32_t a[4] = {pack<T>(p[0][0], p[0][1]), pack<T>(p[0][2], p[0][3]),
                     pack<T>(p[1][0], p[1][1]), pack<T>(p[1][2], p[1][3])};
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        uint32_t b[4];
        load_matrices_transposed(b, (v0 ^ n % 8 * 16) + n / 8 * KEYS * 128);
        mma_16x8x16<T>(o[n], a, b[0], b[1]);
        mma_16x8x16<T>(o[n + 1], a, b[2], b[3]);
    }
}

/* Puts the warp's state where all warps find it. */
template <int D>
static __forceinline__ __device__ void publish(struct ring<D> &shared, struct state<D> &f,
                                               int n_rows)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int r = 0; r < 2; r++) {
        int row = lane / 4 + 8 * r;
        f.l[r] += __shfl_xor_sync(~0u, f.l[r], 1);
        f.l[r] += __shfl_xor_sync(~0u, f.l[r], 2);
        if (row >= n_rows) continue;
        if (lane % 4 == 0) {
            shared.state.m[warp][row] = f.m[r];
            shared.state.l[warp][row] = f.l[r];
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(float2 *)&shared.state.o[warp][row][8 * n + 2 * (lane % 4)] =
                make_float2(f.o[n][2 * r], f.o[n][2 * r + 1]);
    }
}

/* Merges the warps' states and writes o and lse: the result where there is one part, else
 * the part's.
 *   row   of o and lse in the whole problem      n_rows  rows of this tile */
template <enum dtype T, int D>
static __forceinline__ __device__ void merge_warps(const struct ring<D> &shared,
                                                   const struct attention &x,
                                                   const struct parts &parts, int row,
                                                   int n_rows)
{
    const float log_2 = 0.693147181f;
    for (int i = threadIdx.x; i < n_rows * x.head_dim_v; i += THREADS) {
        int r = i / x.head_dim_v, column = i % x.head_dim_v;
        float m = -INFINITY, l = 0.0f, o = 0.0f;
        for (int w = 0; w < WARPS; w++) m = fmaxf(m, shared.state.m[w][r]);
        for (int w = 0; w < WARPS; w++) {
            float alpha = m == -INFINITY ? 1.0f : exp2_fast(shared.state.m[w][r] - m);
            l += alpha * shared.state.l[w][r];
            o += alpha * shared.state.o[w][r][column];
        }
        float lse = l == 0.0f ? -INFINITY : m * log_2 + logf(l);
        o = l == 0.0f ? 0.0f : o / l;
        size_t at = ((size_t)blockIdx.y * parts.all_rows + row + r);
        if (parts.n == 1) x.o[at * x.head_dim_v + column] = (uint16_t)pack<T>(o, 0.0f);
        else parts.o[at * x.head_dim_v + column] = o;
        if (column == 0) (parts.n == 1 ? x.lse : parts.lse)[at] = lse;
    }
}

/* Block (i, part, tile): key head i (b * heads_kv + h), the part's keys, 16 rows of
 * its queries.  The ring: while item i is computed, items up to i + SLOTS - 1 are
 * under way; the newest of them takes the slot of item i - 1, which all lanes have
 * read. */
template <enum dtype T, int D>
__global__ void __launch_bounds__(THREADS, 2)
    split_kv_kernel(const struct attention x, const struct parts parts)
{
    constexpr int SLOTS = ring<D>::SLOTS;
    dependents_may_start(); /* merge_parts_kernel: it waits for the end of this kernel */
    struct ring<D> &shared = dynamic_shared<struct ring<D>>();
    const int warp = threadIdx.x / 32, row0 = blockIdx.z * ROWS;
    const uint16_t *k = x.k + (size_t)blockIdx.x * x.seqlen_k * x.head_dim;
    const uint16_t *v = x.v + (size_t)blockIdx.x * x.seqlen_k * x.head_dim_v;
    const int end = min(x.seqlen_k, (int)(blockIdx.y + 1) * parts.keys);
    int j0 = blockIdx.y * parts.keys + warp * KEYS; /* first key of this warp's tile */

    auto start = [&](int item, int slot) { /* item counts from the tile at j0 */
        int j = j0 + item / 2 * WARPS * KEYS;
        const uint16_t *to = shared.slot[warp][slot];
        if (item % 2 == 0)
            start_copy<D>(to, k + (ptrdiff_t)j * x.head_dim, end - j, x.head_dim);
        else start_copy<D>(to, v + (ptrdiff_t)j * x.head_dim_v, end - j, x.head_dim_v);
        copies_commit();
    };
    for (int i = 0; i < SLOTS - 1; i++) start(i, i);

    uint32_t q[D / 16][4];
    const int row = blockIdx.x * parts.n_rows + row0; /* in q, o and lse */
    load_q<D>(q, x.q + (size_t)row * x.head_dim, parts.n_rows - row0, x.head_dim);
    struct state<D> f = {};
    f.m[0] = f.m[1] = -INFINITY;

    int slot = 0;
    auto next = [&](int item) { /* waits for the slot's data, starts an item, moves on */
        copies_wait<SLOTS - 2>();
        __syncwarp();
        start(item + SLOTS - 1, slot == 0 ? SLOTS - 1 : slot - 1);
        const uint16_t *tile = shared.slot[warp][slot];
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
        return tile;
    };
    for (; j0 < end; j0 += WARPS * KEYS) {
        float s[2][4];
        scores<T, D>(s, q, next(0));
        scale_and_mask(s, x, row0, parts.n_rows, j0, end);
        softmax_step<D>(f, s);
        add_pv<T, D>(f.o, s, next(1));
    }
    copies_wait<0>();
    __syncthreads(); /* the ring is free */
    const int n_rows = min((int)ROWS, parts.n_rows - row0);
    publish<D>(shared, f, n_rows);
    __syncthreads();
    merge_warps<T, D>(shared, x, parts, row, n_rows);
}

/* One block merges the parts of one row, a thread a column: the fold of (lse_i, 1,
 * o_i) in groups of 8 parts, so that their loads are under way together. */
template <enum dtype T>
__global__ void __launch_bounds__(THREADS)
    merge_parts_kernel(const struct attention x, const struct parts parts)
{
    const int GROUP = 8, row = blockIdx.x;
    wait_for_previous_kernel();
    for (int c = threadIdx.x; c < x.head_dim_v; c += THREADS) {
        float m = -INFINITY, l = 0.0f, o = 0.0f;
        for (int i0 = 0; i0 < parts.n; i0 += GROUP) {
            float lse[GROUP], part_o[GROUP], m_new = m;
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                size_t at = (size_t)(i0 + i) * parts.all_rows + row;
                lse[i] = i0 + i < parts.n ? parts.lse[at] : -INFINITY;
                part_o[i] = i0 + i < parts.n ? parts.o[at * x.head_dim_v + c] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < GROUP; i++) m_new = fmaxf(m_new, lse[i]);
            float base = m_new == -INFINITY ? 0.0f : m_new, alpha = __expf(m - base);
            o *= alpha;
            l *= alpha;
            m = m_new;
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                float w = __expf(lse[i] - base);
                l += w;
                o += w * part_o[i];
            }
        }
        o = l == 0.0f ? 0.0f : o / l;
        x.o[(size_t)row * x.head_dim_v + c] = (uint16_t)pack<T>(o, 0.0f);
        if (c == 0) x.lse[row] = l == 0.0f ? -INFINITY : m + logf(l);
    }
}

/* An attribute of the first device used, asked for once: a decode step is short. */
template <enum cudaDeviceAttr what> static int device_attribute(void)
{
    static int value = -1;
    if (value < 0) {
        int device;
        CUDA_CHECK(cudaGetDevice(&device));
        CUDA_CHECK(cudaDeviceGetAttribute(&value, what, device));
    }
    return value;
}

/* How many parts: the smallest number within 5 % of the best use of the multiprocessors.
 * Each takes two blocks, which keeps more copies under way, but a second one pays only
 * when a part has 4096 keys, and less than 256 keys are no part. */
static int parts_for(const struct problem *p)
{
    int n_sm = device_attribute<cudaDevAttrMultiProcessorCount>();
    size_t n_rows = p->heads_q / p->heads_kv * p->seqlen_q;
    size_t blocks = p->batch * p->heads_kv * ((n_rows + ROWS - 1) / ROWS);
    double use[MOST_PARTS + 1], best = 0.0;
    size_t most = 1;
    for (size_t n = 1; n <= MOST_PARTS; n++) {
        if (n > 1 && (p->seqlen_k / n < 256 ||
                      (p->seqlen_k / n < 4096 && blocks * n > (size_t)n_sm)))
            break;
        double waves = (double)(blocks * n) / (2.0 * n_sm);
        use[n] = waves / ceil(waves);
        best = fmax(best, use[n]);
        most = n;
    }
    for (size_t n = 1; n <= most; n++)
        if (use[n] >= 0.95 * best) return (int)n;
    return 1;
}

static size_t workspace(const struct problem *p)
{
    int n = parts_for(p);
    size_t rows = p->batch * p->heads_q * p->seqlen_q;
    return n == 1 ? 0 : n * rows * (p->head_dim_v + 1) * sizeof(float);
}

template <enum dtype T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    struct attention x = attention_of(p, a, ROWS);
    struct parts parts = {};
    parts.n = parts_for(p);
    int tiles = ((int)p->seqlen_k + WARPS * KEYS - 1) / (WARPS * KEYS);
    parts.keys = (tiles + parts.n - 1) / parts.n * WARPS * KEYS;
    parts.n_rows = (int)(p->heads_q / p->heads_kv * p->seqlen_q);
    parts.all_rows = (int)(p->batch * p->heads_q * p->seqlen_q);
    parts.o = (float *)a->workspace;
    parts.lse = parts.o + (size_t)parts.n * parts.all_rows * p->head_dim_v;

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(p->batch * p->heads_kv), (unsigned)parts.n,
                          (unsigned)(parts.n_rows + ROWS - 1) / ROWS);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = sizeof(struct ring<D>);
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(cudaFuncSetAttribute(split_kv_kernel<T, D>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)sizeof(struct ring<D>)));
    CUDA_CHECK(cudaLaunchKernelEx(&config, split_kv_kernel<T, D>, x, parts));
    if (parts.n == 1) return;

    cudaLaunchAttribute early = {}; /* may start while the first kernel ends (sm_90) */
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)parts.all_rows);
    config.dynamicSmemBytes = 0;
    config.attrs = &early;
    config.numAttrs = device_attribute<cudaDevAttrComputeCapabilityMajor>() >= 9;
    CUDA_CHECK(cudaLaunchKernelEx(&config, merge_parts_kernel<T>, x, parts));
}

template <enum dtype T>
static void attention_in(const struct problem *p, const struct arrays *a)
{
    size_t d = p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
    if (d <= 64) launch<T, 64>(p, a);
    else if (d <= 128) launch<T, 128>(p, a);
    else launch<T, 256>(p, a);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    if (p->dtype == F16) attention_in<F16>(p, a);
    else attention_in<BF16>(p, a);
}

static const char *refuses(const struct problem *p)
{
    if (p->heads_kv && p->heads_q / p->heads_kv * p->seqlen_q > MOST_ROWS)
        return "more than 64 queries for a key head";
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if (p->head_dim % 8 || p->head_dim_v % 8)
        return "a head_dim that is no multiple of 8";
    return NULL;
}

/* K and V once for every 16 queries of a key head; parts are small. */
static struct cost cost(const struct problem *p)
{
    double d = (double)p->head_dim + p->head_dim_v;
    size_t tiles = (p->heads_q / p->heads_kv * p->seqlen_q + ROWS - 1) / ROWS;
    double reads = (double)p->batch * p->heads_kv * tiles * p->seqlen_k;
    double queries = (double)p->batch * p->heads_q * p->seqlen_q;
    struct cost c = {0.0, 2.0 * d * (reads + queries), queries * p->seqlen_k};
    return c;
}

GPU_VARIANT(split_kv) = {
    .name = "split_kv",
    .idea = "for few queries: keys cut into parts, a group of heads in one tile, merged",
    .device = GPU_DEVICE,
    .least_arch = 80,
    .types = TYPE(F16) | TYPE(BF16),
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = refuses,
    .workspace = workspace,
    .cost = cost,
    .attention = attention,
    .on_gpu = GPU_TWIN(split_kv),
};
