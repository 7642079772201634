/* 01_tiled.cu: rung 1, attention in one kernel: tiles in shared memory, online softmax.
 *
 * A block of threads computes Br queries of one head (and MAX_COLS columns of their
 * output).  It goes through the keys in tiles of Bc and keeps for each query the element
 * of the monoid SE(R^dv) x SE(R) that stands for the keys so far,
 *
 *     m_new = max(m, max_j s_j)           s_j = scale q.k_j + bias_j
 *     l     = l exp(m - m_new) + sum_j exp(s_j - m_new)
 *     o     = o exp(m - m_new) + sum_j exp(s_j - m_new) v_j
 *
 * so the scores never reach main memory.  Dao et al. 2022 ("FlashAttention"), Algorithm
 * 1, with the loops exchanged as in FlashAttention-2: K and V are read
 * ceil(seqlen_q / Br) times, Q and O once.
 *
 * A warp works on one query after another: first lane j has the score of key j (Bc is the
 * size of a warp), then lane c has the output columns c, c + 32, ...
 *
 * Any head_dim (in pieces of MAX_COLS) and head_dim_v (a block for each MAX_COLS of its
 * columns), all types, causal, windows, bias, grouped heads, ragged sizes, packed
 * sequences, strides.  Masked keys are skipped, not multiplied by 0: NaN in a masked row of
 * V does not spread. */
#include "harness.h"

#include "cost.h"
#include "gpu/cuda_check.h"
#include "mask32.h"
#include "monoid.h"
#include "portable/float_arithmetic.h"
#include "portable/launch.h"
#include "problem/layout.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

enum {
    Br = 32,        /* queries of a block */
    Bc = 32,        /* keys of a tile */
    MAX_COLS = 128, /* columns of q, k, v that lie in shared memory at a time */
    WARPS = 8,
    THREADS = 32 * WARPS,
    ROWS = Br / WARPS,   /* queries of a warp */
    COLS = MAX_COLS / 32 /* output columns of a lane */
};
static_assert(Bc == 32, "lane j of a warp has key j of the tile");

/* Shared memory.  A row of k is longer by 16 bytes, so that the rows that the lanes read
 * at the same column lie in different banks. */
struct tiles {
    alignas(16) float q[Br][MAX_COLS];
    float k[Bc][MAX_COLS + 4];
    float v[Bc][MAX_COLS];
    float p[WARPS][Bc]; /* exp(s - m) of the query that the warp works on */
};

/* The kernel's argument: the problem, its arrays, and how the work is cut.  Block number
 * (head * col_blocks + c) * q_blocks + i, head = b * heads_q + h. */
struct work {
    struct problem p;
    struct arrays a;
    unsigned q_blocks;   /* blocks of Br queries in a head of the longest sequence */
    unsigned col_blocks; /* blocks of MAX_COLS columns in a row of the output */
    unsigned group;      /* query heads that share a key head */
    float *trace; /* TRACE: for each tile max s, m, l, correction, o (head_dim_v) */
};

/* Copies rows to shared memory, as floats.
 *   from  n rows of `cols` elements, `stride` elements from one row to the next
 *   to (n_rows, pitch)  what lies beyond them becomes 0, up to a multiple of 4 columns */
template <class T>
static __device__ void load_tile(float *to, int pitch, int n_rows, const T *from,
                                 size_t stride, int n, int cols)
{
    int width = (cols + 3) / 4 * 4;
    for (int i = threadIdx.x; i < n_rows * width; i += THREADS) {
        int r = i / width, c = i % width;
        to[r * pitch + c] = r < n && c < cols ? (float)from[r * stride + c] : 0.0f;
    }
}

/* s[r] += q.k over `cols` columns, of the warp's query r and the lane's key. */
static __device__ void add_scores(float *s, const struct tiles &shared, int warp,
                                  int lane, int cols)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float *q_i = shared.q[warp * ROWS + r], *k_j = shared.k[lane];
        for (int d = 0; d < cols; d += 4) {
            float4 x = *(const float4 *)(q_i + d), y = *(const float4 *)(k_j + d);
            s[r] = add_dot(s[r], x, y);
        }
    }
}

/* Merges the tile into the state (m, l, o) of one query.
 *   s        score of the lane's key; -INFINITY if masked
 *   visible  bit j: the score of key j of the tile is above -INFINITY; the same in all lanes
 *   p (Bc)   the warp's; v (Bc, MAX_COLS)   o (COLS) the lane's columns
 * Returns what the old l and o were multiplied by. */
