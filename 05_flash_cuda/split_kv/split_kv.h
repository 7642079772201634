/* split_kv.h: how keys are cut into parts for few queries, and how parts are merged; what
 * the split-KV kernels share.
 *
 *     state of a set of keys: (m, l, o),  m = max_j s_j,  l = sum_j exp(s_j - m),
 *                                         o = sum_j exp(s_j - m) v_j
 *
 * The states of two sets merge into that of both (stage 4's monoid), so the keys of a
 * head may be folded by many blocks.  They merge twice, each time in a fixed order: the
 * warps of a block, in shared memory, and the parts of a row, by a second kernel.  The
 * unit (-inf, 0, 0) is what a part without visible keys gives. */
#pragma once

#include "start.h"
#include "split_kv/kernel_call.h"
#include "portable/mma_sync.h"
#include "portable/scores.h"

constexpr int MOST_PARTS = 128, SHORT_PART = 256, LONG_PART = 4096; /* keys */
constexpr int MOST_WARPS = 8, MERGE_THREADS = 128;

/* How the keys are cut, and where the parts' states go. */
struct parts {
    int n, keys;     /* number of parts, keys in each (the last may have fewer or none) */
    int warps;       /* of a block */
    int n_rows;      /* queries of all heads that share a key head */
    size_t all_rows; /* of o and lse: batch * heads_q * seqlen_q */
    float2 *ml;      /* (n, all_rows): m, l */
    float *o;        /* (n, all_rows, head_dim_v) */
};

/* One column of a state. */
struct column { float m, l, o; };

/* What l and o with maximum m are multiplied by when the maximum becomes m_new: stage 4's
 * se_factor() with the fast exponential.  Twice the unit must not be exp(-inf - -inf). */
static __forceinline__ __device__ float factor_of(float m, float m_new)
{
    return m == m_new ? 1.0f : __expf(m - m_new);
}

/* o[at] = value, in the problem's type. */
template <enum dtype T>
static __forceinline__ __device__ void store(const struct attention &x, size_t at,
                                             float value)
{
    if constexpr (T == F32) ((float *)x.o)[at] = value;
    else x.o[at] = (uint16_t)pack<T>(value, 0.0f);
}

/* The column with a key of score `sink` and value 0 merged into it.  A sink of +inf or NaN gives
 * NaN, as a score does: inf - inf. */
static __forceinline__ __device__ struct column with_sink(struct column y, float sink)
{
    if (sink == -INFINITY) return y;
    float m = fmaxf(y.m, sink), factor = factor_of(y.m, m);
    return {m, y.l * factor + __expf(sink - m), y.o * factor};
}

/* Writes one column of a row's result: o / l; with column 0 lse = m + log l. */
template <enum dtype T>
static __forceinline__ __device__ void store_result(const struct attention &x,
                                                    const struct result_row &row, int c,
                                                    struct column y)
{
    y = with_sink(y, row.sink);
    store<T>(x, row.o + c, y.l == 0.0f ? 0.0f : y.o / y.l);
    if (c == 0 && x.lse) x.lse[row.number] = y.l == 0.0f ? -INFINITY : y.m + logf(y.l);
}

/* Writes one column of a row's state in this block's part; with column 0 m and l. */
static __forceinline__ __device__ void store_part(const struct attention &x,
                                                  const struct parts &parts, size_t row,
                                                  int c, struct column y)
{
    size_t at = blockIdx.y * parts.all_rows + row;
    parts.o[at * x.head_dim_v + c] = y.o;
    if (c == 0) parts.ml[at] = make_float2(y.m, y.l);
}

/* The maximum of row r over the block's warps.
 *   buffers  what each warp has in shared memory: m, l (ROWS), in the end o (ROWS, D) */
template <int WARPS, class BUFFER>
static __forceinline__ __device__ float block_max(const BUFFER *buffers, int r)
{
    float x = buffers[0].m[r];
#pragma unroll
    for (int w = 1; w < WARPS; w++) x = fmaxf(x, buffers[w].m[r]);
    return x;
}

/* Merges the warps' states, which are already relative to the block's maximum, so that l
 * and o have only to be added, and writes the outcome: the result where there is one
 * part, else the part's state.  All threads call it.
 *   row0  first of this block's rows of the group      n_rows  how many */
