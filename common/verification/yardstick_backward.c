/* yardstick_backward.c: the backward pass in float, straight from its equations. */
#include <math.h>
#include <stdlib.h>

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

/* Row `row` of o and its query x.   gradients: as in yardstick_backward() */
static void row_backward(const struct problem *p, const struct arrays *a,
                         const struct widened *in, size_t row, int way, float *gradients[])
{
    struct query x = query_of(p, a, in, row);
    size_t d = p->head_dim, dv = p->head_dim_v;
    const float *d_o = in->array[ARRAY_DO] + row * dv;
    float D = dot(d_o, in->array[ARRAY_O] + row * dv, dv, way & REVERSE), c = p->softcap;
    float lse = a->lse[row];
    if (lse == -INFINITY) return;
    for (size_t j = 0; j < x.n; j++) {
        float b = x.bias ? x.bias[j] : 0;
        float s = p->scale * dot(x.q, x.k + j * d, d, way & REVERSE), slope = 1;
        if (c > 0) {
            float t = tanhf(s / c);
            s = c * t, slope = 1 - t * t;
        }
        if (b == -INFINITY || s + b == -INFINITY) continue;
        float weight = expf(s + b - lse);
        float ds = weight * (dot(d_o, x.v + j * dv, dv, way & REVERSE) - D) * slope;
        ds = dtype_round(p->dtype, ds);
        add(gradients[ARRAY_DQ] + row * d, p->scale * ds, x.k + j * d, d);
        add(gradients[ARRAY_DK] + (x.key + j) * d, p->scale * ds, x.q, d);
        add(gradients[ARRAY_DV] + (x.key + j) * dv, dtype_round(p->dtype, weight), d_o, dv);
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
    for (size_t step = 0; step < rows; step++)
        row_backward(p, a, &in, way & REVERSE ? rows - 1 - step : step, way, gradients);
    for (int i = 0; i < N_ARRAYS; i++)
        for (size_t e = 0; gradients[i] && e < array_count(p, i); e++)
            gradients[i][e] = dtype_round(array_dtype(p, i), gradients[i][e]);
    widened_free(&in);
}
