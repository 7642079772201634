/* Stage 3: online: the maximum and the denominator in one loop.
 *
 *     m_new = max(m, x_j)
 *     l     = l * exp(m - m_new) + exp(x_j - m_new)
 *
 * Whenever the maximum grows, what was summed so far is rescaled to the new one, so that at
 * the end l is the sum that two loops would have found (Milakov and Gimelshein 2018,
 * Algorithm 3).  For attention it means that no score has to be stored. */
#include "harness.h"

#include "problem/heads.h"
#include "trace.h"
#include "variants.h"

/* The running state of a row: m = max of the scores so far, l = sum of exp(x - m).
 * Empty: m = -INFINITY, l = 0. */
struct state { float m, l; };

/* Takes in one score.  A masked one changes nothing: -INFINITY - -INFINITY is never formed.
 * The first visible score meets exp(-INFINITY - x) = 0 and l = 0. */
static struct state online_step(struct state s, float x)
{
    if (x == -INFINITY) return s;
    float m_new = x > s.m ? x : s.m;
    s.l = s.l * expf(s.m - m_new) + expf(x - m_new);
    s.m = m_new;
    return s;
}

/* Softmax of one row, two loops.
 *     loop 1: online_step over the row     loop 2: y_j = exp(x_j - m) / l
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * A row that is all -INFINITY gives y = 0.  Reads 2n floats, writes n. */
static void softmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum and denominator */
    struct state s = {-INFINITY, 0};
    for (size_t j = 0; j < n; j++) s = online_step(s, x[j]);

    /* loop 2: divide */
    for (size_t j = 0; j < n; j++) y[j] = s.l == 0 ? 0 : expf(x[j] - s.m) / s.l;
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

/* Attention of one query in two loops over the keys; no score is stored.
 *     loop 1: m, l of the scores     loop 2: o_i = sum_j (exp(s_j - m) / l) v_j
 * Loop 2 adds whole rows of v, scaled: the two inner loops of the product P V exchanged.
 *   q_i (head_dim)  k (seqlen_k, head_dim)  v (seqlen_k, head_dim_v)  o_i (head_dim_v)
 * Returns lse = m + log(l).  A key with score -INFINITY is left out of both loops; if there
 * is no other, o = 0 and lse = -INFINITY.  Reads K twice and V once, writes o once. */
static float attention_row(const struct problem *p, size_t i, const float *q_i,
                           const float *k, const float *v, const float *bias_i, float *o_i)
{
    struct key_range keys = visible_keys(p, i);

    /* loop 1: maximum and denominator */
    struct state s = {-INFINITY, 0};
    for (size_t j = keys.first; j < keys.end; j++)
        s = online_step(s, score(p, q_i, k + j * p->head_dim, bias_i, j));

    /* loop 2: weighted sum */
    for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = keys.first; j < keys.end; j++) {
        const float *v_j = v + j * p->head_dim_v;
        float s_j = score(p, q_i, k + j * p->head_dim, bias_i, j);
        if (s_j == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */
        float p_j = expf(s_j - s.m) / s.l;
        for (size_t d = 0; d < p->head_dim_v; d++) o_i[d] += p_j * v_j[d];
    }
    return s.m + logf(s.l);
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

/* Softmax: x is read twice, y written once.  Attention: nothing of size seqlen^2 exists. */
static struct cost cost(const struct problem *p)
{
    if (p->op == OP_ATTENTION) {
        double n = score_count(p);
        return (struct cost){.passes = 0, .bytes = attention_io_bytes(p), .exps = 3 * n};
    }
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 3, .bytes = 3 * 4 * n, .exps = 3 * n, .rfo_bytes = 4 * n};
}

const struct variant online = {
    .name = "online",
    .idea = "m and l in one loop; S never stored",
    .device = ON_CPU,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES | WITH_WINDOW | WITH_SOFTCAP,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .cost = cost,
    .does = {{OP_SOFTMAX, softmax}, {OP_ATTENTION, attention}},
};

static const struct stage stage = {
    .number = 3,
    .name = "03_online_softmax",
    .idea = "streaming maximum and denominator: two loops, attention without S",
    .variants = variants,
    .trace = trace,
};

int main(int argc, char **argv) { return stage_main(argc, argv, &stage); }
