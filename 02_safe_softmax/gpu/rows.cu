/* Stage 2 on a GPU: what its three steps cost, counted in passes (reads or writes of x).
 *
 *     m = max_j x_j,   l = sum_j exp(x_j - m),   y_j = exp(x_j - m) / l
 *
 * A GPU library offers reductions and element-wise kernels, and a softmax put together
 * from them stores what lies between two kernels in main memory.  G is one traversal (a
 * read or a write) of a matrix [rows, cols]; what is stored per row (S) is small beside
 * it.
 *
 *     gpu_four_kernels   max; exp; sum; divide                     4 reads, 2 writes: 6 G
 *     gpu_cub            the same with the reductions of CUB       4 reads, 2 writes: 6 G
 *     gpu_cub_fused_exp  exp computed while CUB reads its input    3 reads, 1 write:  4 G
 *     gpu_three_pass     one kernel, a block per row, three loops  3 reads, 1 write:  4 G
 *                        (short rows are found in a cache the second and third time)
 *
 * A row that is all -inf gives 0 (logsoftmax: -inf), a row with NaN or +inf gives NaN. */
#ifdef __CUDACC__ /* before our own names */
#include <cub/device/device_segmented_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#endif

#include "stage.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

#define THREADS 512
#define CUB_BYTES ((size_t)1 << 20) /* what CUB gets; it says if it needs more */

/* --- Four kernels, one block per row in each.  m, l [rows]; t [rows, cols]. --- */

/* m_i = max_j x_ij.  Reads 1 G. */
static __global__ void max_kernel(const float *x, float *m, size_t rows, size_t cols)
{
    struct block_sums &shared = dynamic_shared<struct block_sums>();
    const size_t row = block_number();
    if (row >= rows) return;
    float m_i = -INFINITY;
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        m_i = fmaxf(m_i, x[row * cols + j]);
    m_i = block_max<THREADS>(m_i, shared.warp);
    if (threadIdx.x == 0) m[row] = m_i;
}

/* t_ij = exp(x_ij - m_i).  Reads and writes 1 G. */
static __global__ void exp_kernel(const float *x, const float *m, float *t, size_t rows,
                                  size_t cols)
{
    const size_t row = block_number();
    if (row >= rows) return;
    const float shift = shift_of(m[row]);
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        t[row * cols + j] = exp_minus(x[row * cols + j], shift);
}

/* l_i = sum_j t_ij.  Reads 1 G. */
static __global__ void sum_kernel(const float *t, float *l, size_t rows, size_t cols)
{
    struct block_sums &shared = dynamic_shared<struct block_sums>();
    const size_t row = block_number();
    if (row >= rows) return;
    float l_i = 0;
    for (size_t j = threadIdx.x; j < cols; j += THREADS) l_i += t[row * cols + j];
    l_i = block_sum<THREADS>(l_i, shared.warp);
    if (threadIdx.x == 0) l[row] = l_i;
}

/* y_ij = t_ij / l_i, in place.  Reads and writes 1 G. */
static __global__ void divide_kernel(float *y, const float *l, size_t rows, size_t cols)
{
    const size_t row = block_number();
    if (row >= rows) return;
    const float scale = l[row] == 0 ? 0.0f : 1.0f / l[row];
    for (size_t j = threadIdx.x; j < cols; j += THREADS) y[row * cols + j] *= scale;
}

/* The row statistics lie in the workspace, t in y. */
static void four_kernels(const struct problem *p, const struct arrays *a)
{
    const float *x = (const float *)a->x;
    float *y = (float *)a->y, *m = (float *)a->workspace, *l = m + p->rows;
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, sizeof(struct block_sums),
                                          a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, max_kernel, x, m, p->rows, p->cols));
    CUDA_CHECK(cudaLaunchKernelEx(&config, exp_kernel, x, (const float *)m, y, p->rows,
                                  p->cols));
    CUDA_CHECK(cudaLaunchKernelEx(&config, sum_kernel, (const float *)y, l, p->rows,
                                  p->cols));
    CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel, y, (const float *)l, p->rows,
                                  p->cols));
    CUDA_CHECK(cudaGetLastError());
}

/* --- The same on CUB. --- */

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

