/* step_kernels.h: the steps of a safe softmax as kernels of their own, one block per row in
 * each.  m, l [rows]; t [rows, cols].  G is one read or one write of the matrix. */
#pragma once

#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

#define THREADS 512

/* t_ij = exp(x_ij - m_i).  Reads and writes 1 G. */
[[maybe_unused]] static __global__
void exp_kernel(const float *x, const float *m, float *t, size_t rows, size_t cols)
{
    const size_t row = block_number();
    if (row >= rows) return;
    const float shift = shift_of(m[row]);
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        t[row * cols + j] = exp_minus(x[row * cols + j], shift);
}

/* y_ij = t_ij / l_i, in place.  Reads and writes 1 G. */
[[maybe_unused]] static __global__
void divide_kernel(float *y, const float *l, size_t rows, size_t cols)
{
    const size_t row = block_number();
    if (row >= rows) return;
    const float scale = l[row] == 0 ? 0.0f : 1.0f / l[row];
    for (size_t j = threadIdx.x; j < cols; j += THREADS) y[row * cols + j] *= scale;
}

/* m and l of each row. */
static inline size_t row_statistics(const struct problem *p)
{
    return 2 * p->rows * sizeof(float);
}
