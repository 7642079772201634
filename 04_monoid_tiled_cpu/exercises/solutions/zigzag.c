/* zigzag.c: exercise of stage 4, 10 points: who computes which queries.
 *
 * Under a causal mask query i sees i + 1 keys.  R ranks that take contiguous parts of the
 * queries then have unequal work: the last has 2 R - 1 times that of the first.  Cut the queries
 * into 2 R chunks instead, and give every rank two of them, so that all have the same work.
 *
#if TASK == 0
 * Task: fill chunk_of().  rank 0 .. RANKS - 1 asks for its first (which = 0) and its second
 * (which = 1) chunk, 0 .. 2 RANKS - 1.  Every chunk belongs to exactly one rank.
#elif TASK == 1
 * Task: fill rank_of().  Which of the ranks 0 .. RANKS - 1 computes chunk 0 .. 2 RANKS - 1?
#endif
 * A rank whose chunks hold more than their share is stopped, and its last queries stay unwritten.
 *
 * Half of the points: cases random, markers.
 * Right or wrong:  make exercise 4 EX=zigzag */
#include "harness.h"

enum { RANKS = 3 /* each has two chunks; one of 3, 4, 5 */ };

/* >>> your part: functions, #include and #define may be added here */
#if TASK == 0
static size_t chunk_of(size_t rank, size_t which)
#else
static size_t rank_of(size_t chunk)
#endif
{
    /* solution begin */
#if TASK == 0
    return which ? 2 * RANKS - 1 - rank : rank;
#else
    return chunk < RANKS ? chunk : 2 * RANKS - 1 - chunk;
#endif
    /* skeleton
    // Your code.
#if TASK == 0
    (void)rank, (void)which;
#else
    (void)chunk;
#endif
    return 0;
    solution end */
}
/* <<< end of your part */

/* Where chunk c of 2 RANKS of n queries begins. */
static size_t begin_of(size_t n, size_t c)
{
    return c * n / (2 * RANKS);
}

/* The score of query i and key j; -INFINITY where the bias masks the key.
 *   q_i, k_j (head_dim)   bias_i (seqlen_k) or NULL */
static float score(const struct problem *p, const float *q_i, const float *k_j,
                   const float *bias_i, size_t j)
{
    if (bias_i && bias_i[j] == -INFINITY) return -INFINITY;
    float dot = 0;
    for (size_t d = 0; d < p->head_dim; d++) dot += q_i[d] * k_j[d];
    return p->scale * dot + (bias_i ? bias_i[j] : 0);
}

/* One query, one loop over its keys, as in stage 3.  Returns lse. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i, float *o_i)
{
    struct key_range keys = visible_keys(p, i);
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = keys.first; j < keys.end; j++) {
        float s = score(p, q_i, k + j * p->head_dim, bias_i, j);
        if (s == -INFINITY) continue;
        float m_new = s > m ? s : m, correction = m_new == m ? 1 : expf(m - m_new);
        float weight = expf(s - m_new);
        l = l * correction + weight;
        for (size_t d = 0; d < p->head_dim_v; d++)
            o_i[d] = o_i[d] * correction + weight * v[j * p->head_dim_v + d];
        m = m_new;
    }
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = l == 0 ? 0 : o_i[d] / l;
    return m + logf(l);
}

/* The queries of one rank.  Chunk c of a square causal problem has 2 c + 1 parts of the work,
 * all chunks 4 RANKS^2, so that 4 RANKS is a rank's share. */
static void work(const struct problem *p, const struct arrays *a, size_t bh, size_t rank)
{
    const float *q = a->q, *k = a->k, *v = a->v;
    size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / (p->heads_q / p->heads_kv);
    size_t done = 0;
#if TASK == 0
    for (size_t which = 0; which < 2; which++) {
        size_t c = chunk_of(rank, which);
#else
    for (size_t c = 0; c < 2 * RANKS; c++) {
        if (rank_of(c) != rank) continue;
#endif
        done += 2 * c + 1;
        if (c >= 2 * RANKS || done > 4 * RANKS) return;
        for (size_t i = begin_of(p->seqlen_q, c); i < begin_of(p->seqlen_q, c + 1); i++) {
            size_t row = bh * p->seqlen_q + i;
            a->lse[row] = attention_row(p, i, q + row * p->head_dim,
                                        k + kv * p->seqlen_k * p->head_dim,
                                        v + kv * p->seqlen_k * p->head_dim_v,
                                        a->bias ? a->bias + i * p->seqlen_k : NULL,
                                        (float *)a->o + row * p->head_dim_v);
        }
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++)
        for (size_t rank = 0; rank < RANKS; rank++) work(p, a, bh, rank);
}

static const struct variant exercise = {
    .name = "zigzag",
    .idea = "queries in chunks, two for each rank",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .does = {{OP_ATTENTION, attention}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 4,
    .name = "exercises/zigzag",
    .idea = "queries in chunks, two for each rank",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
