/* Stage 2 on a GPU with the reductions of NVIDIA's library CUB.
 *
 *     gpu_cub            max; exp; sum; divide                     4 reads, 2 writes: 6 G
 *     gpu_cub_fused_exp  exp computed while CUB reads its input    3 reads, 1 write:  4 G
 *
 * A row that is all -inf gives 0, a row with NaN or +inf gives NaN. */
#ifdef __CUDACC__ /* before our own names */
#include <cub/device/device_segmented_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#endif

#include "harness.h"
#include "step_kernels.h"

#define CUB_BYTES ((size_t)1 << 20) /* what CUB gets; it says if it needs more */

#ifdef __CUDACC__

/* Where row i starts, and, as an iterator over i + 1, where it ends. */
struct row_start {
    size_t cols;
    __host__ __device__ size_t operator()(size_t i) const { return i * cols; }
};

static auto row_starts(size_t first, size_t cols)
{
    return thrust::make_transform_iterator(thrust::counting_iterator<size_t>(first),
                                           row_start{cols});
}

/* m [rows] = max of each row of x; l [rows] = sum of each row of what `in` reads.  With
 * temp NULL only *bytes is set: what CUB wants as a workspace. */
static void cub_max(void *temp, size_t *bytes, const struct problem *p, const float *x,
                    float *m, cudaStream_t stream)
{
    CUDA_CHECK(cub::DeviceSegmentedReduce::Max(temp, *bytes, x, m, (long)p->rows,
                                               row_starts(0, p->cols),
                                               row_starts(1, p->cols), stream));
}

template <class I>
static void cub_sum(void *temp, size_t *bytes, const struct problem *p, I in, float *l,
                    cudaStream_t stream)
{
    CUDA_CHECK(cub::DeviceSegmentedReduce::Sum(temp, *bytes, in, l, (long)p->rows,
                                               row_starts(0, p->cols),
                                               row_starts(1, p->cols), stream));
}

/* As four_kernels.cu, with CUB's reductions. */
static void cub_softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = (const float *)a->x;
    float *y = (float *)a->y, *m = (float *)a->workspace, *l = m + p->rows;
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, 0, a->stream);
    size_t bytes = CUB_BYTES;
    cub_max(l + p->rows, &bytes, p, x, m, config.stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, exp_kernel, x, m, y, p->rows, p->cols));
    cub_sum(l + p->rows, &bytes, p, (const float *)y, l, config.stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel, y, l, p->rows, p->cols));
}

/* Element i of the matrix -> exp(x_i - m_row).  The row is i / cols, by a multiplication
 * with inverse = floor(2^64 / cols) + 1, which is right while i * cols < 2^64. */
struct shifted_exp {
    const float *x, *m;
    unsigned long long inverse;
    __device__ float operator()(size_t i) const
    {
        const size_t row = inverse ? __umul64hi(i, inverse) : i;
        return exp_minus(x[i], shift_of(m[row]));
    }
};

/* y_ij = exp(x_ij - m_i) / l_i.  Reads and writes 1 G. */
static __global__ void exp_divide_kernel(const float *x, float *y, const float *m,
                                         const float *l, size_t rows, size_t cols)
{
    const size_t row = block_number();
    if (row >= rows) return;
    const float shift = shift_of(m[row]), scale = l[row] == 0 ? 0.0f : 1.0f / l[row];
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        y[row * cols + j] = exp_minus(x[row * cols + j], shift) * scale;
}

/* t is never stored: CUB reads x through an iterator that computes it. */
static void cub_fused_exp(const struct problem *p, const struct arrays *a)
{
    const float *x = (const float *)a->x;
    float *y = (float *)a->y, *m = (float *)a->workspace, *l = m + p->rows;
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, 0, a->stream);
    size_t bytes = CUB_BYTES;
    cub_max(l + p->rows, &bytes, p, x, m, config.stream);
    const struct shifted_exp f = {x, m, p->cols > 1 ? ~0ull / p->cols + 1 : 0};
    cub_sum(l + p->rows, &bytes, p,
            thrust::make_transform_iterator(thrust::counting_iterator<size_t>(0), f), l,
            config.stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, exp_divide_kernel, x, y, m, l, p->rows, p->cols));
}
#endif

/* The statistics, and behind them what CUB wants for itself. */
static size_t cub_workspace(const struct problem *p)
{
    return row_statistics(p) + CUB_BYTES;
}

GPU_VARIANT(gpu_cub, "CUB's reductions",
    SAFE_ON_GPU(75, TYPE(F32)), .workspace = cub_workspace, .cost = traffic<6, 1>,
    .does = {{OP_SOFTMAX, GPU_ONLY(cub_softmax)}});

GPU_VARIANT(gpu_cub_fused_exp, "CUB; exp fused",
    SAFE_ON_GPU(75, TYPE(F32)), .workspace = cub_workspace, .cost = traffic<4, 2>,
    .does = {{OP_SOFTMAX, GPU_ONLY(cub_fused_exp)}});
