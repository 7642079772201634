/* yardstick_backward.c: the backward pass in float, straight from its equations. */
#include <math.h>
#include <stdlib.h>

#include "problem/layout.h"
#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/yardstick.h"

static float dot(const float *x, const float *y, size_t n, int reverse)
{
    float sum = 0;
    for (size_t t = 0; t < n; t++) {
        size_t i = reverse ? n - 1 - t : t;
        sum = fmaf(x[i], y[i], sum);
    }
    return sum;
}

static void add(float *to, float weight, const float *x, size_t n)
{
    for (size_t t = 0; t < n; t++) to[t] = fmaf(weight, x[t], to[t]);
}

/* Row i of a head: q, do, o (its rows), lse; k, v of the head; dq its row; dk, dv of the head. */
struct row {
    const float *q, *d_o, *o, *k, *v, *bias;
    float lse, sink, *dq, *dk, *dv, *dsink;
};

static void row_backward(const struct problem *p, struct row *r, struct key_range seen, int way)
{
    size_t d = p->head_dim, dv = p->head_dim_v;
    float D = dot(r->d_o, r->o, dv, way & REVERSE), c = p->softcap;
    if (r->lse == -INFINITY) return;
    for (size_t j = seen.first; j < seen.end; j++) {
        float b = r->bias ? r->bias[j] : 0;
        float s = p->scale * dot(r->q, r->k + j * d, d, way & REVERSE), slope = 1;
        if (c > 0) {
            float t = tanhf(s / c);
            s = c * t, slope = 1 - t * t;
        }
        if (b == -INFINITY || s + b == -INFINITY) continue;
        float weight = expf(s + b - r->lse);
        float ds = weight * (dot(r->d_o, r->v + j * dv, dv, way & REVERSE) - D) * slope;
        ds = dtype_round(p->dtype, ds);
        add(r->dq, p->scale * ds, r->k + j * d, d);
        add(r->dk + j * d, p->scale * ds, r->q, d);
        add(r->dv + j * dv, dtype_round(p->dtype, weight), r->d_o, dv);
    }
    if (r->dsink && r->sink > -INFINITY) *r->dsink -= expf(r->sink - r->lse) * D;
}

void yardstick_backward(const struct problem *p, const struct arrays *a, int way,
                        float *gradients[])
{
    float *in[N_ARRAYS] = {NULL};
    size_t group = p->heads_kv ? p->heads_q / p->heads_kv : 1, d = p->head_dim;
    size_t dv = p->head_dim_v, n = p->seqlen_k, rows = p->batch * p->heads_q * p->seqlen_q;
    for (int i = 0; i < N_ARRAYS; i++) {
        gradients[i] = NULL;
        if (array_role(p, i) == OUTPUT) gradients[i] = xcalloc(array_count(p, i), sizeof(float));
        else if (array_role(p, i) == INPUT && array_has_rows(i))
            in[i] = widen(array_of(a, i), array_dtype(p, i), array_count(p, i));
    }
    for (size_t step = 0; step < rows; step++) {
        size_t row = way & REVERSE ? rows - 1 - step : step, i = row % p->seqlen_q;
        size_t h = row / p->seqlen_q % p->heads_q, b = row / p->seqlen_q / p->heads_q;
        size_t kv = (b * p->heads_kv + h / group) * n;
        struct row r = {
            .q = in[ARRAY_Q] + row * d, .d_o = in[ARRAY_DO] + row * dv,
            .o = in[ARRAY_O] + row * dv, .k = in[ARRAY_K] + kv * d, .v = in[ARRAY_V] + kv * dv,
            .bias = p->has_bias ? a->bias + bias_at(p, b, h, i) : NULL, .lse = in[ARRAY_LSE][row],
            .sink = p->has_sinks ? a->sinks[h] : -INFINITY, .dq = gradients[ARRAY_DQ] + row * d,
            .dk = gradients[ARRAY_DK] + kv * d, .dv = gradients[ARRAY_DV] + kv * dv,
            .dsink = p->has_sinks ? gradients[ARRAY_DSINKS] + h : NULL};
        row_backward(p, &r, visible_keys(p, i), way);
    }
    for (int i = 0; i < N_ARRAYS; i++) {
        for (size_t e = 0; gradients[i] && e < array_count(p, i); e++)
            gradients[i][e] = dtype_round(array_dtype(p, i), gradients[i][e]);
        free(in[i]);
    }
}
