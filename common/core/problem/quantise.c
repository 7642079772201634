/* quantise.c: arrays in 8 bits: a number is its code times the scale of its batch and key head. */
#include "problem/quantise.h"

#include "problem/dtype.h"

size_t scale_at(const struct problem *p, const struct arrays *a, enum array i, size_t row)
{
    struct extents e = array_extents(p, i);
    size_t head = row / e.size[2], b = head / e.size[1], h = head % e.size[1];
    const int32_t *sums = i == ARRAY_Q ? a->cu_seqlens_q : a->cu_seqlens_k;
    while (p->packed && (size_t)sums[b + 1] <= row % e.size[2]) b++;
    return b * p->heads_kv + h * p->heads_kv / e.size[1];
}

/* Rows of array i, and numbers of a row. */
static size_t rows_of(const struct problem *p, enum array i, size_t *width)
{
    *width = array_extents(p, i).size[3];
    return *width ? array_dense_count(p, i) / *width : 0;
}

void amax_scales(const struct problem *p, const struct arrays *a, enum array i, const float *x,
                 float *scales)
{
    size_t width, n = rows_of(p, i, &width), n_scales = p->batch * p->heads_kv;
    for (size_t k = 0; k < n_scales; k++) scales[k] = 0;
    for (size_t row = 0; row < n; row++) {
        float *most = &scales[scale_at(p, a, i, row)];
        for (size_t c = 0; c < width; c++) {
            float size = fabsf(x[row * width + c]);
            if (size > *most && size < INFINITY) *most = size;
        }
    }
    for (size_t k = 0; k < n_scales; k++) {
        scales[k] /= dtypes[array_dtype(p, i)].largest;
        if (scales[k] == 0) scales[k] = 1;
    }
}

void quantise(const struct problem *p, const struct arrays *a, enum array i, const float *x,
              const float *scales, void *codes)
{
    const struct dtype_entry *type = &dtypes[array_dtype(p, i)];
    size_t width, n = rows_of(p, i, &width);
    for (size_t row = 0; row < n; row++) {
        float scale = scales[scale_at(p, a, i, row)];
        for (size_t c = 0; c < width; c++) type->store(codes, row * width + c, x[row * width + c] / scale);
    }
}

float *dequantised(const struct problem *p, const struct arrays *a, enum array i)
{
    enum dtype type = array_dtype(p, i);
    float *x = widen(array_of(a, i), type, array_count(p, i));
    const float *scales = dtype_size(type) == 1 ? array_of(a, scales_of(i)) : NULL;
    size_t width, n = scales ? rows_of(p, i, &width) : 0;
    for (size_t row = 0; row < n; row++) {
        float scale = scales[scale_at(p, a, i, row)];
        for (size_t c = 0; c < width; c++) x[row * width + c] *= scale;
    }
    return x;
}
