/* Attention in one loop over the keys, divided once at the end.
 *
 *     m_new = max(m, s_j)
 *     l     = l * exp(m - m_new) + exp(s_j - m_new)
 *     o     = o * exp(m - m_new) + exp(s_j - m_new) v_j
 *     o_i   = o / l,   lse_i = m + log(l)
 *
 * The un-normalised form: keeping o = l * (output so far) replaces a division for every key
 * and column by one for every column (FlashAttention-2, Dao 2023, section 3.1). */
#include "stage.h"

/* One query against all its keys: score, maximum, sum, attention, in this order.
 *   q_i (head_dim)  k (seqlen_k, head_dim)  v (seqlen_k, head_dim_v)  o_i (head_dim_v)
 * Returns lse.  Masked keys are left out; if there is no other, o = 0, lse = -INFINITY.
 * Reads K and V once, writes o once. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i, float *o_i)
{
    struct key_range keys = visible_keys(p, i);
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = keys.first; j < keys.end; j++) {
        const float *k_j = k + j * p->head_dim, *v_j = v + j * p->head_dim_v;
        if (bias_i && bias_i[j] == -INFINITY) continue;

        /* score */
        float dot = 0;
        for (size_t d = 0; d < p->head_dim; d++) dot += q_i[d] * k_j[d];
        float s = p->scale * dot + (bias_i ? bias_i[j] : 0);

        /* max; a score of -INFINITY that is not masked weighs 0 and has no maximum */
        float m_new = s > m ? s : m;
        float correction = m_new == m ? 1 : expf(m - m_new);
        float weight = s == -INFINITY ? 0 : expf(s - m_new);

        /* sum and attention */
        l = l * correction + weight;
        for (size_t d = 0; d < p->head_dim_v; d++)
            o_i[d] = o_i[d] * correction + weight * v_j[d];
        m = m_new;
    }
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = l == 0 ? 0 : o_i[d] / l;
    return m + logf(l);
}

/* Attention of one head: query by query, nothing stored. */
static void attention_head(const struct problem *p, const float *q, const float *k,
                           const float *v, const float *bias, float *o, float *lse)
{
    size_t n = p->seqlen_k;
    for (size_t i = 0; i < p->seqlen_q; i++)
        lse[i] = attention_row(p, i, q + i * p->head_dim, k, v, bias ? bias + i * n : NULL,
                               o + i * p->head_dim_v);
}

/* Every head of every batch; heads_q / heads_kv query heads share a key-value head. */
static void attention(const struct problem *p, const struct arrays *a)
{
    const float *q = a->q, *k = a->k, *v = a->v;
    float *o = a->o;
    size_t group = p->heads_q / p->heads_kv;
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++) {
        size_t b = bh / p->heads_q, h = bh % p->heads_q;
        size_t kv = b * p->heads_kv + h / group;
        attention_head(p, q + bh * p->seqlen_q * p->head_dim,
                       k + kv * p->seqlen_k * p->head_dim,
                       v + kv * p->seqlen_k * p->head_dim_v, a->bias,
                       o + bh * p->seqlen_q * p->head_dim_v, a->lse + bh * p->seqlen_q);
    }
}

static struct cost cost(const struct problem *p)
{
    return (struct cost){.passes = 0, .bytes = attention_io_bytes(p),
                         .exps = 2 * score_count(p)};
}

extern const struct variant divide_once;
const struct variant divide_once = {
    .name = "divide_once",
    .idea = "attention in one loop, un-normalised until the end",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
};
