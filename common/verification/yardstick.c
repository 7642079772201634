/* yardstick.c: three loops in float: maximum, sum of exp(x - m), divide. */
#include "verification/yardstick.h"

#include <stdlib.h>

#include "problem/host_memory.h"
#include "problem/layout.h"
#include "verification/reference.h"

/* In place: x becomes exp(x - m) and the sum is returned, that of the sink with it
 * (-INFINITY: none).  0 when all is masked. */
static float exponentials(float *x, size_t n, float sink, int reverse, float *m)
{
    *m = sink;
    for (size_t j = 0; j < n; j++)
        if (x[j] > *m) *m = x[j];
    for (size_t j = 0; j < n; j++)
        x[j] = *m == -INFINITY && !isnan(x[j]) ? 0 : expf(x[j] - *m);
    float l = sink == -INFINITY ? 0 : expf(sink - *m);
    for (size_t j = 0; j < n; j++) l += x[reverse ? n - 1 - j : j];
    return l;
}

float *yardstick_rows(const struct problem *p, const struct arrays *a, int way)
{
    size_t n = p->cols;
    float *x = widen(a->x, p->dtype, p->rows * n), *y = xcalloc(p->rows * n, sizeof *y);
#pragma omp parallel for schedule(static) if ((double)(p->rows * n) * 50 > WORTH_THREADS)
    for (size_t i = 0; i < p->rows; i++) {
        float *x_i = x + i * n, *y_i = y + i * n, m;
        for (size_t j = 0; j < n; j++) y_i[j] = x_i[j];
        float l = exponentials(y_i, n, -INFINITY, way & REVERSE, &m), ln_l = logf(l);
        for (size_t j = 0; j < n; j++) {
            float value = p->op == OP_LOGSOFTMAX ? x_i[j] - m - ln_l
                          : l == 0               ? 0
                                                 : y_i[j] / l;
            y_i[j] = dtype_round(p->dtype, value);
        }
    }
    free(x);
    return y;
}

float *yardstick_mean(const struct problem *p, const struct arrays *a, enum mean_way way)
{
    float *x = widen(a->x, p->dtype, p->rows * p->cols), *y = xcalloc(p->rows, sizeof *y);
    for (size_t i = 0; i < p->rows; i++) {
        for (size_t k = 1; k <= p->cols; k++) {
            float x_k = x[i * p->cols + k - 1], n = (float)k;
            if (way == OWN_TOTAL) y[i] += x_k;
            else if (way == OWN_WEIGHTED) y[i] = y[i] * ((n - 1) / n) + x_k / n;
            else y[i] += (x_k - y[i]) / n;
        }
        if (way == OWN_TOTAL) y[i] /= (float)p->cols;
    }
    free(x);
    return y;
}

/* Adds the products of q and k_j at t = first, first + step, ... to s_j, a chain of fused
 * multiply-adds. */
static void add_products(const float *q, const float *kt, size_t d, size_t stride,
                         float scale, size_t n, int way, size_t first, size_t step,
                         float *s)
{
    for (size_t i = first; i < d; i += step) {
        size_t t = way & REVERSE ? d - 1 - i : i;
        const float *k_t = kt + t * stride;
        float q_t = way & SCALED_Q ? q[t] * scale : q[t];
#pragma omp simd
        for (size_t j = 0; j < n; j++) s[j] = fmaf(q_t, k_t[j], s[j]);
    }
}

/* s_j = scale q.k_j + bias_j, capped before the bias.
 *   q (d)   kt (d, stride)   bias (n) or NULL   s (n)   lane (n) to work in */
static void scores(const struct problem *p, const float *q, const float *kt, size_t stride,
                   const float *bias, size_t n, int way, float *s, float *lane)
{
    size_t d = p->head_dim;
    float scale = p->scale, c = p->softcap;
    for (size_t j = 0; j < n; j++) s[j] = 0;
    if (!(way & LANES)) add_products(q, kt, d, stride, scale, n, way, 0, 1, s);
    for (size_t first = 0; way & LANES && first < 16; first++) {
        for (size_t j = 0; j < n; j++) lane[j] = 0;
        add_products(q, kt, d, stride, scale, n, way, first, 16, lane);
        for (size_t j = 0; j < n; j++) s[j] += lane[j];
    }
    for (size_t j = 0; j < n; j++) {
        float b = bias ? bias[j] : 0;
        if (!(way & SCALED_Q)) s[j] *= scale;
        if (c > 0) s[j] = c * tanhf(s[j] / c);
        s[j] = b == -INFINITY ? -INFINITY : s[j] + b;
    }
}