template <enum dtype T, int WARPS, class BUFFER>
static __forceinline__ __device__ void
merge_warps(const BUFFER *buffers, const struct attention &x, const struct call &call,
            const struct parts &parts, const struct head_group &g, int row0, int n_rows)
{
    __syncthreads(); /* l and o of all warps are there */
    constexpr int ACROSS = 128; /* threads side by side in a row */
    static_assert(32 * WARPS % ACROSS == 0, "rows are dealt out to groups of threads");
    for (int c = threadIdx.x % ACROSS; c < x.head_dim_v; c += ACROSS)
#pragma unroll 2
        for (int r = threadIdx.x / ACROSS; r < n_rows; r += 32 * WARPS / ACROSS) {
            struct column y = {block_max<WARPS>(buffers, r), 0.0f, 0.0f};
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                y.l += buffers[w].l[r];
                y.o += buffers[w].o[r][c];
            }
            int row = lse_number(call, x, g, row0 + r);
            if (parts.n == 1) store_result<T>(x, result_row(call, x, row), c, y);
            else store_part(x, parts, row, c, y);
        }
}

/* One block merges the parts of one row, a thread a column, in groups of 8 parts, so that
 * their loads are under way together.
 *
 * On sm_90 it starts while the other kernel still reads keys, and first merges no parts
 * (o = 0): so its instructions are in the cache when it counts.  Fetched when the parts
 * are ready they would cost more time than the merge. */
template <enum dtype T>
static __global__ void __launch_bounds__(MERGE_THREADS)
    merge_parts_kernel(const struct attention x, const struct call call,
                       const struct parts parts)
{
    constexpr int GROUP = 8;
    const struct result_row row = result_row(call, x, blockIdx.x);
#pragma unroll 1
    for (int rehearsal = STARTS_EARLY; rehearsal >= 0; rehearsal--) {
        const int n = rehearsal ? 0 : parts.n;
        if (!rehearsal) wait_for_previous_kernel();
        for (int c = threadIdx.x; c < x.head_dim_v; c += MERGE_THREADS) {
            struct column y = {-INFINITY, 0.0f, 0.0f};
            int i0 = 0;
            do {
                float2 ml[GROUP];
                float o[GROUP], m = y.m;
#pragma unroll
                for (int i = 0; i < GROUP; i++) {
                    size_t at = (i0 + i) * parts.all_rows + blockIdx.x;
                    ml[i] = i0 + i < n ? parts.ml[at] : make_float2(-INFINITY, 0.0f);
                    o[i] = i0 + i < n ? parts.o[at * x.head_dim_v + c] : 0.0f;
                }
#pragma unroll
                for (int i = 0; i < GROUP; i++) m = fmaxf(m, ml[i].x);
                float factor = factor_of(y.m, m);
                y = {m, y.l * factor, y.o * factor};
#pragma unroll
                for (int i = 0; i < GROUP; i++) {
                    factor = factor_of(ml[i].x, m);
                    y.l += factor * ml[i].y;
                    y.o += factor * o[i];
                }
            } while ((i0 += GROUP) < n);
            store_result<T>(x, row, c, y);
        }
    }
}

/* Queries of all heads that share a key head. */
static size_t rows_of_group(const struct problem *p)
{
    return heads_of_group(p) * p->seqlen_q;
}

/* How the keys are cut: into the smallest number of parts within 5 % of the best use of
 * the multiprocessors.  One holds two blocks of 4 warps, but a second one pays only when
 * a part is long; or one of 8, where nearly each has one and parts are not short.
 *   rows  queries of a tile      bytes  of shared memory that 8 warps need */
static struct parts parts_of(const struct problem *p, int rows, size_t bytes)
{
    const size_t n_sm = device_attribute<cudaDevAttrMultiProcessorCount>();
    const size_t most_bytes = shared_memory_limit();
    const size_t tile = 64; /* a part is a multiple of it */
    struct parts parts = {};
    parts.n_rows = (int)rows_of_group(p);
    parts.all_rows = all_rows_of(p);
    const size_t keys = most_keys(p);
    size_t blocks = p->batch * p->heads_kv * ((parts.n_rows + rows - 1) / rows);
    if (blocks == 0) blocks = 1;
    double use[MOST_PARTS + 1], best = 0.0;
    for (size_t n = 1; n <= MOST_PARTS; n++) {
        size_t least = blocks * n <= n_sm ? SHORT_PART : LONG_PART;
        if (n > 1 && keys / n < least) break;
        double waves = (double)(blocks * n) / (blocks * n <= n_sm ? n_sm : 2 * n_sm);
        use[n] = waves / ceil(waves);
        best = fmax(best, use[n]);
    }
    for (parts.n = 1; use[parts.n] < 0.95 * best;) parts.n++;
    size_t tiles = (keys + tile - 1) / tile + (keys < p->seqlen_k); /* cut anywhere */
    parts.keys = (int)((tiles + parts.n - 1) / parts.n * tile);
    size_t all = blocks * parts.n;
    parts.warps = all <= n_sm && 10 * all >= 9 * n_sm && parts.keys >= 4 * SHORT_PART &&
                          bytes <= most_bytes
                      ? MOST_WARPS
                      : 4;
    return parts;
}

