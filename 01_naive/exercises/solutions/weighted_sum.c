/* weighted_sum.c: exercise of stage 1, 10 points: the output of one query.
 *
 *     o_i = sum_j p_j v_j
 *
 * Task: fill weighted_sum().  Which of the two loops should be the inner one?  Both are
 * right; the line `speed` tells them apart.
 * May be assumed: the p_j are probabilities; v holds neither NaN nor infinity.  o_i is
 * not 0 on entry: it is filled with NaN.
 *
 * Right or wrong:  make exercise 1 EX=weighted_sum */
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

/* Softmax of one row in place, as stage 1 has it.  Returns lse = log(l).   s (n) */
static float softmax_row(float *s, size_t n)
{
    float l = 0;
    for (size_t j = 0; j < n; j++) l += expf(s[j]);
    for (size_t j = 0; j < n; j++) s[j] = expf(s[j]) / l;
    return logf(l);
}

/* >>> your part: functions, #include and #define may be added here */
/* o_i = sum_j p_j v_j.   p_i (seqlen_k)   v (seqlen_k, head_dim_v)   o_i (head_dim_v) */
static void weighted_sum(const struct problem *p, const float *p_i, const float *v,
                         float *o_i)
{
    /* solution begin */
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < p->seqlen_k; j++) {
        const float *v_j = v + j * p->head_dim_v;
        for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] += p_i[j] * v_j[d];
    }
    /* skeleton
    // Your code.
    (void)p, (void)p_i, (void)v, (void)o_i;
    solution end */
}
/* <<< end of your part */

/* Attention of one query.   s (seqlen_k)  scratch: scores, then probabilities
 * Returns lse. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i,
                           float *o_i, float *s)
{
    score_row(p, i, q_i, k, bias_i, s);
    float lse = softmax_row(s, p->seqlen_k);
    weighted_sum(p, s, v, o_i);
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
    return p->seqlen_k * sizeof(float);
}

static const struct variant exercise = {
    .name = "weighted_sum",
    .idea = "the mean of the value rows",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = 60,
    .workspace = workspace,
    .does = {{OP_ATTENTION, attention}},
};

static const struct variant *const variants[] = {&exercise, NULL};

static const struct stage stage = {
    .number = 1,
    .name = "exercises/weighted_sum",
    .idea = "the mean of the value rows",
    .variants = variants,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
