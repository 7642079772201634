/* reference_keys.c: widens, updates and transposes keys and values. */
#include "verification/reference_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem/host_memory.h"
#include "verification/reference_sum.h"

float *widen_updated(const struct problem *p, const void *rows, const void *rows_new,
                     const size_t *index, size_t d)
{
    size_t heads = p->batch * p->heads_kv;
    float *old = widen(rows, p->dtype, heads * p->seqlen_k * d);
    if (!operations[p->op].updates) return old;
    float *new = widen(rows_new, p->dtype, heads * p->n_updates * d);
    for (size_t h = 0; h < heads; h++)
        for (size_t u = 0; u < p->n_updates; u++)
            memcpy(old + (h * p->seqlen_k + index[u]) * d,
                   new + (h * p->n_updates + u) * d, d * sizeof *old);
    free(new);
    return old;
}

struct keys keys_new(const struct problem *p, const struct arrays *a,
                            int *v_is_finite)
{
    size_t heads = p->batch * p->heads_kv, n = p->seqlen_k, d = p->head_dim;
    size_t dv = p->head_dim_v;
    struct keys keys = {.stride = (n + LANES - 1) / LANES * LANES};
    keys.kt = xcalloc(heads * d * keys.stride, sizeof(double));
    keys.v = xcalloc(heads * n * dv, sizeof(double));
    keys.v_max = xcalloc(heads * n, sizeof(double));
    float *k = widen_updated(p, a->k, a->k_new, a->index, d);
    float *v = widen_updated(p, a->v, a->v_new, a->index, dv);
    for (size_t h = 0; h < heads; h++)
        for (size_t j = 0; j < n; j++)
            for (size_t t = 0; t < d; t++)
                keys.kt[(h * d + t) * keys.stride + j] = k[(h * n + j) * d + t];
    for (size_t j = 0; j < heads * n; j++)
        for (size_t c = 0; c < dv; c++) {
            double x = keys.v[j * dv + c] = v[j * dv + c];
            if (!isfinite(x)) *v_is_finite = 0;
            else if (fabs(x) > keys.v_max[j]) keys.v_max[j] = fabs(x);
        }
    free(k);
    free(v);
    return keys;
}

void keys_free(struct keys *keys)
{
    free(keys->kt);
    free(keys->v);
    free(keys->v_max);
}

void dot_block(const double *q, size_t d, const double *kt, size_t stride, double *dot,
               double *mass)
{
    double sum[LANES] = {0}, low[LANES] = {0}, size[LANES] = {0};
    for (size_t t = 0; t < d; t++) {
        const double *k_t = kt + t * stride;
        double q_t = q[t];
#pragma omp simd
        for (int l = 0; l < LANES; l++) { /* the product is exact */
            double x = q_t * k_t[l], total = two_sum(sum[l], x, &low[l]);
            sum[l] = total;
            size[l] += fabs(x);
        }
    }
    for (int l = 0; l < LANES; l++) {
        dot[l] = sum[l] + low[l];
        mass[l] = size[l];
        if (!isnan(dot[l])) continue;
        dot[l] = 0; /* an infinity also looks like this: tell them apart */
        for (size_t t = 0; t < d; t++) dot[l] += q[t] * kt[t * stride + l];
    }
}
