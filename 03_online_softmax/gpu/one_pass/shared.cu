/* shared.cu: softmax with one read and one write: the row in the shared memory of a block.
 *
 *     y_j = exp(x_j - m) / l,   m = max_j x_j,   l = sum_j exp(x_j - m)
 *
 * 227 KB on Hopper: 58 000 floats. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "row_parts.h"

#define SHARED_THREADS 512

template <class T> struct shared_row {
    struct reduction reduction;
    alignas(16) struct pack<T, FULL<T>> row[1]; /* as many as the launch gave bytes for */
};

/* One block a row; thread i keeps packs i, i + 512, ..., so no barrier is needed between
 * writing and reading them. */
template <class T>
static __global__ __launch_bounds__(SHARED_THREADS)
void shared_kernel(const T *x, T *y, size_t rows, int cols, int log)
{
    constexpr int W = FULL<T>;
    struct shared_row<T> &shared = dynamic_shared<struct shared_row<T>>();
    struct pack<T, W> *kept = shared.row;
    const size_t row = block_number();
    if (row >= rows) return;
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;
    const struct parts r = parts_of<W>(row, cols);
    const auto *in = (const struct pack<T, W> *)(x_i + r.head);
    auto *out = (struct pack<T, W> *)(y_i + r.head);
    const int edge = edge_of(r, cols, threadIdx.x);
    const float last = edge >= 0 ? (float)x_i[edge] : -INFINITY;

    float m = last; /* maximum, while the row comes in */
    for (int s = threadIdx.x; s < r.packs; s += SHARED_THREADS) {
        kept[s] = in[s];
        for (int e = 0; e < W; e++) m = fmaxf(m, (float)kept[s].e[e]);
    }
    struct state all = {block_max(m, shared.reduction.max), 0.0f};

    const float shift = shift_of(all.m); /* sum */
    all.l = exp_minus(last, shift);
    for (int s = threadIdx.x; s < r.packs; s += SHARED_THREADS)
        for (int e = 0; e < W; e++)
            all.l += exp_minus((float)kept[s].e[e], shift);
    all.l = block_sum(all.l, shared.reduction.sum);

    const struct normaliser f = normaliser_of(all, log); /* division */
    for (int s = threadIdx.x; s < r.packs; s += SHARED_THREADS) {
        float v[W];
        for (int e = 0; e < W; e++) v[e] = normalise(f, (float)kept[s].e[e]);
        store(out + s, v);
    }
    if (edge >= 0) y_i[edge] = T(normalise(f, last));
}

static const char *shared_refuses(const struct problem *p)
{
    size_t limit = (size_t)device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    return sizeof(struct shared_row<float>) + row_bytes(p) > limit
               ? "rows larger than the shared memory of a block" : NULL;
}

static void shared(const struct problem *p, const struct arrays *a)
{
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        cudaLaunchConfig_t config = launch_of(p->rows, SHARED_THREADS,
                                              sizeof(struct shared_row<T>) + row_bytes(p),
                                              a->stream);
        CUDA_CHECK(cudaFuncSetAttribute(shared_kernel<T>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)config.dynamicSmemBytes));
        CUDA_CHECK(cudaLaunchKernelEx(&config, shared_kernel<T>, x, y, p->rows,
                                      (int)p->cols, p->op == OP_LOGSOFTMAX));
        CUDA_CHECK(cudaGetLastError());
    });
}

/* 1 read, 1 write; each exponential twice, because x is kept, not exp(x - m). */
static struct cost cost(const struct problem *p)
{
    return traffic(p, 2, 2);
}

GPU_VARIANT(gpu_shared) = {
    .name = "gpu_shared",
    .idea = "row in one block",
    SAFE_ON_GPU(75, ALL_TYPES),
    .refuses = shared_refuses,
    .cost = cost,
    .does = {{OP_SOFTMAX, shared}, {OP_LOGSOFTMAX, shared}},
    .on_gpu = GPU_TWIN(gpu_shared),
};
