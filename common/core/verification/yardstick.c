/* yardstick.c: three loops in float: maximum, sum of exp(x - m), divide. */
#include "verification/yardstick.h"

#include <stdlib.h>

#include "problem/host_memory.h"
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

float *yardstick_mean(const struct problem *p, const struct arrays *a, enum mean_way way)
{
    float *x = widen(a->x, p->dtype, p->rows * p->cols), *y = xcalloc(p->rows, sizeof *y);
    for (size_t i = 0; i < p->rows; i++) {
        for (size_t k = 1; k <= p->cols; k++) {
            float x_k = x[i * p->cols + k - 1], n = (float)k;
            if (way == OWN_TOTAL) y[i] += x_k;
            else if (way == OWN_WEIGHTED) y[i] = y[i] * ((n - 1) / n) + x_k / n;
            else if (way == OWN_PRODUCT) y[i] = y[i] * (n - 1) / n + x_k / n;
            else y[i] += (x_k - y[i]) / n;
        }
        if (way == OWN_TOTAL) y[i] /= (float)p->cols;
    }
    free(x);
    return y;
}

/* Adds the products of q and k_j at t = first, first + step, ... to s_j, a chain of fused
 * multiply-adds. */
static void add_products(const struct problem *p, const struct query *x, int way, size_t first,
                         size_t step, float *s)
{
    size_t d = p->head_dim;
    for (size_t i = first; i < d; i += step) {
        size_t t = way & REVERSE ? d - 1 - i : i;
        const float *k_t = x->kt + t * p->seqlen_k;
        float q_t = way & SCALED_Q ? x->q[t] * p->scale : x->q[t];
#pragma omp simd
        for (size_t j = 0; j < x->n; j++) s[j] = fmaf(q_t, k_t[j], s[j]);
    }
}

/* s_j = scale q.k_j + bias_j, capped before the bias, and the slopes of the cap. */
static void scores(const struct problem *p, const struct query *x, int way, float *s, float *slope)
{
    size_t n = x->n;
    float c = p->softcap;
    for (size_t j = 0; j < n; j++) s[j] = 0;
    if (!(way & LANES)) add_products(p, x, way, 0, 1, s);
    for (size_t first = 0; way & LANES && first < 16; first++) {
        float *lane = slope; /* a place to work in */
        for (size_t j = 0; j < n; j++) lane[j] = 0;
        add_products(p, x, way, first, 16, lane);
        for (size_t j = 0; j < n; j++) s[j] += lane[j];
    }
    for (size_t j = 0; j < n; j++) {
        float b = x->bias ? x->bias[j] : 0;
        if (!(way & SCALED_Q)) s[j] *= p->scale;
        float t = c > 0 ? tanhf(s[j] / c) : 0;
        if (c > 0) s[j] = c * t;
        slope[j] = 1 - t * t;
        s[j] = b == -INFINITY ? -INFINITY : s[j] + b;
    }
}

/* exp(s - m) / l as a weight of that type; in 8 bits it is rounded first: of many keys the quotients
 * would be too small. */
static float rounded_weight(enum dtype dtype, float p, float l)
{
    if (l == 0) return 0;
    if (dtype == E4M3) return dtype_round(E4M3, WEIGHT_SCALE * p) / WEIGHT_SCALE / l;
    return dtype_round(dtype, p / l);
}

/* o = sum_j p_j v_j over the keys that weigh something.  p (n) is exp(s - m) on entry. */
static void values(float *p, float l, const float *v, size_t n, size_t dv,
                   enum dtype dtype, int reverse, float *o)
{
    for (size_t i = 0; i < n; i++) {
        size_t j = reverse ? n - 1 - i : i;
        float weight = rounded_weight(dtype, p[j], l);
        if (weight == 0) continue;
#pragma omp simd
        for (size_t c = 0; c < dv; c++) o[c] = fmaf(weight, v[j * dv + c], o[c]);
    }
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
    size_t dv = p->head_dim_v, n = p->seqlen_k, n_rows = p->batch * p->heads_q * rows_per_head(p);
    struct widened in = widened_new(p, a);
    float *o = xcalloc(n_rows * dv, sizeof *o);
    double work = (double)n_rows * (double)n * (double)(p->head_dim + dv);
#pragma omp parallel if (work > WORTH_THREADS)
    {
        float *s = xcalloc(2 * n, sizeof *s), *slope = s + n;
#pragma omp for schedule(dynamic, 8)
        for (size_t row = 0; row < n_rows; row++) {
            struct query x = query_of(p, a, &in, row);
            scores(p, &x, way, s, slope);
            float l = weights(p->op, s, slope, x.n, x.sink, way & REVERSE, &lse[row]);
            for (size_t j = 0; j < x.n; j++)
                if (kept(p, &x, j) == 0) s[j] = 0;
            values(s, l, x.v, x.n, dv, weight_dtype(p), way & REVERSE, o + row * dv);
            for (size_t c = 0; c < dv; c++) o[row * dv + c] *= dropout_of(p).factor;
        }
        free(s);
    }
    widened_free(&in);
    return o;
}

/* --- The backward pass, straight from its equations. --- */

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

/* Row `row` of o.   s (2 seqlen_k): to work in   gradients: as in yardstick_backward() */
static void row_backward(const struct problem *p, const struct arrays *a,
                         const struct widened *in, size_t row, int way, float *s,
                         float *gradients[])
{
    struct query x = query_of(p, a, in, row);
    size_t d = p->head_dim, dv = p->head_dim_v;
    const float *d_o = in->array[ARRAY_DO] + row * dv;
    float D = dot(d_o, in->array[ARRAY_O] + row * dv, dv, way & REVERSE), lse = a->lse[row];
    float *slope = s + p->seqlen_k;
    if (lse == -INFINITY) return;
    scores(p, &x, way, s, slope);
    for (size_t j = 0; j < x.n; j++) {
        if (s[j] == -INFINITY) continue;
        float weight = expf(s[j] - lse);
        float w = (float)kept(p, &x, j);
        float ds = weight * (w * dot(d_o, x.v + j * dv, dv, way & REVERSE) - D);
        if (p->has_bias_gradient) gradients[ARRAY_DBIAS][x.bias_at + j] += ds;
        ds = dtype_round(p->dtype, ds * slope[j]);
        add(gradients[ARRAY_DQ] + row * d, p->scale * ds, x.k + j * d, d);
        add(gradients[ARRAY_DK] + (x.key + j) * d, p->scale * ds, x.q, d);
        add(gradients[ARRAY_DV] + (x.key + j) * dv, w * dtype_round(p->dtype, weight), d_o, dv);
    }
    if (x.sink > -INFINITY) gradients[ARRAY_DSINKS][x.h] -= expf(x.sink - lse) * D;
}

void yardstick_backward(const struct problem *p, const struct arrays *a, int way,
                        float *gradients[])
{
    struct widened in = widened_new(p, a);
    size_t rows = p->batch * p->heads_q * p->seqlen_q;
    for (int i = 0; i < N_ARRAYS; i++)
        gradients[i] = array_role(p, i) != OUTPUT ? NULL
                       : xcalloc(array_count(p, i), sizeof(float));
    float *s = xcalloc(2 * p->seqlen_k, sizeof *s);
    for (size_t step = 0; step < rows; step++)
        row_backward(p, a, &in, way & REVERSE ? rows - 1 - step : step, way, s, gradients);
    free(s);
    widened_free(&in);
}
