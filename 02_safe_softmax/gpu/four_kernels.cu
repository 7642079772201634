/* Stage 2 on a GPU as a library of array operations computes it: kernels max, exp, sum and
 * divide.  What one kernel computes for the next is stored: 4 reads and 2 writes, 6 G.
 *
 *     m = max_j x_j,   t_j = exp(x_j - m),   l = sum_j t_j,   y_j = t_j / l
 *
 * A row that is all -inf gives 0, a row with NaN or +inf gives NaN. */
#include "harness.h"
#include "step_kernels.h"

/* m_i = max_j x_ij.  Reads 1 G. */
static __global__ void max_kernel(const float *x, float *m, size_t rows, size_t cols)
{
    struct block_sums &shared = dynamic_shared<struct block_sums>();
    const size_t row = block_number();
    if (row >= rows) return;
    float m_i = -INFINITY;
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        m_i = fmaxf(m_i, x[row * cols + j]);
    m_i = block_max(m_i, shared.warp);
    if (threadIdx.x == 0) m[row] = m_i;
}

/* l_i = sum_j t_ij.  Reads 1 G. */
static __global__ void sum_kernel(const float *t, float *l, size_t rows, size_t cols)
{
    struct block_sums &shared = dynamic_shared<struct block_sums>();
    const size_t row = block_number();
    if (row >= rows) return;
    float l_i = 0;
    for (size_t j = threadIdx.x; j < cols; j += THREADS) l_i += t[row * cols + j];
    l_i = block_sum(l_i, shared.warp);
    if (threadIdx.x == 0) l[row] = l_i;
}

/* The row statistics lie in the workspace, t in y. */
static void four_kernels(const struct problem *p, const struct arrays *a)
{
    const float *x = (const float *)a->x;
    float *y = (float *)a->y, *m = (float *)a->workspace, *l = m + p->rows;
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, sizeof(struct block_sums),
                                          a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, max_kernel, x, m, p->rows, p->cols));
    CUDA_CHECK(cudaLaunchKernelEx(&config, exp_kernel, x, m, y, p->rows, p->cols));
    CUDA_CHECK(cudaLaunchKernelEx(&config, sum_kernel, y, l, p->rows, p->cols));
    CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel, y, l, p->rows, p->cols));
}

GPU_VARIANT(gpu_four_kernels, "four kernels",
    SAFE_ON_GPU(75, TYPE(F32)), .workspace = row_statistics, .cost = traffic<6, 1>,
    .does = {{OP_SOFTMAX, four_kernels}});
