/* Stage 2 on a GPU: three loops over a row in one kernel, a block per row.
 *
 *     m = max_j x_j,   l = sum_j exp(x_j - m),   y_j = exp(x_j - m) / l
 *
 * 3 reads and 1 write: 4 G, where G is one read or one write of the matrix [rows, cols].  A
 * row that fits the caches comes from main memory once.
 *
 * A row that is all -inf gives 0 (logsoftmax: -inf), a row with NaN or +inf gives NaN. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

#define THREADS 512

/* Three loops over the row of the block. */
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

    /* loop 1: maximum */
    float m = -INFINITY;
    for (size_t j = threadIdx.x; j < cols; j += THREADS) m = fmaxf(m, (float)x_i[j]);
    const float shift = shift_of(block_max(m, shared.max.warp));

    /* loop 2: denominator */
    float l = 0;
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        l += exp_minus((float)x_i[j], shift);
    l = block_sum(l, shared.sum.warp);

    /* loop 3: divide */
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
}

GPU_VARIANT(gpu_three_pass, "one kernel",
    SAFE_ON_GPU(75, ALL_TYPES), .cost = traffic<4, 2>,
    .does = {{OP_SOFTMAX, three_pass}, {OP_LOGSOFTMAX, three_pass}});
