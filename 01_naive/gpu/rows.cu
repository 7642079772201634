/* Stage 1 on a GPU: softmax straight from the definition, two ways of giving rows to
 * threads.
 *
 *     y_j = exp(x_j) / sum_t exp(x_t)
 *
 * gpu_thread_per_row is the loop of stage.c, one row for each thread.  Two things make it
 * slow.  The 32 threads of a warp load together, and their addresses lie a whole row apart:
 * 32 loads from 32 places, each of which brings 32 bytes for the 4 that are wanted.  And
 * 256 rows make a block, so 4096 rows are 16 blocks: most multiprocessors have no work.
 * gpu_block_per_row lets neighbouring threads take neighbouring elements, one load of 128
 * bytes, and makes a block of every row.  notes/gpu_softmax.md measures each cause alone.
 *   x, y [rows, cols]; scores from -60 to 60.  Both read 2 and write 1. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

#define THREADS 256

/* One row per thread. */
template <class T>
static __global__ void thread_per_row_kernel(const T *x, T *y, size_t rows, size_t cols)
{
    const size_t row = block_number() * THREADS + threadIdx.x;
    if (row >= rows) return;
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;

    /* loop 1: denominator */
    float l = 0;
    for (size_t j = 0; j < cols; j++) l += expf((float)x_i[j]);

    /* loop 2: divide */
    for (size_t j = 0; j < cols; j++) y_i[j] = T(expf((float)x_i[j]) / l);
}

/* One row per block: thread i takes elements i, i + THREADS, ...; the sums of the threads
 * meet in shared memory. */
template <class T>
static __global__ void block_per_row_kernel(const T *x, T *y, size_t rows, size_t cols)
{
    struct block_sums &shared = dynamic_shared<struct block_sums>();
    const size_t row = block_number();
    if (row >= rows) return;
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;

    /* loop 1: denominator */
    float l = 0;
    for (size_t j = threadIdx.x; j < cols; j += THREADS) l += expf((float)x_i[j]);
    l = block_sum(l, shared.warp);

    /* loop 2: divide */
    for (size_t j = threadIdx.x; j < cols; j += THREADS)
        y_i[j] = T(expf((float)x_i[j]) / l);
}

static void thread_per_row(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = launch_of((p->rows + THREADS - 1) / THREADS, THREADS, 0,
                                          a->stream);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, thread_per_row_kernel<T>, x, y, p->rows,
                                      p->cols));
    });
}

static void block_per_row(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, sizeof(struct block_sums),
                                          a->stream);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, block_per_row_kernel<T>, x, y, p->rows,
                                      p->cols));
    });
}

#define NAIVE_ON_GPU                                                                       \
    .group = IN_GPU, .device = GPU_DEVICE, .least_arch = 75, .types = ALL_TYPES,           \
    .max_score = 60, .cost = traffic<3, 2>

GPU_VARIANT(gpu_thread_per_row, "one thread per row",
    NAIVE_ON_GPU,
    .does = {{OP_SOFTMAX, thread_per_row}});

GPU_VARIANT(gpu_block_per_row, "one block per row",
    NAIVE_ON_GPU,
    .does = {{OP_SOFTMAX, block_per_row}});