/* o = sum_j p_j v_j over the keys that weigh something.  p (n) is exp(s - m) on entry. */
static void values(float *p, float l, const float *v, size_t n, size_t dv,
                   enum dtype dtype, int reverse, float *o)
{
    for (size_t i = 0; i < n; i++) {
        size_t j = reverse ? n - 1 - i : i;
        float weight = l == 0 ? 0 : dtype_round(dtype, p[j] / l);
        if (weight == 0) continue;
#pragma omp simd
        for (size_t c = 0; c < dv; c++) o[c] = fmaf(weight, v[j * dv + c], o[c]);
    }
    for (size_t c = 0; c < dv; c++) o[c] = dtype_round(dtype, o[c]);
}

/* The weights of one row from its scores x (n), in place, and their sum: exp(x - m) and l, or
 * x - lse and 1.   before (n): to work in */
static float weights(enum op op, float *x, float *before, size_t n, float sink, int reverse,
                     float *lse)
{
    float m;
    for (size_t j = 0; j < n; j++) before[j] = x[j];
    float l = exponentials(x, n, sink, reverse, &m), ln_l = logf(l);
    *lse = l == 0 ? -INFINITY : m + ln_l;
    for (size_t j = 0; op == OP_LOGSOFTMAX_ATTENTION && j < n; j++)
        x[j] = before[j] == -INFINITY ? 0 : before[j] - m - ln_l;
    return op == OP_LOGSOFTMAX_ATTENTION ? 1 : l;
}

float *yardstick_attention(const struct problem *p, const struct arrays *a, int way, float *lse)
{
    size_t rows = rows_per_head(p), d = p->head_dim, dv = p->head_dim_v, n = p->seqlen_k;
    size_t n_rows = p->batch * p->heads_q * rows, heads = p->batch * p->heads_kv;
    float *q = widen(a->q, p->dtype, p->batch * p->heads_q * p->seqlen_q * d);
    float *k = widen_updated(p, a->k, a->k_new, a->index, d);
    float *v = widen_updated(p, a->v, a->v_new, a->index, dv);
    float *kt = xcalloc(heads * d * n, sizeof *kt), *o = xcalloc(n_rows * dv, sizeof *o);
    for (size_t h = 0; h < heads; h++)
        for (size_t j = 0; j < n; j++)
            for (size_t t = 0; t < d; t++)
                kt[(h * d + t) * n + j] = k[(h * n + j) * d + t];
    double work = (double)n_rows * (double)n * (double)(d + dv);
#pragma omp parallel if (work > WORTH_THREADS)
    {
        float *s = xcalloc(n, sizeof *s), *lane = xcalloc(n, sizeof *lane);
#pragma omp for schedule(dynamic, 8)
        for (size_t row = 0; row < n_rows; row++) {
            size_t i = row % rows, head = row / rows;
            size_t b = head / p->heads_q, h = head % p->heads_q;
            size_t kv = b * p->heads_kv + h / (p->heads_q / p->heads_kv);
            struct key_range keys = row_keys(p, i);
            size_t first = keys.first, seen = keys.end - first, query = row_query(p, i);
            const float *bias = p->has_bias ? a->bias + bias_at(p, b, h, query) + first : NULL;
            float sink = p->has_sinks ? a->sinks[h] : -INFINITY;
            scores(p, q + (row / rows * p->seqlen_q + query) * d, kt + kv * d * n + first, n,
                   bias, seen, way, s, lane);
            float l = weights(p->op, s, lane, seen, sink, way & REVERSE, &lse[row]);
            values(s, l, v + (kv * n + first) * dv, seen, dv, p->dtype, way & REVERSE,
                   o + row * dv);
        }
        free(lane);
        free(s);
    }
    free(q);
    free(k);
    free(v);
    free(kt);
    return o;
}
