/* flash_attention.c: project of stage 4, 60 points: attention at the speed of arithmetic.
 *
 * This program is right and slow.  Make it fast, on one core: tiles that stay in the cache,
 * several queries at a time, vectors.  Everything may change.  It must stay right in all
 * cases: any size, causal, a bias, groups of heads, NaN in a masked row of v; a score that is
 * -INFINITY masks its key.  One wrong
 * case, and the speed does not count.
 *
 * The points are for the share of the multiply-adds that one core can do:
 *
 * Speed: attention:4x512x64, half of the points at 6 % of fma, all at 12 %.
 * Judged like: merge
 * Right, and how fast:  make project EX=flash_attention */
#include "course/exercise.h"

/* One query against its keys.  Returns lse. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i, float *o_i)
{
    struct key_range keys = visible_keys(p, i);
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = keys.first; j < keys.end; j++) {
        if (bias_i && bias_i[j] == -INFINITY) continue;
        float dot = 0;
        for (size_t d = 0; d < p->head_dim; d++) dot += q_i[d] * k[j * p->head_dim + d];
        float s = p->scale * dot + (bias_i ? bias_i[j] : 0);
        if (s == -INFINITY) continue; /* masked as well */
        float m_new = s > m ? s : m;
        float correction = m_new == m ? 1 : expf(m - m_new), weight = expf(s - m_new);
        l = l * correction + weight;
        for (size_t d = 0; d < p->head_dim_v; d++)
            o_i[d] = o_i[d] * correction + weight * v[j * p->head_dim_v + d];
        m = m_new;
    }
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = l == 0 ? 0 : o_i[d] / l;
    return m + logf(l);
}

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

PROGRAM(4, flash_attention, "attention at the speed of arithmetic",
        ALL_PROBLEMS, .does = {{OP_ATTENTION, attention}})
