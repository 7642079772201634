/* Stage 3 on a GPU: maximum and denominator in one pass, so that x is read twice, not
 * three times: 2 reads and 1 write, 3 G.  gpu/one_pass.cu goes on to 2 G.
 *
 *     pass 1: (m, l) of each row     pass 2: y_j = exp(x_j - m) / l
 *
 * The threads of a block each run the online loop over their elements; then their pairs
 * are merged, which may happen in any grouping because the merge is associative.
 * gpu_online does it by hand; gpu_cub_monoid gives the pair and its merge, from stage 4's
 * monoid.h, to CUB's segmented reduction, which knows nothing of softmax.
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
#include "monoid.h"

#define THREADS 512
#define AT_ONCE 4 /* loads of a thread under way */
#define CUB_BYTES ((size_t)1 << 20) /* what CUB gets; it says if it needs more */

/* The merged element of all lanes of a warp, in lane 0. */
static __device__ inline struct se warp_merge(struct se s)
{
    for (int d = 1; d < WARP; d *= 2) {
        struct se other;
        other.m = __shfl_down_sync(~0u, s.m, d);
        other.l = __shfl_down_sync(~0u, s.l, d);
        s = se_merge(s, other);
    }
    return s;
}

/* Takes in one score: the step of stage.c.  One exponential, a second one only when the
 * maximum rises.  NaN becomes the maximum and stays it: with m = -inf it would be taken
 * for the unit and lost in a merge. */
static __device__ inline struct se online_step(struct se s, float x)
{
    if (x > s.m || x != x) {
        s.l *= exp_minus(s.m, x);
        s.m = x;
    }
    s.l += exp_minus(x, shift_of(s.m));
    return s;
}

/* Pass 1: state[i] = (m, l) of row i, one block per row.  Reads 1 G.  A thread asks for
 * AT_ONCE elements before it uses the first: the memory is far away. */
template <class T>
static __global__ __launch_bounds__(THREADS)
void online_kernel(const T *x, struct se *state, size_t rows, size_t cols)
{
    struct warps { struct se warp[WARP]; };
    struct warps &shared = dynamic_shared<struct warps>();
    const size_t row = block_number();
    const int lane = threadIdx.x % WARP;
    if (row >= rows) return;

    struct se mine = se_unit();
    for (size_t j = threadIdx.x; j < cols; j += AT_ONCE * THREADS) {
        float v[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = j + k * THREADS < cols ? (float)x[row * cols + j + k * THREADS]
                                          : -INFINITY;
        for (int k = 0; k < AT_ONCE; k++) mine = online_step(mine, v[k]);
    }

    mine = warp_merge(mine);
    if (lane == 0) shared.warp[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    mine = warp_merge(lane < THREADS / WARP ? shared.warp[lane] : se_unit());
    if (lane == 0) state[row] = mine;
}

/* Pass 2: y_ij = exp(x_ij - m_i) / l_i, or x_ij - m_i - log l_i.  Reads, writes 1 G. */
template <class T>
static __global__ __launch_bounds__(THREADS)
void normalise_kernel(const T *x, T *y, const struct se *state, size_t rows, size_t cols,
                      int log)
{
    const size_t row = block_number();
    if (row >= rows) return;
    const struct se s = state[row];
    const float shift = shift_of(s.m);
    const float scale = s.l == 0 ? 0.0f : 1.0f / s.l, log_l = s.l == 0 ? 0.0f : logf(s.l);
    for (size_t j = threadIdx.x; j < cols; j += THREADS) {
        const float x_j = (float)x[row * cols + j];
        y[row * cols + j] = T(log ? x_j - shift - log_l : exp_minus(x_j, shift) * scale);
    }
}

template <class T>
static void normalise(const struct problem *p, const struct arrays *a, const T *x, T *y)
{
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, 0, a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, normalise_kernel<T>, x, y,
                                  (const struct se *)a->workspace, p->rows, p->cols,
                                  p->op == OP_LOGSOFTMAX));
    CUDA_CHECK(cudaGetLastError());
}

static void online(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, WARP * sizeof(struct se),
                                          a->stream);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, online_kernel<T>, x,
                                      (struct se *)a->workspace, p->rows, p->cols));
        normalise(p, a, x, y);
    });
}

#ifdef __CUDACC__

/* Where row i starts; over i + 1, where it ends. */
struct row_start {
    size_t cols;
    __host__ __device__ size_t operator()(size_t i) const { return i * cols; }
};

/* A score as an element of the monoid. */
template <class T> struct lift {
    __device__ struct se operator()(T x) const { return se_lift((float)x); }
};

struct se_operator {
    __device__ struct se operator()(struct se a, struct se b) const
    {
        return se_merge(a, b);
    }
};

/* Pass 1 by CUB: each row's scores, lifted as they are read, reduced with the merge. */
static void cub_monoid(const struct problem *p, const struct arrays *a)
{
    const thrust::counting_iterator<size_t> rows(0);
    const auto starts = thrust::make_transform_iterator(rows, row_start{p->cols});
    struct se *state = (struct se *)a->workspace;
    size_t bytes = CUB_BYTES;
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cub::DeviceSegmentedReduce::Reduce(
            state + p->rows, bytes, thrust::make_transform_iterator(x, lift<T>()), state,
            (long)p->rows, starts, starts + 1, se_operator(), se_unit(),
            (cudaStream_t)a->stream));
        normalise(p, a, x, y);
    });
}
#endif

static size_t workspace(const struct problem *p)
{
    return p->rows * sizeof(struct se) + CUB_BYTES;
}

static struct cost cost(const struct problem *p)
{
    return traffic(p, 3, 2);
}

/* The merge takes two exponentials where the step takes one. */
static struct cost cub_cost(const struct problem *p)
{
    return traffic(p, 3, 3);
}

GPU_VARIANT(gpu_online) = {
    .name = "gpu_online",
    .idea = "two kernels: (m, l) of each row in one pass, then the quotients: 3 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, online}, {OP_LOGSOFTMAX, online}},
    .on_gpu = GPU_TWIN(gpu_online),
};

GPU_VARIANT(gpu_cub_monoid) = {
    .name = "gpu_cub_monoid",
    .idea = "CUB's segmented reduction with the merge of (m, l) as its operator: 3 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .workspace = workspace,
    .cost = cub_cost,
    .does = {{OP_SOFTMAX, GPU_ONLY(cub_monoid)}, {OP_LOGSOFTMAX, GPU_ONLY(cub_monoid)}},
    .on_gpu = GPU_TWIN(gpu_cub_monoid),
};
