/* load_tile.cu: exercise of stage 5, 15 points: a tile into shared memory.
 *
#if TASK == 0
 *     shared.k[r][c] = k[r * head_dim + c]       r < n, c < head_dim
#elif TASK == 1
 *     shared.k[c][r] = k[r * head_dim + c]       r < n, c < head_dim: K is transposed
#endif
 *     shared.v[r][c] = v[r * head_dim_v + c]     r < n, c < head_dim_v
 *
 * Task: fill load_tile().  The Br threads of the block share the work, neighbours taking
 * neighbouring elements, with a barrier (__syncthreads) on each side of it.
 * May be assumed: n from 1 to Bc; both head dimensions from 1 to MAX_COLS; they may
 * differ.  Row n may lie behind the end of k: it must not be read.  Rows n and up of
 * the tile may hold anything: nobody reads them.
 *
 * Time: 45 minutes.
 * Hint: the threads of the block share the elements out: thread t takes t, t + Br, t + 2 Br, ...
 * Hint: two barriers: nobody may overwrite what another still reads, nobody may read what is not there yet.
 * Right or wrong:  make exercise 5 EX=load_tile      (without a GPU: on the CPU) */
#include "grader/exercise.h"

enum {
    Br = 32,       /* queries of a block: one for each thread */
    Bc = 16,       /* keys of a tile; one of 8, 16, 24 */
    MAX_COLS = 128 /* largest head_dim and head_dim_v */
};

/* Shared memory.  It is not cleared: what was not written is not a number. */
#if TASK == 0
struct tile { float k[Bc][MAX_COLS], v[Bc][MAX_COLS]; };
#else
struct tile { float k[MAX_COLS][Bc + 1], v[Bc][MAX_COLS]; };
#endif

/* The running state of a query; empty: m = -INFINITY, l = 0. */
struct state { float m, l; };

/* Does the mask hide key j from query i? */
static __device__ bool hidden(const struct problem &p, int i, int j)
{
    return p.causal && j + (int)p.seqlen_q > i + (int)p.seqlen_k;
}

/* >>> your part: functions, #include and #define may be added here */
/* Copies n keys and values into shared memory, by all threads of the block together.
 *   k (n, head_dim), v (n, head_dim_v)  the tile's rows in main memory; n <= Bc
 * Before: all threads have finished with the tile that was there.  After: all threads see
 * all of the new one. */
static __device__ void load_tile(struct tile &shared, const float *k, const float *v,
                                 int n, int head_dim, int head_dim_v)
{
    /* solution begin */
    __syncthreads(); /* nobody reads the previous tile any more */
    for (int e = threadIdx.x; e < n * head_dim; e += Br)
#if TASK == 0
        shared.k[e / head_dim][e % head_dim] = k[e];
#else
        shared.k[e % head_dim][e / head_dim] = k[e];
#endif
    for (int e = threadIdx.x; e < n * head_dim_v; e += Br)
        shared.v[e / head_dim_v][e % head_dim_v] = v[e];
    __syncthreads(); /* the tile is complete */
    /* skeleton
    // Your code.
    (void)shared, (void)k, (void)v, (void)n, (void)head_dim, (void)head_dim_v;
    solution end */
}
/* <<< end of your part */

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
    int n_keys = (int)p.seqlen_k;

    struct state x = {-INFINITY, 0.0f};
    float o[MAX_COLS] = {};
    for (int j_0 = 0; j_0 < n_keys; j_0 += Bc) {
        load_tile(shared, k + (size_t)j_0 * head_dim, v + (size_t)j_0 * head_dim_v,
                  min(+Bc, n_keys - j_0), head_dim, head_dim_v);
        float s[Bc];
        for (int j = 0; j < Bc; j++) {
            float bias = 0.0f, dot = 0.0f;
            bool masked = j_0 + j >= n_keys || hidden(p, i, j_0 + j);
            if (p.has_bias && !masked) bias = a.bias[i * p.seqlen_k + j_0 + j];
            masked |= bias == -INFINITY;
            for (int d = 0; d < head_dim && !masked; d++)
#if TASK == 0
                dot = fmaf(q_i[d], shared.k[j][d], dot);
#else
                dot = fmaf(q_i[d], shared.k[d][j], dot);
#endif
            s[j] = masked ? -INFINITY : p.scale * dot + bias;
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

PROGRAM(5, load_tile, "a kernel that loads tiles into shared memory",
        .types = TYPE(F32), .supports = BASIC_FEATURES, .max_score = INFINITY,
        .masked_rows = 1, .isolates_v = 1, .refuses = above_128_columns,
        .does = {{OP_ATTENTION, attention}})
