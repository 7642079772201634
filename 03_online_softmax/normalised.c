/* normalised.c: attention in one loop whose running output is normalised at every key.
 *
 *     m_k = max(m_{k-1}, x_k)
 *     l_k = l_{k-1} e^{m_{k-1} - m_k} + e^{x_k - m_k}
 *     p_k = p_{k-1} (l_{k-1} / l_k) e^{m_{k-1} - m_k} + (e^{x_k - m_k} / l_k) v_k
 *
 * The streaming dot product of "How Flash Attention works" and of Jim Wang's equation 22:
 * after every key p is the attention of the keys so far.  stage.c keeps o = l p instead
 * and divides once at the end: two divisions a key fewer, and two roundings.
 *
 * The exponents must be subtracted before exp is taken.  e^{-m_k} e^{x_k}, as it is often
 * printed, is 0 * inf from a score of about 104 on (notes/errata.md). */
#include "stage.h"

/* One query against the keys it sees.
 *   q (d)   k (n, d)   v (n, dv)   bias (n) or NULL   o (dv)   lse (1)
 * Without a visible key o = 0 and lse = -INFINITY.  A row of v whose key is masked is not
 * read.  Reads n (d + dv) floats, writes dv + 1. */
static void row(const float *q, const float *k, const float *v, const float *bias,
                float scale, size_t n, size_t d, size_t dv, float *o, float *lse)
{
    float m = -INFINITY, l = 0.0f;
    for (size_t c = 0; c < dv; c++) o[c] = 0.0f;
    for (size_t j = 0; j < n; j++) {
        const float *k_j = k + j * d, *v_j = v + j * dv;
        float s = 0.0f;
        if (bias && bias[j] == -INFINITY) continue;
        for (size_t c = 0; c < d; c++) s = fmaf(q[c], k_j[c], s);
        s = s * scale + (bias ? bias[j] : 0.0f);
        if (s == -INFINITY) continue; /* else -inf - (-inf) while m is still -inf */
        float m_new = m > s ? m : s;
        float l_old = m == m_new ? l : l * expf(m - m_new);
        float weight = expf(s - m_new);
        float l_new = l_old + weight;
        float keep = l_old / l_new, add = weight / l_new;
        /* keep = 0 before the first key, when o is 0 too */
        for (size_t c = 0; c < dv; c++) o[c] = o[c] * keep + v_j[c] * add;
        m = m_new;
        l = l_new;
    }
    *lse = m + logf(l);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    const float *q = a->q, *k = a->k, *v = a->v;
    float *o = a->o;
    size_t d = p->head_dim, dv = p->head_dim_v, group = p->heads_q / p->heads_kv;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->heads_q; h++)
            for (size_t i = 0; i < p->seqlen_q; i++) {
                size_t row_q = (b * p->heads_q + h) * p->seqlen_q + i;
                size_t row_k = (b * p->heads_kv + h / group) * p->seqlen_k;
                const float *bias_i = p->has_bias ? a->bias + i * p->seqlen_k : NULL;
                row(q + row_q * d, k + row_k * d, v + row_k * dv, bias_i, p->scale,
                    visible_keys(p, i), d, dv, o + row_q * dv, a->lse + row_q);
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
    .idea = "attention in one loop, the output normalised at every key",
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .attention = attention,
};
