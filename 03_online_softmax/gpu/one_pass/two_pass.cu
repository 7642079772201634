/* two_pass.cu: rows of any length: online softmax, which reads x twice and writes y once.
 *
 *     loop 1: (m, l) of each slice of a row     loop 2: y_j = exp(x_j - m) / l
 *
 * A long row is cut into slices, so that a few long rows occupy the whole GPU. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "fast_exp.h"
#include "row_parts.h"

#define PASS_THREADS 256
#define PASS_BLOCKS 1056 /* 8 blocks for each of 132 multiprocessors */
#define AT_ONCE 4        /* loads of a thread in flight */

/* The row is cut into `splits` slices of `slice` packs, so that a few long rows occupy
 * the whole GPU.  state [rows, splits]: the state of each slice. */
struct slices { int splits, slice; };

static struct slices slices_of(const struct problem *p)
{
    const int width = p->dtype == F32 ? 4 : 8;
    const size_t packs = p->cols / width + 1, least = AT_ONCE * PASS_THREADS;
    size_t splits = p->rows >= PASS_BLOCKS ? 1 : PASS_BLOCKS / (p->rows ? p->rows : 1);
    const size_t most = (packs + least - 1) / least;
    if (splits > most) splits = most;
    return (struct slices){(int)splits, (int)((packs + splits - 1) / splits)};
}

/* Loop 1: the state (m, l) of every slice.  Reads x once. */
template <class T>
static __global__ __launch_bounds__(PASS_THREADS)
void state_kernel(const T *x, struct state *state, size_t rows, int cols,
                  struct slices cut)
{
    constexpr int W = FULL<T>;
    struct reduction &shared = dynamic_shared<struct reduction>();
    const size_t i = block_number(), row = i / cut.splits;
    if (row >= rows) return;
    const int split = i % cut.splits;
    const T *x_i = x + row * cols;
    const struct parts r = parts_of<W>(row, cols);
    const auto *in = (const struct packed<T, W> *)(x_i + r.head);
    const int end = min(r.packs, (split + 1) * cut.slice);

    struct power_sum sum = empty_sum();
    for (int s = split * cut.slice + threadIdx.x; s < end; s += AT_ONCE * PASS_THREADS) {
        struct packed<T, W> v[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++)
            if (s + k * PASS_THREADS < end) v[k] = in[s + k * PASS_THREADS];
            else for (int e = 0; e < W; e++) v[k].e[e] = T(-INFINITY);
        push(&sum, v);
    }
    struct state mine = state_of(sum);
    const int edge = split == 0 ? edge_of(r, cols, threadIdx.x) : -1;
    if (edge >= 0) mine = merge(mine, state_of((float)x_i[edge]));

    struct state all;
    all.m = block_max(mine.m, shared.max);
    all.l = block_sum(mine.l * exp_minus(mine.m, shift_of(all.m)),
                                    shared.sum);
    if (threadIdx.x == 0) state[i] = all;
}

/* The merged state of slices i, i + PASS_THREADS, ... for thread i. */
static __device__ inline struct state slices_merge(const struct state *state, int n)
{
    struct state all = empty_state();
    for (int s = threadIdx.x; s < n; s += PASS_THREADS) all = merge(all, state[s]);
    return all;
}

/* Loop 2: y of every slice, from the last to the first, because what loop 1 read last may
 * still be in the cache.  Every block merges the states of its row in the same order. */
template <class T>
static __global__ __launch_bounds__(PASS_THREADS)
void divide_kernel(const T *x, T *y, const struct state *state, size_t rows, int cols,
                   struct slices cut, int log)
{
    constexpr int W = FULL<T>;
    struct reduction &shared = dynamic_shared<struct reduction>();
    if (block_number() >= rows * cut.splits) return;
    const size_t i = rows * cut.splits - 1 - block_number(), row = i / cut.splits;
    const int split = i % cut.splits;
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;
    const struct parts r = parts_of<W>(row, cols);
    const int begin = split * cut.slice, end = min(r.packs, begin + cut.slice);

    struct state all = state[row * cut.splits];
    if (cut.splits > 1) {
        const struct state mine = slices_merge(state + row * cut.splits, cut.splits);
        all.m = block_max(mine.m, shared.max);
        all.l = block_sum(mine.l * exp_minus(mine.m, shift_of(all.m)),
                                        shared.sum);
    }
    const struct division d = division_of(all, log);

    const auto *in = (const struct packed<T, W> *)(x_i + r.head);
    auto *out = (struct packed<T, W> *)(y_i + r.head);
    for (int s = end - 1 - (int)threadIdx.x; s >= begin; s -= AT_ONCE * PASS_THREADS) {
        struct packed<T, W> v[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++)
            if (s - k * PASS_THREADS >= begin) v[k] = in[s - k * PASS_THREADS];
        for (int k = 0; k < AT_ONCE; k++)
            if (s - k * PASS_THREADS >= begin) divide(out + s - k * PASS_THREADS, v[k], d);
    }
    const int edge = split == 0 ? edge_of(r, cols, threadIdx.x) : -1;
    if (edge >= 0) y_i[edge] = T(divided(d, (float)x_i[edge]));
}

static const char *two_pass_refuses(const struct problem *p)
{
    return p->cols > (size_t)1 << 30 ? "rows of more than 2^30 elements" : NULL;
}

static size_t two_pass_workspace(const struct problem *p)
{
    return p->rows * slices_of(p).splits * sizeof(struct state);
}

static void two_pass(const struct problem *p, const struct arrays *a)
{
    const struct slices cut = slices_of(p);
    struct state *state = (struct state *)a->workspace;
    cudaLaunchConfig_t config = launch_of(p->rows * cut.splits, PASS_THREADS,
                                          sizeof(struct reduction), a->stream);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, state_kernel<T>, x, state, p->rows,
                                      (int)p->cols, cut));
        CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel<T>, x, y, state, p->rows,
                                      (int)p->cols, cut, p->op == OP_LOGSOFTMAX));
    });
}

GPU_VARIANT(gpu_two_pass, "any length; x twice",
    SAFE_ON_GPU(75, ALL_TYPES), .refuses = two_pass_refuses,
    .workspace = two_pass_workspace, .cost = traffic<3, 2>,
    .does = {{OP_SOFTMAX, two_pass}, {OP_LOGSOFTMAX, two_pass}});
