/* one_loop.c: exercise of stage 3, 20 points: attention in one loop over the keys.
 *
 *     m_new = max(m, s_j)
 *     l     = l * exp(m - m_new) + exp(s_j - m_new)
 *     o     = o * exp(m - m_new) + exp(s_j - m_new) v_j
 *     o_i   = o / l,   lse_i = m + log(l)     after the last key
 *
 * Task: fill attention_row().  No score may be stored.  score() below is given.
 * May be assumed: nothing about the scores.  Query i sees the keys of visible_keys(p, i)
 * whose score() is not -INFINITY; the others take no part, whatever v_j holds.  A query
 * that sees none gives o_i = 0 and lse = -INFINITY.  A visible NaN must reach the output.
 *
 * Half of the points: cases ascending, shift_200, low, nan_v, mask_row, nan_q.
 * Right or wrong:  make exercise 3 EX=one_loop */
#include "harness.h"

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

/* >>> your part: functions, #include and #define may be added here */
/* One query against all its keys.  Returns lse.
 *   q_i (head_dim)  k (seqlen_k, head_dim)  v (seqlen_k, head_dim_v)  o_i (head_dim_v)
 *   bias_i (seqlen_k) or NULL */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i,
                           float *o_i)
{
    /* solution begin */
    struct key_range keys = visible_keys(p, i);
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = keys.first; j < keys.end; j++) {
        const float *v_j = v + j * p->head_dim_v;
        float s = score(p, q_i, k + j * p->head_dim, bias_i, j);
        if (s == -INFINITY) continue;
        float m_new = s > m ? s : m;
        float correction = m_new == m ? 1 : expf(m - m_new);
        float weight = expf(s - m_new);
        l = l * correction + weight;
        for (size_t d = 0; d < p->head_dim_v; d++)
            o_i[d] = o_i[d] * correction + weight * v_j[d];
        m = m_new;
    }
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = l == 0 ? 0 : o_i[d] / l;
    return m + logf(l);
    /* skeleton
    // Your code, with calls of score(p, q_i, k_j, bias_i, j).
    (void)score, (void)p, (void)i, (void)q_i, (void)k, (void)v, (void)bias_i;
    (void)o_i;
    return 0;
    solution end */
}
/* <<< end of your part */

/* Every query of every head; heads_q / heads_kv query heads share a key-value head. */
static void attention(const struct problem *p, const struct arrays *a)
{
    const float *q = a->q, *k = a->k, *v = a->v;
    float *o = a->o;
    size_t group = p->heads_q / p->heads_kv;
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++) {
        size_t kv = bh / p->heads_q * p->heads_kv + bh % p->heads_q / group;
        for (size_t i = 0; i < p->seqlen_q; i++) {
            size_t row = bh * p->seqlen_q + i;
            a->lse[row] = attention_row(p, i, q + row * p->head_dim,
                                        k + kv * p->seqlen_k * p->head_dim,
                                        v + kv * p->seqlen_k * p->head_dim_v,
                                        a->bias ? a->bias + i * p->seqlen_k : NULL,
                                        o + row * p->head_dim_v);
        }
    }
}

static const struct variant exercise = {
    .name = "one_loop",
    .idea = "attention in one loop, un-normalised until the end",
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
    .number = 3,
    .name = "exercises/one_loop",
    .idea = "attention in one loop, un-normalised until the end",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
