/* Attention in one loop over the keys, divided once at the end.
 *
 *     m_new = max(m, s_j)
 *     l     = l * exp(m - m_new) + exp(s_j - m_new)
 *     o     = o * exp(m - m_new) + exp(s_j - m_new) v_j
 *     o_i   = o / l,   lse_i = m + log(l)
 *
 * The un-normalised form: keeping o = l * (output so far) replaces a division for every key
 * and column by one for every column (FlashAttention-2, Dao 2023, section 3.1). */
#include "harness.h"

#include "problem/heads.h"

/* One query against all its keys: score, maximum, sum, attention, in this order.
 *   q_i (head_dim)  k (seqlen_k, head_dim)  v (seqlen_k, head_dim_v)  o_i (head_dim_v)
 * Returns lse.  A key with score -INFINITY is left out; if there is no other, o = 0 and
 * lse = -INFINITY.
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
        if (s == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */

        /* max */
        float m_new = s > m ? s : m;
        float correction = m_new == m ? 1 : expf(m - m_new);
        float weight = expf(s - m_new);

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
static void attention_head(const struct problem *p, const struct head *h)
{
    for (size_t i = 0; i < p->seqlen_q; i++)
        h->lse[i] = attention_row(p, i, h->q + i * p->head_dim, h->k, h->v,
                                  bias_row(p, h, i), h->o + i * p->head_dim_v);
}

/* Every head of every batch. */
static void attention(const struct problem *p, const struct arrays *a)
{
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
        attention_head(p, &h);
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
    .idea = "one loop over the keys, one division",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
};
