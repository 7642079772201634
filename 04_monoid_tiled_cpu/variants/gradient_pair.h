/* gradient_pair.h: what gradient_stored.c and gradient_recompute.c share: a head and one pair of it.
 *
 *     P_ij  = exp(s_ij - lse_i)                 the forward pass's softmax, from its lse
 *     D_i   = do_i . o_i                        the row sum of P o dP, without either
 *     dS_ij = P_ij (do_i . v_j - D_i)           the gradient of softmax
 *     dq_i  = scale sum_j dS_ij k_j     dk_j = scale sum_i dS_ij q_i     dv_j = sum_i P_ij do_i
 *
 * dk and dv of a key head add up over the query heads that share it.  A soft cap multiplies dS by
 * its slope; a sink has dS = -P D and nothing to multiply it with.  A bias gets no gradient.
 * notes/gradient.md derives all of them. */
#pragma once

#include <math.h>
#include <string.h>

#include "harness.h"
#include "problem/heads.h"
#include "problem/layout.h"
#include "vector/vector.h"

/* One query head: rows of q, do, o, dq [seqlen_q], of k, v, dk, dv [seqlen_k]. */
struct gradient {
    const float *q, *k, *v, *bias, *o, *lse, *d_o;
    float *dq, *dk, *dv;
    size_t bias_row; /* from one row of the bias to the next */
    float *scratch;
};

/* D of query i. */
static inline float D_of(const struct problem *p, const struct gradient *g, size_t i)
{
    size_t dv = p->head_dim_v;
    return vdot(g->d_o + i * dv, g->o + i * dv, dv);
}

/* P and dS of query i and a key that it sees.  Both are 0 where the bias hides the key: nobody asks
 * for exp(-inf - lse) of a row whose lse is -inf, too. */
struct pair { float P, dS; };

static inline struct pair pair_of(const struct problem *p, const struct gradient *g, size_t i,
                                  size_t j, float D)
{
    size_t d = p->head_dim, dv = p->head_dim_v;
    float bias = g->bias ? g->bias[i * g->bias_row + j] : 0, slope = 1, c = p->softcap;
    float s = p->scale * vdot(g->q + i * d, g->k + j * d, d);
    if (c > 0) {
        float t = tanhf(s / c);
        s = c * t;
        slope = 1 - t * t;
    }
    if (bias == -INFINITY || s + bias == -INFINITY) return (struct pair){0, 0};
    float P = expf(s + bias - g->lse[i]);
    float dP = vdot(g->d_o + i * dv, g->v + j * dv, dv);
    return (struct pair){P, P * (dP - D) * slope};
}

/* What the pair adds to dq, dk and dv.  A hidden pair adds nothing, whatever stands in k and v. */
static inline void add_pair(const struct problem *p, const struct gradient *g, size_t i, size_t j,
                            struct pair x)
{
    size_t d = p->head_dim, dv = p->head_dim_v;
    if (x.P == 0 && x.dS == 0) return;
    vaxpy(g->dq + i * d, p->scale * x.dS, g->k + j * d, d);
    vaxpy(g->dk + j * d, p->scale * x.dS, g->q + i * d, d);
    vaxpy(g->dv + j * dv, x.P, g->d_o + i * dv, dv);
}

/* x (n) = 0; NULL where it has no elements. */
static inline void clear(void *x, size_t n)
{
    if (n) memset(x, 0, n * sizeof(float));
}

/* Sets the gradients to 0 and calls `add_head` for each query head; then what the head adds to its
 * sink. */
typedef void function_of_gradient(const struct problem *p, const struct gradient *g);

static inline void each_query_head(const struct problem *p, const struct arrays *a,
                                   function_of_gradient *add_head)
{
    size_t heads = p->batch * p->heads_q, kv_heads = p->batch * p->heads_kv;
    size_t n_q = p->seqlen_q, n_k = p->seqlen_k, d = p->head_dim, dv = p->head_dim_v;
    clear(a->dq, heads * n_q * d);
    clear(a->dk, kv_heads * n_k * d);
    clear(a->dv, kv_heads * n_k * dv);
    for (size_t h = 0; p->has_sinks && h < p->heads_q; h++) a->dsinks[h] = 0;
    for (size_t bh = 0; bh < heads; bh++) {
        struct head head = head_of(p, a, bh);
        size_t b = bh / p->heads_q, h = bh % p->heads_q;
        struct gradient g = {
            .q = head.q, .k = head.k, .v = head.v, .o = head.o, .lse = head.lse,
            .bias = p->has_bias ? a->bias + bias_at(p, b, h, 0) : NULL,
            .d_o = (const float *)a->d_o + bh * n_q * dv, .dq = (float *)a->dq + bh * n_q * d,
            .dk = (float *)a->dk + (head.k - (const float *)a->k),
            .dv = (float *)a->dv + (head.v - (const float *)a->v),
            .bias_row = p->has_bias_strides ? p->bias_strides.row : n_k, .scratch = a->workspace};
        add_head(p, &g);
        for (size_t i = 0; p->has_sinks && a->sinks[h] > -INFINITY && i < n_q; i++)
            a->dsinks[h] -= expf(a->sinks[h] - g.lse[i]) * D_of(p, &g, i);
    }
}

#define GRADIENT                                                                            \
    .group = IN_BACKWARD, .types = TYPE(F32), .max_score = INFINITY, .masked_rows = 1,        \
    .isolates_v = 1, .supports = BASIC_FEATURES | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS | \
                                 WITH_BIAS_STRIDES
