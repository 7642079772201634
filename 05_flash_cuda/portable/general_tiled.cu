/* general_tiled.cu: what a model asks of attention beside the plain operation, by rung 1's means:
 * for any GPU, any type, any head_dim.  The fold is rung 1's own.  What is added:
 *
 *   heads    head_dim in pieces of MAX_COLS columns; a block of threads for each MAX_COLS columns
 *            of the output
 *   windows  tiles outside of a block's window are neither loaded nor computed.  A tile begins at a
 *            multiple of Bc keys, and no query looks at another: its bits depend on its keys alone
 *   packed   sequences of different lengths, and arrays with strides
 *   scores   a soft cap; a bias for each batch or head; sinks; dropout */
#define BESIDE_RUNG_1
#include "portable/01_tiled.cu"

#include "dropout.h"
#include "hopper/merge_weights.h"
#include "problem/layout.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/* Block number (head * col_blocks + c) * q_blocks + i, head = b * heads_q + h. */
struct general_work {
    struct problem p;
    struct arrays a;
    unsigned q_blocks;   /* blocks of Br queries in a head of the longest sequence */
    unsigned col_blocks; /* blocks of MAX_COLS columns in a row of the output */
    unsigned group;      /* query heads that share a key head */
    struct dropout drops;
};

/* Copies rows to shared memory, as floats.
 *   row(r)  `cols` elements, for r = first ... end - 1
 *   to (n_rows, pitch)  what lies beyond them becomes 0, up to a multiple of 4 columns */
template <class ROW>
static __device__ void load_rows(float *to, int pitch, int n_rows, ROW row, int first, int end,
                                 int cols)
{
    int width = (cols + 3) / 4 * 4;
    for (int i = threadIdx.x; i < n_rows * width; i += THREADS) {
        int r = i / width, c = i % width;
        to[r * pitch + c] = r >= first && r < end && c < cols ? (float)row(r)[c] : 0.0f;
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS, 3) /* registers for 3 blocks of threads */
    general_tiled_kernel(struct general_work x)
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
    auto key = [&](const void *array, const struct strides &at, int j) {
        return (const T *)array + key_at(&p, &x.a, &seq, at, h / x.group, j);
    };

    /* keys that some query of the block sees; of a window those before it are skipped */
    const struct mask32 mask = mask_in_32_bits(mask_of_lengths(&p, seqlen_q, seq.seqlen_k));
    const struct key_range32 keys = some_row_sees(mask, i_0, i_0 + n_q);

    struct se state[ROWS];
    float o[ROWS][COLS] = {};
    for (int r = 0; r < ROWS; r++) state[r] = se_unit();

    const int first = keys.first / Bc * Bc;
    for (int j_0 = first; j_0 < keys.end; j_0 += Bc) {
        int hidden = max(0, keys.first - j_0), n_k = min(+Bc, keys.end - j_0); /* may lie in no page */
        float s[ROWS] = {};
        for (int d = 0; d < head_dim; d += MAX_COLS) {
            int cols = min(+MAX_COLS, head_dim - d);
            __syncthreads(); /* nobody reads the previous tile any more */
            if (j_0 == first || head_dim > MAX_COLS)
                load_rows(shared.q[0], MAX_COLS, Br, [&](int r) { return q + r * at_q.row + d; }, 0,
                          n_q, cols);
            load_rows(shared.k[0], MAX_COLS + 4, Bc,
                      [&](int r) { return key(x.a.k, at_k, j_0 + r) + d; }, hidden, n_k, cols);
            if (d == 0)
                load_rows(shared.v[0], MAX_COLS, Bc,
                          [&](int r) { return key(x.a.v, at_v, j_0 + r) + c_0; }, hidden, n_k, cols_v);
            __syncthreads(); /* the tile is complete */
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                s[r] = dot(s[r], shared.q[warp * ROWS + r], shared.k[lane], cols);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int i = i_0 + warp * ROWS + r, j = j_0 + lane;
            const struct key_range32 sees = mask_keys(mask, i);
            bool masked = j < sees.first || j >= sees.end || i >= seqlen_q;
            float bias = p.has_bias && !masked ? x.a.bias[bias_at(&p, b, h, i) + j] : 0.0f;
            float scaled = s[r] * p.scale;
            if (p.softcap > 0.0f) scaled = p.softcap * tanhf(scaled / p.softcap);
            float s_j = masked || bias == -INFINITY ? -INFINITY : scaled + bias;
            push_tile(&state[r], o[r], s_j, shared.p[warp], shared.v, lane,
                      !x.drops.below || is_kept(&x.drops, head, i, j));
        }
    }

    for (int r = 0; r < ROWS; r++) {
        int i = i_0 + warp * ROWS + r;
        if (i >= seqlen_q) continue;
        T *o_i = (T *)x.a.o + query_at(&p, &seq, strides_of_o(&p), h, i) + c_0;
        float lse = se_lse(state[r]), of_keys = p.has_sinks ? add_sink(&lse, x.a.sinks[h]) : 1.0f;
        of_keys *= x.drops.factor;
#pragma unroll
        for (int c = 0; c < COLS; c++)
            if (lane + 32 * c < cols_v) o_i[lane + 32 * c] = of_keys * se_divide(state[r], o[r][c]);
        if (lane == 0 && c_0 == 0) x.a.lse[lse_at(&p, &seq, h, i)] = lse;
    }
}

static size_t blocks_of(size_t n, size_t size) { return (n + size - 1) / size; }

static size_t n_blocks(const struct problem *p)
{
    return p->batch * p->heads_q * blocks_of(p->head_dim_v, MAX_COLS) * blocks_of(p->seqlen_q, Br);
}

template <class T> static void launch(const struct problem *p, const struct arrays *a)
{
    struct general_work x = {*p, *a, (unsigned)blocks_of(p->seqlen_q, Br),
                             (unsigned)blocks_of(p->head_dim_v, MAX_COLS),
                             (unsigned)(p->heads_q / p->heads_kv), dropout_of(p)};
    size_t n = n_blocks(p);
    if (n) start(general_tiled_kernel<T>, n, THREADS, sizeof(struct tiles), a->stream, x);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    if (p->dtype == F32) launch<float>(p, a);
    if (p->dtype == F16) launch<__half>(p, a);
    if (p->dtype == BF16) launch<__nv_bfloat16>(p, a);
}

static const char *refuses(const struct problem *p)
{
    if (p->seqlen_q > LONGEST || p->seqlen_k > LONGEST)
        return "more than 2^29 queries or keys";
    if (p->invariant && p->dtype != F32) /* where strides or pages differ, others take the call */
        return "invariant bits in 16 bits";
    return n_blocks(p) > 0x7fffffff ? "2^31 blocks of 32 queries" : NULL;
}

static struct cost cost(const struct problem *p) { return attention_cost(p, Br); }

GPU_VARIANT(general_tiled, "what models ask for",
    .group = IN_PORTABLE, .device = GPU_DEVICE, .least_arch = 75, .types = ALL_TYPES,
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |
                WITH_PACKED | WITH_PAGES | WITH_STRIDES | WITH_BIAS_STRIDES | WITH_LENGTHS |
                WITH_INVARIANT | WITH_DROPOUT,
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1, .refuses = refuses, .cost = cost,
    .does = {{OP_ATTENTION, attention}});
