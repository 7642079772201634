/* 2_correct_once.c: one correction for a chunk, not one for each key.
 *
 * The scores of a chunk come first, as in stage 2.  Their maximum is then known before the first
 * value is added, so l and o are multiplied once for 32 keys, and a key costs one exp, not two. */
#include "cost.h"
#include "monoid.h"
#include "score.h"

enum { Bc = 32 }; /* keys of a chunk */

/* x = x . (n keys with scores s): one maximum and one correction for all of them.
 *     m_new = max(m, max_j s_j),  correction = e^(m - m_new),  weight_j = e^(s_j - m_new)
 *   s (n)  -INFINITY means masked      v (n, x->d)  a masked row of it is not read */
static void push_tile(struct aggregate *x, const float *s, const float *v, size_t n)
{
    float m_new = x->m;
    for (size_t j = 0; j < n; j++)
        if (s[j] > m_new || isnan(s[j])) m_new = s[j];
    float correction = se_factor(x->m, m_new);
    x->l *= correction;
    for (size_t d = 0; d < x->d; d++) x->o[d] *= correction;
    for (size_t j = 0; j < n; j++) {
        if (s[j] == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */
        float weight = expf(s[j] - m_new);
        x->l += weight;
        for (size_t d = 0; d < x->d; d++) x->o[d] += weight * v[j * x->d + d];
    }
    x->m = m_new;
}

/* Attention of one query, o (head_dim_v); returns lse. */
static float attention_row(const struct head *h, size_t i, float *o)
{
    struct aggregate x = {.o = o, .d = h->head_dim_v};
    float s[Bc], lse;
    aggregate_unit(&x);
    for (size_t j = 0; j < visible(h, i); j += Bc) {
        size_t n = smaller(Bc, visible(h, i) - j);
        for (size_t t = 0; t < n; t++) s[t] = score(h, i, j + t);
        push_tile(&x, s, v_row(h, j), n);
    }
    aggregate_finish(&x, o, &lse);
    return lse;
}

/* Attention of one head: query by query. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, o_row(h, i));
}

const struct variant correct_once = {
    .name = "correct_once", .idea = "one correction for 32 keys",
    RUNG,
    .by_head = {{OP_ATTENTION, attention_head}},
};