/* CUB's reductions where four_kernels has its own. */
static void cub_softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = (const float *)a->x;
    float *y = (float *)a->y, *m = (float *)a->workspace, *l = m + p->rows;
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, 0, a->stream);
    size_t bytes = CUB_BYTES;
    cub_max(l + p->rows, &bytes, p, x, m, config.stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, exp_kernel, x, (const float *)m, y, p->rows,
                                  p->cols));
    cub_sum(l + p->rows, &bytes, p, (const float *)y, l, config.stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel, y, (const float *)l, p->rows,
                                  p->cols));
    CUDA_CHECK(cudaGetLastError());
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
    CUDA_CHECK(cudaLaunchKernelEx(&config, exp_divide_kernel, x, y, (const float *)m,
                                  (const float *)l, p->rows, p->cols));
    CUDA_CHECK(cudaGetLastError());
}
#endif

/* --- One kernel. --- */

/* Three passes over the row of the block.  A row that fits the caches comes from main
 * memory once. */
template <class T>
static __global__ __launch_bounds__(THREADS)
void three_pass_kernel(const T *x, T *y, size_t rows, size_t cols, int log)
{
    struct two_sums { struct block_sums max, sum; };
    struct two_sums &shared = dynamic_shared<struct two_sums>();
    const size_t row = block_number();
    if (row >= rows) return;
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;

    /* pass 1: maximum */
    float m = -INFINITY;
    for (size_t j = threadIdx.x; j < cols; j += THREADS) m = fmaxf(m, (float)x_i[j]);
    const float shift = shift_of(block_max<THREADS>(m, shared.max.warp));

    /* pass 2: denominator */
    float l = 0;
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        l += exp_minus((float)x_i[j], shift);
    l = block_sum<THREADS>(l, shared.sum.warp);

    /* pass 3: divide */
    const float scale = l == 0 ? 0.0f : 1.0f / l, log_l = l == 0 ? 0.0f : logf(l);
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        y_i[j] = T(log ? (float)x_i[j] - shift - log_l
                       : exp_minus((float)x_i[j], shift) * scale);
}

static void three_pass(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, 2 * sizeof(struct block_sums),
                                          a->stream);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, three_pass_kernel<T>, x, y, p->rows,
                                      p->cols, p->op == OP_LOGSOFTMAX));
    });
    CUDA_CHECK(cudaGetLastError());
}

static size_t row_statistics(const struct problem *p)
{
    return 2 * p->rows * sizeof(float);
}

/* Behind them what CUB wants for itself. */
static size_t cub_workspace(const struct problem *p)
{
    return row_statistics(p) + CUB_BYTES;
}

static struct cost six_passes(const struct problem *p)
{
    return traffic(p, 6, 1);
}

static struct cost four_passes(const struct problem *p)
{
    return traffic(p, 4, 2);
}

GPU_VARIANT(gpu_four_kernels) = {
    .name = "gpu_four_kernels",
    .idea = "kernels max, exp, sum, divide; what lies between them is stored: 6 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .workspace = row_statistics,
    .cost = six_passes,
    .does = {{OP_SOFTMAX, four_kernels}},
    .on_gpu = GPU_TWIN(gpu_four_kernels),
};

GPU_VARIANT(gpu_cub) = {
    .name = "gpu_cub",
    .idea = "the same with CUB's segmented reductions: 6 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .workspace = cub_workspace,
    .cost = six_passes,
    .does = {{OP_SOFTMAX, GPU_ONLY(cub_softmax)}},
    .on_gpu = GPU_TWIN(gpu_cub),
};

GPU_VARIANT(gpu_cub_fused_exp) = {
    .name = "gpu_cub_fused_exp",
    .idea = "exp computed by the iterator from which CUB reads, never stored: 4 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = TYPE(F32),
    .max_score = INFINITY,
    .masked_rows = 1,
    .workspace = cub_workspace,
    .cost = four_passes,
    .does = {{OP_SOFTMAX, GPU_ONLY(cub_fused_exp)}},
    .on_gpu = GPU_TWIN(gpu_cub_fused_exp),
};

GPU_VARIANT(gpu_three_pass) = {
    .name = "gpu_three_pass",
    .idea = "one kernel, a block per row, three loops: 4 G, less where a cache helps",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .cost = four_passes,
    .does = {{OP_SOFTMAX, three_pass}, {OP_LOGSOFTMAX, three_pass}},
    .on_gpu = GPU_TWIN(gpu_three_pass),
};
