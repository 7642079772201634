/* Stage 2: the same, safe: the row's maximum is subtracted first.
 *
 *     softmax(x)_j = exp(x_j - m) / sum_t exp(x_t - m),    m = max_t x_t
 *     o_i = sum_j softmax(scale * q_i . k)_j v_j
 *
 * Any shift of the scores cancels; this one makes every term at most 1 and one of them
 * exactly 1, so that the sum lies between 1 and n and nothing overflows.  The price is a
 * third loop over the row. */
#include "harness.h"

#include "problem/heads.h"
#include "trace.h"
#include "variants.h"

/* The shift of a row: its maximum.  A row without any visible score has none, and 0 does
 * as well: every exp(-INFINITY - 0) is 0, whereas -INFINITY - -INFINITY would be NaN.
 *   x (n)  scores; a NaN is passed over here and found by the sum */
static float row_maximum(const float *x, size_t n)
{
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    return m == -INFINITY ? 0 : m;
}

/* Softmax of one row, three loops.
 *     m   = max_j x_j
 *     l   = sum_j exp(x_j - m)
 *     y_j = exp(x_j - m) / l
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * Returns lse = m + log(l).  A row that is all -INFINITY gives y = 0, lse = -INFINITY.
 * Reads 3n floats, writes n. */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum */
    float m = row_maximum(x, n);

    /* loop 2: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) l += expf(x[j] - m);

    /* loop 3: divide */
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : expf(x[j] - m) / l;
    return m + logf(l);
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

/* The score of query i and key j.
 *     s = scale * q_i . k_j + bias_ij, or -INFINITY where the bias masks key j
 * A problem with a soft cap applies it to the scaled product.
 *   q_i, k_j (head_dim)   bias_i (seqlen_k) or NULL */
static float score(const struct problem *p, const float *q_i, const float *k_j,
                   const float *bias_i, size_t j)
{
    if (bias_i && bias_i[j] == -INFINITY) return -INFINITY; /* whatever k_j holds */
    float dot = 0;
    for (size_t d = 0; d < p->head_dim; d++) dot += q_i[d] * k_j[d];
    return capped(p->softcap, p->scale * dot) + (bias_i ? bias_i[j] : 0);
}

/* Scores of query i against every key, -INFINITY where a key is masked.
 *   q_i (head_dim)   k (seqlen_k, head_dim)   bias_i (seqlen_k) or NULL   s (seqlen_k) */
static void score_row(const struct problem *p, size_t i, const float *q_i, const float *k,
                      const float *bias_i, float *s)
{
    struct key_range keys = visible_keys(p, i);
    for (size_t j = 0; j < p->seqlen_k; j++) s[j] = -INFINITY;
    for (size_t j = keys.first; j < keys.end; j++)
        s[j] = score(p, q_i, k + j * p->head_dim, bias_i, j);
}

/* Output of one query: the mean of the value rows, weighted by its probabilities.
 *     o_i = sum_j p_j v_j
 *   s_i, p_i (seqlen_k)   v (seqlen_k, head_dim_v)   o_i (head_dim_v)
 * A key with score -INFINITY is left out, not multiplied by 0: 0 * NaN would be NaN. */
static void weighted_sum(const struct problem *p, const float *s_i, const float *p_i,
                         const float *v, float *o_i)
{
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < p->seqlen_k; j++) {
        if (s_i[j] == -INFINITY) continue;
        const float *v_j = v + j * p->head_dim_v;
        for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] += p_i[j] * v_j[d];
    }
}

/* Attention of one head, the plain way: all scores stored, all probabilities stored.
 *     S = scale * Q K^T,  P = softmax(S),  O = P V
 *   s, prob (seqlen_q, seqlen_k)  scratch: this is the memory that grows with seqlen^2 */
static void attention_head(const struct problem *p, const struct head *h, float *s,
                           float *prob)
{
    size_t n = p->seqlen_k;
    for (size_t i = 0; i < p->seqlen_q; i++)
        score_row(p, i, h->q + i * p->head_dim, h->k, bias_row(p, h, i), s + i * n);
    for (size_t i = 0; i < p->seqlen_q; i++)
        h->lse[i] = softmax_row(s + i * n, prob + i * n, n);
    for (size_t i = 0; i < p->seqlen_q; i++)
        weighted_sum(p, s + i * n, prob + i * n, h->v, h->o + i * p->head_dim_v);
}

/* Every head of every batch. */
static void attention(const struct problem *p, const struct arrays *a)
{
    float *s = a->workspace, *prob = s + p->seqlen_q * p->seqlen_k;
    for (size_t bh = 0; bh < n_heads(p); bh++) {
        struct head h = head_of(p, a, bh);
        attention_head(p, &h, s, prob);
    }
}

static size_t workspace(const struct problem *p)
{
    size_t scores = size_times(p->seqlen_q, p->seqlen_k);
    return p->op == OP_ATTENTION ? size_times(scores, 2 * sizeof(float)) : 0;
}

/* Softmax: x is read three times, y written once.  Attention: S written, read three times,
 * P written, read: 6 floats per score beyond reading q, k, v and writing o. */
static struct cost cost(const struct problem *p)
{
    if (p->op == OP_ATTENTION) {
        double n = score_count(p);
        return (struct cost){.passes = 6, .bytes = 6 * 4 * n + attention_io_bytes(p),
                             .exps = 2 * n};
    }
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 4, .bytes = 4 * 4 * n, .exps = 2 * n, .rfo_bytes = 4 * n};
}

const struct variant recompute = {
    .name = "recompute",
    .idea = "subtract the maximum; three loops",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES | WITH_WINDOW | WITH_SOFTCAP,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax}, {OP_ATTENTION, attention}},
};

static const struct stage stage = {
    .number = 2,
    .name = "02_safe_softmax",
    .idea = "subtract the maximum: three loops, never overflows",
    .variants = variants,
    .trace = trace,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
