/* Stage 3 on a GPU with NVIDIA's library CUB: the state (m, l) and its merge are given to CUB's
 * segmented reduction, which knows nothing of softmax.  2 reads and 1 write, 3 G.
 *
 * A row that is all -inf gives 0 (logsoftmax: -inf), a row with NaN or +inf gives NaN. */
#ifdef __CUDACC__ /* before our own names */
#include <cub/device/device_segmented_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#endif

#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "second_pass.h"

#define CUB_BYTES ((size_t)1 << 20) /* what CUB gets; it says if it needs more */

#ifdef __CUDACC__

/* Where row i starts; over i + 1, where it ends. */
struct row_start {
    size_t cols;
    __host__ __device__ size_t operator()(size_t i) const { return i * cols; }
};

template <class T> struct lift {
    __device__ struct state operator()(T x) const { return state_of((float)x); }
};

struct merge_operator {
    __device__ struct state operator()(struct state a, struct state b) const
    {
        return merge(a, b);
    }
};

/* Pass 1 by CUB: each row's scores, lifted as they are read, reduced with the merge. */
static void cub_monoid(const struct problem *p, const struct arrays *a)
{
    const thrust::counting_iterator<size_t> rows(0);
    const auto starts = thrust::make_transform_iterator(rows, row_start{p->cols});
    struct state *state = (struct state *)a->workspace;
    const struct state empty = {-INFINITY, 0.0f};
    size_t bytes = CUB_BYTES;
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cub::DeviceSegmentedReduce::Reduce(
            state + p->rows, bytes, thrust::make_transform_iterator(x, lift<T>()), state,
            (long)p->rows, starts, starts + 1, merge_operator(), empty,
            (cudaStream_t)a->stream));
        second_pass(p, a, x, y);
    });
}
#endif

static size_t workspace(const struct problem *p)
{
    return p->rows * sizeof(struct state) + CUB_BYTES;
}

GPU_VARIANT(gpu_cub_monoid, "CUB merges (m, l)",
    SAFE_ON_GPU(75, ALL_TYPES), .workspace = workspace,
    .cost = traffic<3, 3>, /* a merge takes two exponentials, a step one */
    .does = {{OP_SOFTMAX, GPU_ONLY(cub_monoid)}, {OP_LOGSOFTMAX, GPU_ONLY(cub_monoid)}});