static __device__ float push_tile(struct se *state, float *o, float s, unsigned visible,
                                  float *p, const float (*v)[MAX_COLS], int lane)
{
    float m_new = fmaxf(state->m, lanes_max<32>(s));
    float correction = se_factor(state->m, m_new);
    /* while all keys were masked, m_new is -inf, and s - m_new would be NaN */
    float p_j =
        visible >> lane & 1 ? expf(s - (m_new == -INFINITY ? 0.0f : m_new)) : 0.0f;
    state->l = state->l * correction + lanes_sum<32>(p_j);
    state->m = m_new;
    p[lane] = p_j;
    __syncwarp();
#pragma unroll
    for (int c = 0; c < COLS; c++) o[c] *= correction;
    for (int j = 0; j < Bc; j++) {
        if (!(visible >> j & 1)) continue;
        float x = p[j];
#pragma unroll
        for (int c = 0; c < COLS; c++) o[c] = fmaf(x, v[j][lane + 32 * c], o[c]);
    }
    __syncwarp(); /* the next query overwrites p */
    return correction;
}

/* Writes down the state of query 0 after tile number t; max_s is the tile's maximum. */
static __device__ void record(const struct work &x, int t, float max_s, struct se state,
                              float correction, const float *o, int c_0, int cols,
                              int lane)
{
    float *to = x.trace + t * (4 + x.p.head_dim_v);
    float head[4] = {max_s, state.m, state.l, correction};
    if (lane < 4) to[lane] = head[lane];
    for (int c = 0; c < COLS; c++)
        if (lane + 32 * c < cols) to[4 + c_0 + lane + 32 * c] = o[c];
}

/* A sink is one more element of the fold, without a value (monoid.h).  Returns the factor of
 * what was summed before. */
static __device__ float add_sink(const struct work &x, int h, struct se *state)
{
    if (!x.p.has_sinks || x.a.sinks[h] == -INFINITY || state->l != state->l) return 1.0f;
    struct se before = *state;
    *state = se_merge(before, se_lift(x.a.sinks[h]));
    return before.m == -INFINITY ? 0.0f : se_factor(before.m, state->m);
}

template <class T, bool TRACE>
static __global__ void __launch_bounds__(THREADS, 3) /* registers for 3 blocks of threads */
    tiled_kernel(struct work x)
{
    struct tiles &shared = dynamic_shared<struct tiles>();
    const struct problem &p = x.p;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int i_0 = blockIdx.x % x.q_blocks * Br; /* the block's first query and column */
    int c_0 = blockIdx.x / x.q_blocks % x.col_blocks * MAX_COLS;
    unsigned head = blockIdx.x / x.q_blocks / x.col_blocks, h = head % (unsigned)p.heads_q;
    unsigned b = head / (unsigned)p.heads_q;
    const struct sequence seq = sequence_of(&p, &x.a, b);
    int seqlen_q = seq.seqlen_q, head_dim = p.head_dim;
    if (i_0 >= seqlen_q) return; /* the sequence is shorter than others */
    /* +Br is an int, which min() needs; Br alone is a constant of an enum */
    int n_q = min(+Br, seqlen_q - i_0), cols_v = min(+MAX_COLS, (int)p.head_dim_v - c_0);
    const struct strides at_q = strides_of_q(&p), at_k = strides_of_k(&p), at_v = strides_of_v(&p);
    const T *q = (const T *)x.a.q + query_at(&p, &seq, at_q, h, i_0);
    const T *k = (const T *)x.a.k + key_at(&p, &x.a, &seq, at_k, h / x.group, 0);
    const T *v = (const T *)x.a.v + key_at(&p, &x.a, &seq, at_v, h / x.group, 0) + c_0;

    /* keys that some query of the block sees; of a window those before it are skipped */
    const struct mask32 mask = mask_in_32_bits(mask_of_lengths(&p, seqlen_q, seq.seqlen_k));
    const struct key_range32 keys = some_row_sees(mask, i_0, i_0 + n_q);

    struct se state[ROWS];
    float o[ROWS][COLS] = {};
    for (int r = 0; r < ROWS; r++) state[r] = se_unit();

    for (int j_0 = keys.first; j_0 < keys.end; j_0 += Bc) {
        int n_k = min(+Bc, keys.end - j_0);
        float s[ROWS] = {};
        for (int d = 0; d < head_dim; d += MAX_COLS) {
            int cols = min(+MAX_COLS, head_dim - d);
            __syncthreads(); /* nobody reads the previous tile any more */
            if (j_0 == keys.first || head_dim > MAX_COLS)
                load_tile(shared.q[0], MAX_COLS, Br, q + d, at_q.row, n_q, cols);
            load_tile(shared.k[0], MAX_COLS + 4, Bc, k + j_0 * at_k.row + d, at_k.row, n_k,
                      cols);
            if (d == 0)
                load_tile(shared.v[0], MAX_COLS, Bc, v + j_0 * at_v.row, at_v.row, n_k,
                          cols_v);
            __syncthreads(); /* the tile is complete */
            add_scores(s, shared, warp, lane, cols);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int i = i_0 + warp * ROWS + r, j = j_0 + lane;
            const struct key_range32 sees = mask_keys(mask, i);
            bool masked = j < sees.first || j >= sees.end || i >= seqlen_q;
            float bias = p.has_bias && !masked ? x.a.bias[bias_at(&p, b, h, i) + j] : 0.0f;
            masked |= bias == -INFINITY;
            float scaled = s[r] * p.scale;
            if (p.softcap > 0.0f) scaled = p.softcap * tanhf(scaled / p.softcap);
            float s_j = masked ? -INFINITY : scaled + bias;
            float correction =
                push_tile(&state[r], o[r], s_j, __ballot_sync(~0u, s_j != -INFINITY),
                          shared.p[warp], shared.v, lane);
            if (TRACE && i == 0)
                record(x, (j_0 - keys.first) / Bc, lanes_max<32>(s_j), state[r], correction, o[r], c_0,
                       cols_v, lane);
        }
    }

    for (int r = 0; r < ROWS; r++) {
        int i = i_0 + warp * ROWS + r;
        if (i >= seqlen_q) continue;
        T *o_i = (T *)x.a.o + query_at(&p, &seq, strides_of_o(&p), h, i) + c_0;
        float of_keys = add_sink(x, h, &state[r]);
#pragma unroll
        for (int c = 0; c < COLS; c++)
            if (lane + 32 * c < cols_v) o_i[lane + 32 * c] = se_divide(state[r], of_keys * o[r][c]);
        if (lane == 0 && c_0 == 0) x.a.lse[lse_at(&p, &seq, h, i)] = se_lse(state[r]);
    }
}

