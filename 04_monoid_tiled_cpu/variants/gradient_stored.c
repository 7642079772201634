/* gradient_stored.c: the backward pass of attention as the textbook writes it: P and dS are
 * matrices in memory, and every gradient is a product with one of them.
 *
 *     P_ij  = exp(s_ij - lse_i)                 the forward pass's softmax, from its lse
 *     D_i   = do_i . o_i                        the row sum of P o dP, without either
 *     dS_ij = P_ij (do_i . v_j - D_i)           the gradient of softmax
 *     dq = scale dS k     dk = scale dS^T q     dv = P^T do
 *
 * dk and dv of a key head add up over the query heads that share it.  A soft cap multiplies dS by
 * its slope; a sink has dS = -P D and nothing to multiply it with.  A bias gets no gradient. */
#include <math.h>
#include <string.h>

#include "harness.h"
#include "problem/heads.h"
#include "problem/layout.h"

/* One query head: rows of q, do, o, dq [seqlen_q], of k, v, dk, dv [seqlen_k]. */
struct gradient {
    const float *q, *k, *v, *bias, *o, *lse, *d_o;
    float *dq, *dk, *dv;
    size_t bias_row;    /* from one row of the bias to the next */
    float *P, *dS;      /* (seqlen_q, seqlen_k) */
};

static float dot(const float *x, const float *y, size_t n)
{
    float sum = 0;
    for (size_t t = 0; t < n; t++) sum = fmaf(x[t], y[t], sum);
    return sum;
}

static void add(float *to, float weight, const float *x, size_t n)
{
    for (size_t t = 0; t < n; t++) to[t] = fmaf(weight, x[t], to[t]);
}

/* P and dS of row i.  A hidden key gets 0 in both, after the exponential: before it, a row without
 * any visible key would be exp(-inf - -inf). */
static float row_of_P_and_dS(const struct problem *p, const struct gradient *g, size_t i)
{
    size_t n = p->seqlen_k, d = p->head_dim, dv = p->head_dim_v;
    const float *q_i = g->q + i * d, *do_i = g->d_o + i * dv;
    float *P = g->P + i * n, *dS = g->dS + i * n, c = p->softcap;
    float D = dot(do_i, g->o + i * dv, dv);
    struct key_range seen = visible_keys(p, i);
    memset(P, 0, n * sizeof *P);
    memset(dS, 0, n * sizeof *dS);
    for (size_t j = seen.first; j < seen.end; j++) {
        float b = g->bias ? g->bias[i * g->bias_row + j] : 0, slope = 1;
        float s = p->scale * dot(q_i, g->k + j * d, d);
        if (c > 0) {
            float t = tanhf(s / c);
            s = c * t;
            slope = 1 - t * t;
        }
        if (b == -INFINITY || s + b == -INFINITY) continue;
        P[j] = expf(s + b - g->lse[i]);
        dS[j] = P[j] * (dot(do_i, g->v + j * dv, dv) - D) * slope;
    }
    return D;
}

/* The products.  A key that no row sees keeps its 0, whatever stands in k and v. */
static void products(const struct problem *p, const struct gradient *g)
{
    size_t n = p->seqlen_k, d = p->head_dim, dv = p->head_dim_v;
    for (size_t i = 0; i < p->seqlen_q; i++)
        for (size_t j = 0; j < n; j++) {
            float P = g->P[i * n + j], dS = p->scale * g->dS[i * n + j];
            if (P == 0 && dS == 0) continue;
            add(g->dq + i * d, dS, g->k + j * d, d);
            add(g->dk + j * d, dS, g->q + i * d, d);
            add(g->dv + j * dv, P, g->d_o + i * dv, dv);
        }
}

static void backward(const struct problem *p, const struct arrays *a)
{
    size_t heads = p->batch * p->heads_q, kv_heads = p->batch * p->heads_kv;
    size_t n_q = p->seqlen_q, n_k = p->seqlen_k, d = p->head_dim, dv = p->head_dim_v;
    memset(a->dq, 0, heads * n_q * d * sizeof(float));
    memset(a->dk, 0, kv_heads * n_k * d * sizeof(float));
    memset(a->dv, 0, kv_heads * n_k * dv * sizeof(float));
    for (size_t h = 0; p->has_sinks && h < p->heads_q; h++) a->dsinks[h] = 0;
    for (size_t bh = 0; bh < heads; bh++) {
        struct head head = head_of(p, a, bh);
        size_t b = bh / p->heads_q, h = bh % p->heads_q;
        struct gradient g = {
            .q = head.q, .k = head.k, .v = head.v, .o = head.o, .lse = head.lse,
            .bias = p->has_bias ? a->bias + bias_at(p, b, h, 0) : NULL,
            .bias_row = p->has_bias_strides ? p->bias_strides.row : n_k, .d_o = (const float *)a->d_o + bh * n_q * dv,
            .dq = (float *)a->dq + bh * n_q * d,
            .dk = (float *)a->dk + (head.k - (const float *)a->k),
            .dv = (float *)a->dv + (head.v - (const float *)a->v),
            .P = a->workspace, .dS = (float *)a->workspace + n_q * n_k};
        for (size_t i = 0; i < n_q; i++) {
            float D = row_of_P_and_dS(p, &g, i);
            if (p->has_sinks && a->sinks[h] > -INFINITY)
                a->dsinks[h] -= expf(a->sinks[h] - g.lse[i]) * D;
        }
        products(p, &g);
    }
}

static size_t workspace(const struct problem *p)
{
    return 2 * p->seqlen_q * p->seqlen_k * sizeof(float);
}

/* P and dS are written once and read three times each; q, k, v, o, do and the gradients move
 * once. */
static struct cost cost(const struct problem *p)
{
    double scores = score_count(p), size = (double)(p->head_dim + p->head_dim_v);
    double rows = (double)p->batch * ((double)p->heads_q * (double)p->seqlen_q +
                                      (double)p->heads_kv * (double)p->seqlen_k);
    return (struct cost){.passes = 4, .bytes = 8 * scores + 8 * size * rows, .exps = scores};
}

const struct variant gradient_stored = {
    .name = "gradient_stored",
    .idea = "P and dS are stored",
    .group = IN_ASIDES,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES | WITH_BIAS_STRIDES | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS,
    .max_score = INFINITY,
    .masked_rows = 1,
    .isolates_v = 1,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_BACKWARD, backward}},
};
