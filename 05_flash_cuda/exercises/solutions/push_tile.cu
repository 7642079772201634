/* push_tile.cu: exercise of stage 5, 20 points: the online softmax inside a kernel.
 *
 *     m_new = max(m, max_j s_j)
 *     l     = l * exp(m - m_new) + sum_j exp(s_j - m_new)
 *     o     = o * exp(m - m_new) + sum_j exp(s_j - m_new) v_j
 *
 * Task: fill push_tile(): one maximum and one correction for a whole tile.  Each thread
 * has its own query, so there is nothing to wait for and nothing to exchange.
 * May be assumed: head_dim_v <= MAX_COLS.  Any of the scores may be -INFINITY, all of
 * them too, also in the first tile; the rows of v that belong to them may hold anything.
 * A NaN score makes l and o NaN.
 *
 * Time: 60 minutes.
 * Hint: the same step as in stage 3, with the maximum of a whole tile.
 * Hint: a tile of masked scores only must leave m as it is: then the factor is 1, not exp(infinity - infinity).
 * Right or wrong:  make exercise 5 EX=push_tile      (without a GPU: on the CPU) */
#include "grader/exercise.h"

enum {
    Br = 32,       /* queries of a block: one for each thread */
    Bc = 16,       /* keys of a tile */
    MAX_COLS = 128 /* largest head_dim and head_dim_v */
};

/* Shared memory.  It is not cleared: what was not written is not a number. */
struct tile { float k[Bc][MAX_COLS], v[Bc][MAX_COLS]; };

/* The running state of a query; empty: m = -INFINITY, l = 0. */
struct state { float m, l; };

/* Does the mask hide key j from query i? */
static __device__ bool hidden(const struct problem &p, int i, int j)
{
    return p.causal && j + (int)p.seqlen_q > i + (int)p.seqlen_k;
}

/* Copies n keys and values into shared memory, a thread a row, and multiplies the keys by the scale.
 *   k (n, head_dim), v (n, head_dim_v)  the tile's rows in main memory; n <= Bc */
static __device__ void load_scaled(struct tile &shared, const float *k, const float *v, int n,
                                   int head_dim, int head_dim_v, float scale)
{
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += Br) {
        for (int d = 0; d < head_dim; d++) shared.k[j][d] = scale * k[j * head_dim + d];
        for (int d = 0; d < head_dim_v; d++) shared.v[j][d] = v[j * head_dim_v + d];
    }
    __syncthreads();
}

/* >>> your part: functions, #include and #define may be added here */
/* Takes a tile into the state of the thread's query.
 *   s (Bc)  scores; -INFINITY: masked, or behind the end of the keys
 *   v (Bc, MAX_COLS)  the tile's values      o (head_dim_v)  un-normalised so far */
static __device__ void push_tile(struct state *x, float *o, const float *s,
                                 const float (*v)[MAX_COLS], int head_dim_v)
{
    /* solution begin */
    float m_new = x->m;
    for (int j = 0; j < Bc; j++) m_new = s[j] > m_new ? s[j] : m_new;
    float correction = m_new == x->m ? 1.0f : expf(x->m - m_new);
    x->m = m_new;
    x->l *= correction;
    for (int d = 0; d < head_dim_v; d++) o[d] *= correction;
    for (int j = 0; j < Bc; j++) {
        if (s[j] == -INFINITY) continue;
        float weight = expf(s[j] - m_new);
        x->l += weight;
        for (int d = 0; d < head_dim_v; d++) o[d] = fmaf(weight, v[j][d], o[d]);
    }
    /* skeleton
    // Your code.
    (void)x, (void)o, (void)s, (void)v, (void)head_dim_v;
    solution end */
}
/* <<< end of your part */

/* A block computes Br queries of one head, each thread one; the keys come in tiles. */
static __global__ void __launch_bounds__(Br) attention_kernel(struct problem p,
                                                              struct arrays a)
{
    struct tile &shared = dynamic_shared<struct tile>();
    int q_blocks = ((int)p.seqlen_q + Br - 1) / Br, head_dim = p.head_dim;
    int head_dim_v = p.head_dim_v, seqlen_q = p.seqlen_q;
    size_t head = blockIdx.x / q_blocks, head_kv = head / (p.heads_q / p.heads_kv);
    int i_0 = blockIdx.x % q_blocks * Br, i = min(i_0 + (int)threadIdx.x, seqlen_q - 1);
    const float *q_i = (const float *)a.q + (head * seqlen_q + i) * head_dim;
    const float *k = (const float *)a.k + head_kv * p.seqlen_k * head_dim;
    const float *v = (const float *)a.v + head_kv * p.seqlen_k * head_dim_v;
    int n_keys = (int)p.seqlen_k;

    struct state x = {-INFINITY, 0.0f};
    float o[MAX_COLS] = {};
    for (int j_0 = 0; j_0 < n_keys; j_0 += Bc) {
        load_scaled(shared, k + (size_t)j_0 * head_dim, v + (size_t)j_0 * head_dim_v,
                    min(+Bc, n_keys - j_0), head_dim, head_dim_v, p.scale);
        float s[Bc];
        for (int j = 0; j < Bc; j++) {
            float bias = 0.0f, dot = 0.0f;
            bool masked = j_0 + j >= n_keys || hidden(p, i, j_0 + j);
            if (p.has_bias && !masked) bias = a.bias[i * p.seqlen_k + j_0 + j];
            masked |= bias == -INFINITY;
            for (int d = 0; d < head_dim && !masked; d++)
                dot = fmaf(q_i[d], shared.k[j][d], dot);
            s[j] = masked ? -INFINITY : dot + bias;
        }
        push_tile(&x, o, s, shared.v, head_dim_v);
    }

    if (i_0 + (int)threadIdx.x >= seqlen_q) return; /* computed for company only */
    float *o_i = (float *)a.o + (head * seqlen_q + i) * head_dim_v;
    for (int d = 0; d < head_dim_v; d++) o_i[d] = x.l == 0.0f ? 0.0f : o[d] / x.l;
    a.lse[head * seqlen_q + i] = x.m + logf(x.l);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    launch_queries<Br, struct tile>(attention_kernel, p, a);
}

PROGRAM(5, push_tile, "a kernel that takes in tiles online",
        .types = TYPE(F32), .supports = BASIC_FEATURES, .max_score = INFINITY,
        .masked_rows = 1, .isolates_v = 1, .refuses = above_128_columns,
        .does = {{OP_ATTENTION, attention}})