static size_t q_blocks(const struct problem *p) { return (p->seqlen_q + Br - 1) / Br; }

static size_t col_blocks(const struct problem *p)
{
    return (p->head_dim_v + MAX_COLS - 1) / MAX_COLS;
}

static size_t n_blocks(const struct problem *p)
{
    return p->batch * p->heads_q * col_blocks(p) * q_blocks(p);
}

template <class T, bool TRACE> static void launch(const struct work *x)
{
    start<struct tiles>(tiled_kernel<T, TRACE>, n_blocks(&x->p), THREADS, x->a.stream, *x);
}

static struct work argument(const struct problem *p, const struct arrays *a)
{
    struct work x = {};
    x.p = *p;
    x.a = *a;
    x.q_blocks = (unsigned)q_blocks(p);
    x.col_blocks = (unsigned)col_blocks(p);
    x.group = (unsigned)(p->heads_q / p->heads_kv);
    return x;
}

static void attention(const struct problem *p, const struct arrays *a)
{
    if (!n_blocks(p)) return;
    struct work x = argument(p, a);
    if (p->dtype == F32) launch<float, false>(&x);
    if (p->dtype == F16) launch<__half, false>(&x);
    if (p->dtype == BF16) launch<__nv_bfloat16, false>(&x);
}

#ifndef __CUDACC__
/* For the stage's trace: the state of the one query after every tile (struct work). */
extern "C" void tiled_trace(const struct problem *p, const struct arrays *a,
                            float *trace);
extern "C" void tiled_trace(const struct problem *p, const struct arrays *a, float *trace)
{
    struct work x = argument(p, a);
    x.trace = trace;
    launch<float, true>(&x);
}
#endif

static const char *refuses(const struct problem *p)
{
    if (p->seqlen_q > LONGEST || p->seqlen_k > LONGEST)
        return "more than 2^29 queries or keys";
    return n_blocks(p) > 0x7fffffff ? "2^31 blocks of 32 queries" : NULL;
}

static struct cost cost(const struct problem *p) { return attention_cost(p, Br); }

GPU_VARIANT(tiled) = {
    .name = "tiled",
    .idea = "tiles in shared memory",
    .group = IN_PORTABLE,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |
                WITH_PACKED | WITH_STRIDES | WITH_BIAS_STRIDES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .refuses = refuses,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
    .on_gpu = GPU_TWIN(tiled),
};
