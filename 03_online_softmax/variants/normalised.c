/* normalised.c: attention in one loop whose running output is normalised at every key.
 *
 *     m_k = max(m_{k-1}, x_k)
 *     l_k = l_{k-1} e^{m_{k-1} - m_k} + e^{x_k - m_k}
 *     p_k = p_{k-1} (l_{k-1} / l_k) e^{m_{k-1} - m_k} + (e^{x_k - m_k} / l_k) v_k
 *
 * The streaming dot product of "How Flash Attention works" and of Jim Wang's equation 22:
 * after every key p is the attention of the keys so far.  one_loop.c keeps o = l p instead
 * and divides once at the end: two divisions a key fewer, and two roundings.
 *
 * The exponents must be subtracted before exp is taken.  e^{-m_k} e^{x_k}, as it is often
 * printed, is infinite from a score of 89 on and 0 * inf from 104 on (notes/errata.md). */
#include "harness.h"

#include "problem/heads.h"

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
        if (s == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */

        /* max */
        float m_new = s > m ? s : m;
        float correction = m_new == m ? 1 : expf(m - m_new);
        float weight = expf(s - m_new);

        /* sum and attention; at the first key keep is 0, and so is o */
        float l_new = l * correction + weight;
        float keep = l * correction / l_new, add = weight / l_new;
        for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = o_i[d] * keep + add * v_j[d];
        m = m_new;
        l = l_new;
    }
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

/* No score is stored; a key costs its own exp, and one more when it raises the maximum. */
static struct cost cost(const struct problem *p)
{
    return (struct cost){
        .passes = 0, .bytes = attention_io_bytes(p), .exps = 2 * score_count(p)};
}

const struct variant online_normalised = {
    .name = "normalised",
    .idea = "one loop, a division at every key",
    .group = IN_ASIDES,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
};
