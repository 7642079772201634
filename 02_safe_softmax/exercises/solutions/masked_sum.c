/* masked_sum.c: exercise of stage 2, 15 points: a sum that masked rows cannot spoil.
 *
 *     o_i = sum over the visible keys j of p_j v_j
 *
 * Task: fill weighted_sum().  The probability of a masked key is 0, but what lies in its
 * row of v is not always a number: padding is often left uninitialised, and 0 * NaN is
 * NaN.  The score of a masked key is -INFINITY.
 * May be assumed: the p_j are right.  A NaN in a visible row of v does spread, to its own
 * column and no other.
 *
 * Half of the points: cases nan_v, inf_v.
 * Right or wrong:  make exercise 2 EX=masked_sum */
#include "harness.h"

/* Scores of query i against every key.
 *   q_i (head_dim)   k (seqlen_k, head_dim)   bias_i (seqlen_k) or NULL   s (seqlen_k) */
static void score_row(const struct problem *p, size_t i, const float *q_i, const float *k,
                      const float *bias_i, float *s)
{
    struct key_range keys = visible_keys(p, i);
    for (size_t j = 0; j < p->seqlen_k; j++) {
        const float *k_j = k + j * p->head_dim;
        float dot = 0;
        for (size_t d = 0; d < p->head_dim; d++) dot += q_i[d] * k_j[d];
        s[j] = p->scale * dot + (bias_i ? bias_i[j] : 0);
        int hidden = j < keys.first || j >= keys.end;
        if (hidden || (bias_i && bias_i[j] == -INFINITY)) s[j] = -INFINITY;
    }
}

/* Safe softmax of one row.  A row that is all -INFINITY gives 0.   s, p_i (n)
 * Returns lse = m + log(l). */
static float softmax_row(const float *s, float *p_i, size_t n)
{
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = s[j] > m ? s[j] : m;
    if (m == -INFINITY) m = 0;
    for (size_t j = 0; j < n; j++) l += p_i[j] = expf(s[j] - m);
    for (size_t j = 0; j < n; j++) p_i[j] = l == 0 ? 0 : p_i[j] / l;
    return m + logf(l);
}

/* >>> your part: functions, #include and #define may be added here */
/* o_i = sum_j p_j v_j.
 *   s_i, p_i (seqlen_k)  scores and probabilities   v (seqlen_k, head_dim_v)
 *   o_i (head_dim_v) */
static void weighted_sum(const struct problem *p, const float *s_i, const float *p_i,
                         const float *v, float *o_i)
{
    /* solution begin */
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < p->seqlen_k; j++) {
        if (s_i[j] == -INFINITY) continue;
        const float *v_j = v + j * p->head_dim_v;
        for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] += p_i[j] * v_j[d];
    }
    /* skeleton
    // Your code.
    (void)p, (void)s_i, (void)p_i, (void)v, (void)o_i;
    solution end */
}
/* <<< end of your part */

/* Attention of one query.   s (2, seqlen_k)  scratch: scores, probabilities
 * Returns lse. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i,
                           float *o_i, float *s)
{
    score_row(p, i, q_i, k, bias_i, s);
    float *p_i = s + p->seqlen_k, lse = softmax_row(s, p_i, p->seqlen_k);
    weighted_sum(p, s, p_i, v, o_i);
    return lse;
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
                                        o + row * p->head_dim_v, a->workspace);
        }
    }
}

static size_t workspace(const struct problem *p)
{
    return 2 * p->seqlen_k * sizeof(float);
}

static const struct variant exercise = {
    .name = "masked_sum",
    .idea = "a weighted sum that leaves masked keys out",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .does = {{OP_ATTENTION, attention}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 2,
    .name = "exercises/masked_sum",
    .idea = "a weighted sum that leaves masked keys out",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
