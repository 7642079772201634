/* second_pass.h: loop 2 of stage 3 on a GPU: from the state of each row to its results. */
#pragma once

#include "state.h"

#define THREADS 512

/* y_ij = exp(x_ij - m_i) / l_i, or x_ij - m_i - log l_i.  One block per row.  state [rows].
 * Reads and writes 1 G. */
template <class T>
static __global__ __launch_bounds__(THREADS)
void divide_kernel(const T *x, T *y, const struct state *state, size_t rows, size_t cols,
                   int log)
{
    const size_t row = block_number();
    if (row >= rows) return;
    const struct normaliser f = normaliser_of(state[row], log);
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        y[row * cols + j] = T(normalise(f, (float)x[row * cols + j]));
}

/* Launches it with the states in the workspace. */
template <class T>
static void second_pass(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, 0, a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel<T>, x, y,
                                  (const struct state *)a->workspace, p->rows, p->cols,
                                  (int)(p->op == OP_LOGSOFTMAX)));
}
