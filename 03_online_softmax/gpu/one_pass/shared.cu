/* shared.cu: softmax with one read and one write: the row in the shared memory of a block.
 *
 *     y_j = exp(x_j - m) / l,   m = max_j x_j,   l = sum_j exp(x_j - m)
 *
 * 227 KB on Hopper: 58 000 floats.  There the copy engine brings the row: one thread asks for
 * all of it, and no register waits; older GPUs load with all threads.  Several blocks on a multiprocessor fill each other's
 * waits. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/device.h"
#include "gpu/gpu_rows.h"
#include "gpu/ptx.h"
#include "fast_exp.h"
#include "row_parts.h"

#define MOST_THREADS 512

template <class T> struct shared_row {
    struct reduction reduction;
    uint64_t arrived;
    alignas(128) struct packed<T, FULL<T>> row[1]; /* as many as the launch gave bytes for */
};

#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define COPY_ENGINE 1
#else
#define COPY_ENGINE 0
#endif

/* The threads of a block load bytes (whole packs) to shared memory; the load completes on `arrived`. */
static __device__ inline void begin_load(void *to, const void *from, int bytes, uint64_t *arrived)
{
#if COPY_ENGINE
    if (threadIdx.x > 0) return;
    mbarrier_init(arrived, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(arrived, bytes);
    if (bytes > 0) tma_load_bytes(to, from, bytes, arrived);
#else
    for (int s = threadIdx.x; s < bytes / 16; s += blockDim.x)
        ((uint4 *)to)[s] = ((const uint4 *)from)[s];
#endif
}

/* Waits until it has arrived, and the threads have come. */
static __device__ inline void end_load(uint64_t *arrived)
{
    __syncthreads();
#if COPY_ENGINE
    mbarrier_wait(arrived, 0);
#endif
}

/* One block a row; thread i takes packs i, i + blockDim.x, ... */
template <class T>
static __global__ __launch_bounds__(MOST_THREADS)
void shared_kernel(const T *x, T *y, size_t rows, int cols, int log)
{
    constexpr int W = FULL<T>;
    struct shared_row<T> &shared = dynamic_shared<struct shared_row<T>>();
    const size_t row = block_number();
    const int i = threadIdx.x, step = blockDim.x;
    if (row >= rows) return;
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;
    const struct parts r = parts_of<W>(row, cols);
    const int edge = edge_of(r, cols, i);
    T last = T(-INFINITY);
    if (edge >= 0) last = x_i[edge];
    begin_load(shared.row, x_i + r.head, r.packs * 16, &shared.arrived);
    end_load(&shared.arrived);

    const struct packed<T, W> *kept = shared.row;
    float m = (float)last; /* maximum */
    for (int s = i; s < r.packs; s += step) m = fmaxf(m, pack_max(kept[s]));
    struct state all = {block_max(m, shared.reduction.max), 0.0f};

    const float shift = shift_of(all.m); /* sum */
    const struct powers p = powers_of(shift);
    float sum[4] = {power(p, (float)last), 0.0f, 0.0f, 0.0f};
    for (int s = i; s < r.packs; s += step) {
        const struct packed<T, W> x_s = kept[s];
        for (int e = 0; e < W; e++) sum[e % 4] += power(p, (float)x_s.e[e]);
    }
    all.l = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]), shared.reduction.sum);
    all.l *= unscaled(p, shift);

    const struct division d = division_of(all, log);
    auto *out = (struct packed<T, W> *)(y_i + r.head);
    for (int s = i; s < r.packs; s += step) divide(out + s, kept[s], d);
    if (edge >= 0) y_i[edge] = T(divided(d, (float)last));
}

/* Bytes of shared memory: whole lines, as the copy engine likes them. */
static size_t shared_bytes(const struct problem *p)
{
    return (sizeof(struct shared_row<float>) + row_bytes(p) + 127) / 128 * 128;
}

static const char *shared_refuses(const struct problem *p)
{
    return shared_bytes(p) > shared_memory_limit() ? "rows larger than the shared memory of a block" : NULL;
}

static void shared(const struct problem *p, const struct arrays *a)
{
    const size_t bytes = row_bytes(p); /* the limits were measured on an H200 */
    const int threads = bytes < 25 << 10 ? 256 : bytes < 32 << 10 ? 384 : MOST_THREADS;
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        cudaLaunchConfig_t config = launch_of(p->rows, threads, shared_bytes(p), a->stream);
        CUDA_CHECK(cudaFuncSetAttribute(shared_kernel<T>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)config.dynamicSmemBytes));
        CUDA_CHECK(cudaLaunchKernelEx(&config, shared_kernel<T>, x, y, p->rows,
                                      (int)p->cols, (int)(p->op == OP_LOGSOFTMAX)));
    });
}

GPU_VARIANT(gpu_shared, "row in one block",
    SAFE_ON_GPU(75, ALL_TYPES), .refuses = shared_refuses,
    .cost = traffic<2, 2>, /* each exponential twice: x is kept, not exp(x - m) */
    .does = {{OP_SOFTMAX, shared}, {OP_LOGSOFTMAX, shared}});
