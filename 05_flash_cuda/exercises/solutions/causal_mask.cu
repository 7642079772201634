/* causal_mask.cu: exercise of stage 5, 10 points: which keys a query sees.
 *
 *     key j is seen by query i when  j <= i + seqlen_k - seqlen_q     (causal)
 *
#if TASK == 0
 * Task: fill keys_seen().  The kernel masks by it and, asking for the last query of a
 * block, skips the tiles that no query of the block sees.
 * May be assumed: sizes below 2^30.  seqlen_q may differ from seqlen_k: the diagonal ends in
 * the bottom right corner, and with more queries than keys the first ones see none.
#elif TASK == 1
 * Task: fill first_query().  The kernel masks by it and, asking for the first key of a tile,
 * skips the tiles that no query of the block sees.
 * May be assumed: sizes below 2^30.  seqlen_q may differ from seqlen_k: the diagonal ends in
 * the bottom right corner, and with more keys than queries every query sees the first ones.
#endif
 * Sizes are of an unsigned type: beware of differences below 0.
 *
 * Time: 30 minutes.
 * Hint: which key does the last query see when there are more keys than queries?
 * Hint: the number may be negative before it is cut to 0.
 * Right or wrong:  make exercise 5 EX=causal_mask      (without a GPU: on the CPU) */
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

/* >>> your part: functions, #include and #define may be added here */
#if TASK == 0
/* How many keys query i sees, the first ones: 0 .. seqlen_k. */
static __device__ int keys_seen(const struct problem &p, int i)
#else
/* The first query that sees key j, 0 <= j < seqlen_k; all queries after it see j, too. */
static __device__ int first_query(const struct problem &p, int j)
#endif
{
    /* solution begin */
#if TASK == 0
    int seqlen_q = (int)p.seqlen_q, seqlen_k = (int)p.seqlen_k;
    if (!p.causal) return seqlen_k;
    return max(0, min(seqlen_k, i + 1 + seqlen_k - seqlen_q));
#else
    return p.causal ? max(0, j + (int)p.seqlen_q - (int)p.seqlen_k) : 0;
#endif
    /* skeleton
    // Your code.
#if TASK == 0
    (void)i;
    return p.causal ? 0 : (int)p.seqlen_k;
#else
    (void)j;
    return p.causal ? (int)p.seqlen_q : 0;
#endif
    solution end */
}
/* <<< end of your part */

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

/* Takes one key into the state of the thread's query.   v_j (head_dim_v)   o (head_dim_v) */
static __device__ void push_key(struct state *x, float *o, float s, const float *v_j, int head_dim_v)
{
    if (s == -INFINITY) return;
    float m_new = s > x->m ? s : x->m, weight = expf(s - m_new);
    float correction = m_new == x->m ? 1.0f : expf(x->m - m_new);
    x->l = fmaf(x->l, correction, weight);
    for (int d = 0; d < head_dim_v; d++) o[d] = fmaf(o[d], correction, weight * v_j[d]);
    x->m = m_new;
}

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
#if TASK == 0
    int seen = keys_seen(p, i), n_keys = keys_seen(p, min(i_0 + Br, seqlen_q) - 1);
#else
    int last = min(i_0 + Br, seqlen_q) - 1, n_keys = (int)p.seqlen_k;
#endif

    struct state x = {-INFINITY, 0.0f};
    float o[MAX_COLS] = {};
#if TASK == 0
    for (int j_0 = 0; j_0 < n_keys; j_0 += Bc) {
#else
    for (int j_0 = 0; j_0 < n_keys && first_query(p, j_0) <= last; j_0 += Bc) {
#endif
        load_scaled(shared, k + (size_t)j_0 * head_dim, v + (size_t)j_0 * head_dim_v,
                    min(+Bc, n_keys - j_0), head_dim, head_dim_v, p.scale);
        float s[Bc];
        for (int j = 0; j < Bc; j++) {
            float bias = 0.0f, dot = 0.0f;
#if TASK == 0
            bool masked = j_0 + j >= seen;
#else
            bool masked = j_0 + j >= n_keys || i < first_query(p, j_0 + j);
#endif
            if (p.has_bias && !masked) bias = a.bias[i * p.seqlen_k + j_0 + j];
            masked |= bias == -INFINITY;
            for (int d = 0; d < head_dim && !masked; d++)
                dot = fmaf(q_i[d], shared.k[j][d], dot);
            s[j] = masked ? -INFINITY : dot + bias;
        }
        for (int j = 0; j < Bc; j++) push_key(&x, o, s[j], shared.v[j], head_dim_v);
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

PROGRAM(5, causal_mask, "a kernel with a causal mask",
        .types = TYPE(F32), .supports = BASIC_FEATURES, .max_score = INFINITY,
        .masked_rows = 1, .isolates_v = 1, .refuses = above_128_columns,
        .does = {{OP_ATTENTION, attention}})
