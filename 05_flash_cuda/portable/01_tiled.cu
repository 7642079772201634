/* 01_tiled.cu: rung 1, attention in one kernel: tiles in shared memory, online softmax.
 *
 * A block of threads computes Br queries of one head.  It goes through the keys in tiles of Bc and
 * keeps for each query the element of the monoid SE(R^dv) x SE(R) that stands for the keys so far,
 *     m_new = max(m, max_j s_j)           s_j = scale q.k_j + bias_j
 *     l     = l exp(m - m_new) + sum_j exp(s_j - m_new)
 *     o     = o exp(m - m_new) + sum_j exp(s_j - m_new) v_j
 *
 * so the scores never reach main memory.  Dao et al. 2022 ("FlashAttention"), Algorithm 1, with the
 * loops exchanged as in FlashAttention-2: K and V are read ceil(seqlen_q / Br) times, Q and O once.
 *
 * A warp works on one query after another: first lane j has the score of key j (Bc is the size of a
 * warp), then lane c has the output columns c, c + 32, ...  Masked keys are skipped, not multiplied
 * by 0: NaN in a masked row of V does not spread. */
#include "monoid.h"
#include "portable/float_arithmetic.h"
#include "portable/float_block.h"
#include "portable/trace_tile.h"

enum {
    Br = 32,        /* queries of a block */
    Bc = 32,        /* keys of a tile */
    MAX_COLS = 128, /* of q, k, v */
    WARPS = 8, THREADS = 32 * WARPS,
    ROWS = Br / WARPS,   /* queries of a warp */
    COLS = MAX_COLS / 32 /* output columns of a lane */
};
static_assert(Br == 32 && Bc == 32, "lane j of a warp has key j; load_tile() loads 32 rows");

struct tiles { /* shared memory */
    alignas(16) float q[Br][MAX_COLS];
    float k[Bc][MAX_COLS + 4]; /* +4: at a column the rows of all lanes lie in different banks */
    float v[Bc][MAX_COLS];
    float p[WARPS][Bc]; /* exp(s - m) of the query that the warp works on */
};

/* sum + q.k of two rows in shared memory; behind `cols` columns they are 0. */
static __device__ float dot(float sum, const float *q_i, const float *k_j, int cols)
{
    for (int d = 0; d < cols; d += 4)
        sum = add_dot(sum, *(const float4 *)(q_i + d), *(const float4 *)(k_j + d));
    return sum;
}

/* Merges a tile into the state (m, l, o) of one query; returns the factor of the old l and o.
 *   s  score of the lane's key; -INFINITY if masked      o (COLS)  the lane's columns
 *   p (Bc)  the warp's                                   v (Bc, MAX_COLS)
 *   is_kept  0: dropout; the key is one of l, and not of o */
static __device__ float push_tile(struct se *state, float *o, float s, float *p,
                                  const float (*v)[MAX_COLS], int lane, int is_kept = 1)
{
    unsigned visible = __ballot_sync(~0u, s != -INFINITY && is_kept); /* bit j: key j */
    float m_new = fmaxf(state->m, lanes_max<32>(s));
    float correction = se_factor(state->m, m_new);
    float p_j = s == -INFINITY ? 0.0f : expf(s - m_new);
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

#ifndef BESIDE_RUNG_1 /* general_tiled.cu takes what stands above */
/* Copies rows to shared memory.   from (n, cols)
 *   to (32, PITCH)  what lies beyond `from` becomes 0, up to a multiple of 4 columns */
template <int PITCH>
static __device__ void load_tile(float (*to)[PITCH], const float *from, int n, int cols)
{
    int width = (cols + 3) / 4 * 4;
    for (int i = threadIdx.x; i < 32 * width; i += THREADS) {
        int r = i / width, c = i % width;
        to[r][c] = r < n && c < cols ? from[r * cols + c] : 0.0f;
    }
}

/* The score of query i, with row q_i, and key j, with row k_j; -INFINITY where it is masked. */
static __device__ float score(const struct work &x, int i, int j, const float *q_i, const float *k_j)
{
    if (i >= (int)x.p.seqlen_q || j >= mask_keys(x.mask, i).end) return -INFINITY;
    float bias = x.p.has_bias ? x.a.bias[i * x.p.seqlen_k + j] : 0.0f;
    if (bias == -INFINITY) return bias;
    return dot(0.0f, q_i, k_j, x.p.head_dim) * x.p.scale + bias;
}

static __global__ void __launch_bounds__(THREADS, 3) /* registers for 3 blocks of threads */
    tiled_kernel(struct work x)
{
    struct tiles &shared = dynamic_shared<struct tiles>();
    const struct float_block b = block_of(x, Br);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int head_dim = x.p.head_dim, head_dim_v = x.p.head_dim_v;
    struct se state[ROWS]; /* of the warp's queries */
    float o[ROWS][COLS] = {};
    for (int r = 0; r < ROWS; r++) state[r] = se_unit();
    load_tile(shared.q, b.q, b.n_q, head_dim);
    for (int j_0 = 0; j_0 < b.n_keys; j_0 += Bc) {
        int n_k = min(+Bc, b.n_keys - j_0); /* +Bc is an int, which min() needs */
        load_tile(shared.k, b.k + (size_t)j_0 * head_dim, n_k, head_dim);
        load_tile(shared.v, b.v + (size_t)j_0 * head_dim_v, n_k, head_dim_v);
        __syncthreads(); /* the tile is complete */
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int i = warp * ROWS + r;
            float s = score(x, b.i_0 + i, j_0 + lane, shared.q[i], shared.k[lane]);
            float correction = push_tile(&state[r], o[r], s, shared.p[warp], shared.v, lane);
            trace_tile(b.i_0 + i, j_0 / Bc, s, state[r], correction, o[r], head_dim_v);
        }
        __syncthreads(); /* nobody reads the tile any more */
    }
    for (int r = 0; r < ROWS; r++) {
        int i = warp * ROWS + r;
        if (i >= b.n_q) continue;
#pragma unroll
        for (int c = 0; c < COLS; c++)
            if (lane + 32 * c < head_dim_v)
                b.o[i * head_dim_v + lane + 32 * c] = se_divide(state[r], o[r][c]);
        if (lane == 0) b.lse[i] = se_lse(state[r]);
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    start_blocks<struct tiles>(tiled_kernel, Br, THREADS, p, a);
}

static const char *refuses(const struct problem *p)
{
    if (p->head_dim > MAX_COLS || p->head_dim_v > MAX_COLS) return "a head_dim above 128";
    return too_large(p, Br);
}

static struct cost cost(const struct problem *p) { return attention_cost(p, Br); }

GPU_VARIANT(tiled, "tiles in shared memory",
    FLOAT_VARIANT, .isolates_v = 1, .refuses = refuses, .cost = cost,
    .does = {{OP_ATTENTION, attention}});
#endif
