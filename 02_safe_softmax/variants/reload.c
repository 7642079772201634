/* reload.c: stage 2 with every exponential computed once, stored, and read again.
 *
 *     m = max_j x_j     y_j = exp(x_j - m), l = sum_j y_j     y_j = y_j / l
 *
 * The same three passes and the same bits as stage.c.  What is saved is an exponential an
 * element; what is paid is one float more to write and read.  Attention is that of stage.c
 * with this softmax. */
#include "stage.h"

/* The shift of a row: its maximum.  A row without any visible score has none, and 0 does
 * as well: every exp(-INFINITY - 0) is 0, whereas -INFINITY - -INFINITY would be NaN.
 *   x (n)  scores; a NaN is passed over here and found by the sum */
static float row_maximum(const float *x, size_t n)
{
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    return m == -INFINITY ? 0 : m;
}

/* Softmax of one row; pass 2 stores the exponentials, pass 3 rescales them.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * Returns lse = m + log(l).  A row that is all -INFINITY gives y = 0, lse = -INFINITY.
 * Reads 3n floats, writes 2n: one more than computing them again. */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* pass 1: maximum */
    float m = row_maximum(x, n);

    /* pass 2: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += y[j] = expf(x[j] - m);

    /* pass 3: divide */
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : y[j] / l;
    return m + logf(l);
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

/* Scores of query i against every key.
 *     s_j = scale * q_i . k_j + bias_ij, or -INFINITY where key j is masked
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

/* Output of one query: the mean of the value rows, weighted by its probabilities.
 *     o_i = sum_j p_j v_j
 *   p_i (seqlen_k)   v (seqlen_k, head_dim_v)   o_i (head_dim_v)
 * Masked keys are left out, not multiplied by 0: 0 * NaN would be NaN. */
static void weighted_sum(const struct problem *p, size_t i, const float *p_i,
                         const float *bias_i, const float *v, float *o_i)
{
    struct key_range keys = visible_keys(p, i);
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = keys.first; j < keys.end; j++) {
        if (bias_i && bias_i[j] == -INFINITY) continue;
        const float *v_j = v + j * p->head_dim_v;
        for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] += p_i[j] * v_j[d];
    }
}

/* Attention of one head, the plain way: all scores stored, all probabilities stored.
 *     S = scale * Q K^T,  P = softmax(S),  O = P V
 *   s, prob (seqlen_q, seqlen_k)  scratch: this is the memory that grows with seqlen^2 */
static void attention_head(const struct problem *p, const float *q, const float *k,
                           const float *v, const float *bias, float *s, float *prob, float *o,
                           float *lse)
{
    size_t n = p->seqlen_k;
    for (size_t i = 0; i < p->seqlen_q; i++)
        score_row(p, i, q + i * p->head_dim, k, bias ? bias + i * n : NULL, s + i * n);
    for (size_t i = 0; i < p->seqlen_q; i++)
        lse[i] = softmax_row(s + i * n, prob + i * n, n);
    for (size_t i = 0; i < p->seqlen_q; i++)
        weighted_sum(p, i, prob + i * n, bias ? bias + i * n : NULL, v,
                     o + i * p->head_dim_v);
}

/* Every head of every batch; heads_q / heads_kv query heads share a key-value head. */
static void attention(const struct problem *p, const struct arrays *a)
{
    const float *q = a->q, *k = a->k, *v = a->v;
    float *o = a->o, *s = a->workspace, *prob = s + p->seqlen_q * p->seqlen_k;
    size_t group = p->heads_q / p->heads_kv;
    for (size_t bh = 0; bh < p->batch * p->heads_q; bh++) {
        size_t b = bh / p->heads_q, h = bh % p->heads_q;
        size_t kv = b * p->heads_kv + h / group;
        attention_head(p, q + bh * p->seqlen_q * p->head_dim,
                       k + kv * p->seqlen_k * p->head_dim,
                       v + kv * p->seqlen_k * p->head_dim_v, a->bias, s, prob,
                       o + bh * p->seqlen_q * p->head_dim_v, a->lse + bh * p->seqlen_q);
    }
}

static size_t workspace(const struct problem *p)
{
    return p->op == OP_ATTENTION ? 2 * p->seqlen_q * p->seqlen_k * sizeof(float) : 0;
}

/* Softmax: x is read twice, y written, read and written.  Attention: S written and read
 * twice, P written, read, written and read: 7 floats a score. */
static struct cost cost(const struct problem *p)
{
    if (p->op == OP_ATTENTION) {
        double n = score_count(p);
        return (struct cost){.passes = 7, .bytes = 7 * 4 * n + attention_io_bytes(p),
                             .exps = n};
    }
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 5, .bytes = 5 * 4 * n, .exps = n, .rfo_bytes = 4 * n};
}

extern const struct variant reload;
const struct variant reload = {
    .name = "reload",
    .idea = "exp stored in the second pass and rescaled in the third",
    .group = IN_ASIDES,
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax}, {OP_ATTENTION, attention}},
};