[[maybe_unused]] static size_t workspace_of(const struct problem *p, struct parts parts)
{
    return parts.n == 1 ? 0
                        : parts.n * parts.all_rows * (p->head_dim_v + 2) * sizeof(float);
}

/* Launches the kernel for all parts and, if there are several, the merge.
 *   bytes  of shared memory      rows  queries of a tile */
template <enum dtype T>
static void launch_parts(void (*kernel)(const struct attention, const struct call,
                                        const struct parts),
                         size_t bytes, int rows, struct parts parts,
                         const struct problem *p, const struct arrays *a)
{
    const struct attention x = attention_of(p, a, rows);
    const struct call call = call_of(p, a);
    parts.ml = (float2 *)a->workspace;
    parts.o = (float *)(parts.ml + parts.n * parts.all_rows);
    start(kernel,
          dim3((unsigned)(p->batch * p->heads_kv), (unsigned)parts.n,
               (unsigned)((parts.n_rows + rows - 1) / rows)),
          32 * parts.warps, bytes, a->stream, x, call, parts);
    if (parts.n > 1)
        start<EARLY>(merge_parts_kernel<T>, parts.all_rows, MERGE_THREADS, 0, a->stream, x, call,
                     parts);
}

/* What neither kernel takes. */
static const char *split_refuses(const struct problem *p, size_t most_rows)
{
    static thread_local char text[64];
    if (rows_of_group(p) > most_rows) {
        snprintf(text, sizeof text, "more than %zu queries for a key head", most_rows);
        return text;
    }
    if (all_rows_of(p) > LONGEST) return "more than 2^29 rows";
    if (p->seqlen_k > LONGEST) return "more than 2^29 keys";
    return p->batch * p->heads_kv > 0x7fffffff ? "2^31 key heads" : NULL;
}

/* What is taken, in words. */
[[maybe_unused]] static const char *split_picks(struct parts parts)
{
    static char text[64];
    snprintf(text, sizeof text, "%d part%s of %d keys, blocks of %d warps", parts.n,
             parts.n == 1 ? "" : "s", parts.keys, parts.warps);
    return text;
}

/* K and V once for every `rows` queries of a key head; parts are small. */
[[maybe_unused]] static struct cost split_cost(const struct problem *p, size_t rows)
{
    double size = (double)dtype_size(p->dtype), d = (double)p->head_dim + p->head_dim_v;
    double of_key = (double)(p->head_dim * dtype_size(k_dtype(p)) + p->head_dim_v * dtype_size(v_dtype(p)));
    size_t tiles = (rows_of_group(p) + rows - 1) / rows;
    double reads = (double)p->batch * p->heads_kv * tiles * most_keys(p);
    double queries = (double)p->batch * p->heads_q * p->seqlen_q;
    struct cost c = {0.0, of_key * reads + size * d * queries, queries * most_keys(p)};
    return c;
}

/* The part of the descriptor that they share; a third argument: what else is supported. */
#define SPLIT_VARIANT(arch, of_types, ...)                                                       \
    .group = IN_SPLIT_KV, .device = GPU_DEVICE, .least_arch = arch, .types = of_types,           \
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |          \
                WITH_PACKED | WITH_PAGES | WITH_STRIDES | WITH_BIAS_STRIDES | WITH_LENGTHS       \
                __VA_OPT__(| __VA_ARGS__),                                                       \
    .max_score = INFINITY, .masked_rows = 1, .lse_may_be_null = 1, .refuses = refuses,           \
    .picks = picks, .workspace = workspace, .cost = cost, .does = {{OP_ATTENTION, attention}}
