/* Stage 3 on a GPU: maximum and denominator in one loop, so that x is read twice, not
 * three times: 2 reads and 1 write, 3 G.
 *
 *     loop 1: (m, l) of each row     loop 2: y_j = exp(x_j - m) / l
 *
 * The threads of a block each run the online loop over their elements.  Then their states are
 * merged, in any grouping, because the merge is associative.
 *
 * A row that is all -inf gives 0 (logsoftmax: -inf), a row with NaN or +inf gives NaN. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "second_pass.h"

#define AT_ONCE 4 /* loads of a thread in flight */

/* Takes in one score: the step of stage.c.  One exponential, a second one only when the
 * maximum rises. */
static __device__ inline struct state online_step(struct state s, float x)
{
    if (x > s.m) {
        s.l *= exp_minus(s.m, x);
        s.m = x;
    }
    s.l += exp_minus(x, shift_of(s.m));
    return s;
}

/* Loop 1: state[i] = (m, l) of row i, one block per row.  Reads 1 G.  A thread issues
 * the loads of AT_ONCE elements before it uses the first, because a load takes long. */
template <class T>
static __global__ __launch_bounds__(THREADS)
void online_kernel(const T *x, struct state *state, size_t rows, size_t cols)
{
    struct warps { struct state warp[WARP]; };
    struct warps &shared = dynamic_shared<struct warps>();
    const size_t row = block_number();
    const int lane = threadIdx.x % WARP;
    if (row >= rows) return;

    struct state mine = empty_state();
    for (size_t j = threadIdx.x; j < cols; j += AT_ONCE * THREADS) {
        float v[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = j + k * THREADS < cols ? (float)x[row * cols + j + k * THREADS]
                                          : -INFINITY;
        for (int k = 0; k < AT_ONCE; k++) mine = online_step(mine, v[k]);
    }

    mine = lanes_merge(mine);
    if (lane == 0) shared.warp[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    mine = lanes_merge(lane < THREADS / WARP ? shared.warp[lane] : empty_state());
    if (lane == 0) state[row] = mine;
}

static void online(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = launch_of(p->rows, THREADS, WARP * sizeof(struct state),
                                          a->stream);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, online_kernel<T>, x,
                                      (struct state *)a->workspace, p->rows, p->cols));
        second_pass(p, a, x, y);
    });
}

static size_t workspace(const struct problem *p) { return p->rows * sizeof(struct state); }

GPU_VARIANT(gpu_online, "m, l in one loop",
    SAFE_ON_GPU(75, ALL_TYPES), .workspace = workspace, .cost = traffic<3, 2>,
    .does = {{OP_SOFTMAX, online}, {OP_LOGSOFTMAX, online}});
