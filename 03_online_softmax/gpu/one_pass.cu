/* one_pass.cu: softmax with one read and one write of main memory (row E5 of the table of
 * traffic): the row stays on chip between the sum and the division.
 *
 *     y_j = exp(x_j - m) / l,   m = max_j x_j,   l = sum_j exp(x_j - m)
 *
 * Where a row is kept decides how long it may be:
 *     registers   up to 32 elements a thread: 8192 floats, 16384 16-bit elements
 *     shared      the shared memory of one block: 227 KB on Hopper
 *     cluster     the shared memories of up to 16 blocks that reach into each other
 *     grid        the shared memories of all blocks, which meet in main memory
 *     two_pass    nowhere: online softmax, which reads x twice (3 instead of 2)
 * and `one_pass` picks.  x and y [rows, cols] are 16-byte aligned and do not overlap; any
 * row may start anywhere.  A row that is all -inf gives 0 (logsoftmax: -inf), a row with
 * NaN or +inf gives NaN. */
#include "stage.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "row_parts.h"
#include "row_ring.h"

/* --- registers: all of a row in the registers of GROUP threads. --- */

struct reduction { float max[WARP], sum[WARP]; };

/* Threads in a block.  1024 of them must fit on a multiprocessor, so that enough loads
 * are under way: 64 registers a thread. */
template <int GROUP> constexpr int REGISTER_THREADS = GROUP > WARP ? GROUP : 128;

/* One row per GROUP threads; PACKS packs a thread, all loads before the first use.
 * GROUP <= 32 lanes of a warp, or a whole block.  Reads and writes each element once. */
template <class T, int WIDTH, int GROUP, int PACKS, bool LOG>
static __global__
__launch_bounds__(REGISTER_THREADS<GROUP>, 1024 / REGISTER_THREADS<GROUP>)
void registers_kernel(const T *x, T *y, size_t rows, int cols)
{
    constexpr int GROUPS = REGISTER_THREADS<GROUP> / GROUP;
    static_assert(GROUP >= WIDTH || WIDTH == 1, "a lane for each element of an edge");
    struct reduction &shared = dynamic_shared<struct reduction>();
    const int i = threadIdx.x % GROUP;
    const size_t row = block_number() * GROUPS + threadIdx.x / GROUP;
    const int n = row < rows ? cols : 0; /* a missing row takes part in the barriers */
    const struct parts r = parts_of<WIDTH>(row, n);
    const T *x_i = x + row * cols;
    T *y_i = y + row * cols;

    struct pack<T, WIDTH> raw[PACKS];
    for (int k = 0; k < PACKS; k++)
        if (i + k * GROUP < r.packs)
            raw[k] = ((const struct pack<T, WIDTH> *)(x_i + r.head))[i + k * GROUP];
    float head = WIDTH > 1 && i < r.head ? (float)x_i[i] : -INFINITY;
    float tail = WIDTH > 1 && i < r.tail ? (float)x_i[n - r.tail + i] : -INFINITY;

    float v[PACKS][WIDTH];
    float m = fmaxf(head, tail);
    for (int k = 0; k < PACKS; k++)
        for (int e = 0; e < WIDTH; e++) {
            v[k][e] = i + k * GROUP < r.packs ? (float)raw[k].e[e] : -INFINITY;
            m = fmaxf(m, v[k][e]);
        }
    if constexpr (GROUP > WARP)
        m = block_max<GROUP>(m, shared.max);
    else
        m = lanes_max<GROUP>(m);

    struct running all = {m, 0.0f};
    const float shift = shift_of(m);
    if (WIDTH > 1) all.l = exp_minus(head, shift) + exp_minus(tail, shift);
    for (int k = 0; k < PACKS; k++)
        for (int e = 0; e < WIDTH; e++) {
            const float p = exp_minus(v[k][e], shift);
            all.l += p;
            v[k][e] = LOG ? v[k][e] - shift : p;
        }
    if constexpr (GROUP > WARP)
        all.l = block_sum<GROUP>(all.l, shared.sum);
    else
        all.l = lanes_sum<GROUP>(all.l);

    const struct finish f = finish_of(all, LOG);
    for (int k = 0; k < PACKS; k++) {
        for (int e = 0; e < WIDTH; e++)
            v[k][e] = LOG ? v[k][e] - f.log_l : v[k][e] * f.scale;
        if (i + k * GROUP < r.packs)
            store((struct pack<T, WIDTH> *)(y_i + r.head) + i + k * GROUP, v[k]);
    }
    if (WIDTH > 1 && i < r.head) y_i[i] = T(finished(f, head));
    if (WIDTH > 1 && i < r.tail) y_i[n - r.tail + i] = T(finished(f, tail));
}

template <class T, int WIDTH, int GROUP, int PACKS>
static void launch_registers(const struct problem *p, const struct arrays *a, const T *x,
                             T *y)
{
    const int threads = REGISTER_THREADS<GROUP>;
    const size_t per_block = threads / GROUP;
    auto *kernel = registers_kernel<T, WIDTH, GROUP, PACKS, false>;
    if (p->op == OP_LOGSOFTMAX) kernel = registers_kernel<T, WIDTH, GROUP, PACKS, true>;
    cudaLaunchConfig_t config = launch_of((p->rows + per_block - 1) / per_block, threads,
                                          sizeof(struct reduction), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, x, y, p->rows, (int)p->cols));
    CUDA_CHECK(cudaGetLastError());
}

/* The group for a row of n elements, measured on an H200: 8 elements a thread while a
 * float row has up to 1024, then 16; twice that for 16-bit elements.  Short rows take
 * elements one by one, because they have no aligned packs to speak of. */
template <class T>
static void registers_of(const struct problem *p, const struct arrays *a, const T *x,
                         T *y)
{
    constexpr int W = FULL<T>, SHORT = sizeof(T) == 2; /* PACKS of 8 elements: 8 / W */
    const size_t n = p->cols;
    if (n <= 4) launch_registers<T, 1, 1, 4>(p, a, x, y);
    else if (n <= 32) launch_registers<T, 1, 8, 4>(p, a, x, y);
    else if (n <= 128) launch_registers<T, 1, 32, 4>(p, a, x, y);
    else if (n <= 256) launch_registers<T, W, SHORT ? 16 : 32, 2>(p, a, x, y);
    else if (n <= 512) launch_registers<T, W, SHORT ? 32 : 64, 2>(p, a, x, y);
    else if (n <= 1024)
        launch_registers<T, W, SHORT ? 32 : 128, SHORT ? 4 : 2>(p, a, x, y);
    else if (n <= 2048) launch_registers<T, W, SHORT ? 64 : 128, 4>(p, a, x, y);
    else if (n <= 4096) launch_registers<T, W, SHORT ? 128 : 256, 4>(p, a, x, y);
    else if (n <= 8192) launch_registers<T, W, SHORT ? 256 : 512, 4>(p, a, x, y);
    else if constexpr (SHORT) launch_registers<T, W, 512, 4>(p, a, x, y);
}

static const char *registers_refuses(const struct problem *p)
{
    if (p->dtype == F32) return p->cols > 8192 ? "rows of more than 8192 floats" : NULL;
    return p->cols > 16384 ? "rows of more than 16384 elements" : NULL;
}

static void registers(const struct problem *p, const struct arrays *a)
{
    with_type(p, a, [&](auto *x, auto *y) { registers_of(p, a, x, y); });
}

/* --- shared: the row in the shared memory of one block. --- */

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
    struct running all = {block_max<SHARED_THREADS>(m, shared.reduction.max), 0.0f};

    const float shift = shift_of(all.m); /* sum */
    all.l = exp_minus(last, shift);
    for (int s = threadIdx.x; s < r.packs; s += SHARED_THREADS)
        for (int e = 0; e < W; e++)
            all.l += exp_minus((float)kept[s].e[e], shift);
    all.l = block_sum<SHARED_THREADS>(all.l, shared.reduction.sum);

    const struct finish f = finish_of(all, log); /* division */
    for (int s = threadIdx.x; s < r.packs; s += SHARED_THREADS) {
        float v[W];
        for (int e = 0; e < W; e++) v[e] = finished(f, (float)kept[s].e[e]);
        store(out + s, v);
    }
    if (edge >= 0) y_i[edge] = T(finished(f, last));
}

static size_t row_bytes(const struct problem *p)
{
    return p->cols * (p->dtype == F32 ? 4 : 2);
}

static int device_attribute(enum cudaDeviceAttr what)
{
    int device, value;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&value, what, device));
    return value;
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

/* --- two_pass: rows of any length, 2 reads and 1 write. --- */

#define PASS_THREADS 256
#define PASS_BLOCKS 1056 /* 8 blocks for each of 132 multiprocessors */

/* The row is cut into `splits` slices of `slice` packs, so that a few long rows occupy
 * the whole GPU.  state [rows, splits]: the pair of each slice. */
struct slices { int splits, slice; };

static struct slices slices_of(const struct problem *p)
{
    const int width = p->dtype == F32 ? 4 : 8;
    const size_t packs = p->cols / width + 1, least = 4 * PASS_THREADS;
    size_t splits = p->rows >= PASS_BLOCKS ? 1 : PASS_BLOCKS / (p->rows ? p->rows : 1);
    const size_t most = (packs + least - 1) / least;
    if (splits > most) splits = most;
    return (struct slices){(int)splits, (int)((packs + splits - 1) / splits)};
}

/* Pass 1: the pair (m, l) of every slice.  Reads x once. */
template <class T>
static __global__ __launch_bounds__(PASS_THREADS)
void state_kernel(const T *x, struct running *state, size_t rows, int cols,
                  struct slices cut)
{
    constexpr int W = FULL<T>;
    struct reduction &shared = dynamic_shared<struct reduction>();
    const size_t i = block_number(), row = i / cut.splits;
    if (row >= rows) return;
    const int split = i % cut.splits;
    const T *x_i = x + row * cols;
    const struct parts r = parts_of<W>(row, cols);
    const auto *in = (const struct pack<T, W> *)(x_i + r.head);
    const int end = min(r.packs, (split + 1) * cut.slice);

    struct running mine = nothing_seen();
    for (int s = split * cut.slice + threadIdx.x; s < end; s += PASS_THREADS) {
        const struct pack<T, W> raw = in[s];
        float v[W];
        for (int e = 0; e < W; e++) v[e] = (float)raw.e[e];
        push(&mine, v);
    }
    const int edge = split == 0 ? edge_of(r, cols, threadIdx.x) : -1;
    const float last[1] = {edge >= 0 ? (float)x_i[edge] : -INFINITY};
    push(&mine, last);

    struct running all;
    all.m = block_max<PASS_THREADS>(mine.m, shared.max);
    all.l = block_sum<PASS_THREADS>(mine.l * exp_minus(mine.m, shift_of(all.m)),
                                    shared.sum);
    if (threadIdx.x == 0) state[i] = all;
}

/* The merged pair of slices i, i + PASS_THREADS, ... for thread i. */
static __device__ inline struct running slices_merge(const struct running *state, int n)
{
    struct running all = nothing_seen();
    for (int s = threadIdx.x; s < n; s += PASS_THREADS) all = merge(all, state[s]);
    return all;
}

/* Pass 2: y of every slice, from the last to the first, because what pass 1 read last may
 * still be in the cache.  Every block merges the pairs of its row in the same order. */
template <class T>
static __global__ __launch_bounds__(PASS_THREADS)
void divide_kernel(const T *x, T *y, const struct running *state, size_t rows, int cols,
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

    struct running all = state[row * cut.splits];
    if (cut.splits > 1) {
        const struct running mine = slices_merge(state + row * cut.splits, cut.splits);
        all.m = block_max<PASS_THREADS>(mine.m, shared.max);
        all.l = block_sum<PASS_THREADS>(mine.l * exp_minus(mine.m, shift_of(all.m)),
                                        shared.sum);
    }
    const struct finish f = finish_of(all, log);

    const auto *in = (const struct pack<T, W> *)(x_i + r.head);
    auto *out = (struct pack<T, W> *)(y_i + r.head);
    for (int s = end - 1 - (int)threadIdx.x; s >= begin; s -= PASS_THREADS) {
        const struct pack<T, W> raw = in[s];
        float v[W];
        for (int e = 0; e < W; e++) v[e] = finished(f, (float)raw.e[e]);
        store(out + s, v);
    }
    const int edge = split == 0 ? edge_of(r, cols, threadIdx.x) : -1;
    if (edge >= 0) y_i[edge] = T(finished(f, (float)x_i[edge]));
}

static const char *two_pass_refuses(const struct problem *p)
{
    return p->cols > (size_t)1 << 30 ? "rows of more than 2^30 elements" : NULL;
}

static size_t two_pass_workspace(const struct problem *p)
{
    return p->rows * slices_of(p).splits * sizeof(struct running);
}

static void two_pass(const struct problem *p, const struct arrays *a)
{
    const struct slices cut = slices_of(p);
    struct running *state = (struct running *)a->workspace;
    cudaLaunchConfig_t config = launch_of(p->rows * cut.splits, PASS_THREADS,
                                          sizeof(struct reduction), a->stream);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, state_kernel<T>, x, state, p->rows,
                                      (int)p->cols, cut));
        CUDA_CHECK(cudaLaunchKernelEx(&config, divide_kernel<T>, x, y, state, p->rows,
                                      (int)p->cols, cut, p->op == OP_LOGSOFTMAX));
        CUDA_CHECK(cudaGetLastError());
    });
}

/* --- cluster and grid: the ring of row_ring.h. --- */

#ifdef __CUDACC__

/* The ring for a team of `team` blocks: the row cut into equal slices, a slice into equal
 * chunks.  A slice that does not fit makes stages less than chunks. */
static struct ring_plan ring_plan_of(const struct problem *p, int team, int in_cluster)
{
    const int packs = row_bytes(p) < 16 ? 1 : (int)(row_bytes(p) / 16);
    struct ring_plan plan = {};
    plan.team = team;
    plan.in_cluster = in_cluster;
    plan.slice = (packs + team - 1) / team;
    plan.chunks = (plan.slice + CHUNK_MAX - 1) / CHUNK_MAX;
    plan.chunk = ((plan.slice + plan.chunks - 1) / plan.chunks + 7) / 8 * 8;
    plan.stages = RING_BYTES / 16 / plan.chunk;
    if (plan.stages > STAGES_MAX) plan.stages = STAGES_MAX;
    return plan;
}

static cudaLaunchConfig_t ring_launch(const struct ring_plan &plan, void *stream,
                                      cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = launch_of(plan.team, RING_BLOCK,
                                          sizeof(struct ring_shared), stream);
    if (plan.in_cluster) {
        attribute->id = cudaLaunchAttributeClusterDimension;
        attribute->val.clusterDim.x = plan.team;
        attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    } else {
        attribute->id = cudaLaunchAttributeCooperative; /* all run at the same time */
        attribute->val.cooperative = 1;
    }
    config.attrs = attribute;
    config.numAttrs = 1;
    return config;
}

/* How many teams can run at the same time; 0 when the GPU has no room for one.  Asked
 * once for each size of a team. */
template <class T> static int ring_teams(const struct ring_plan &plan)
{
    static int known[2][257]; /* the answer + 1 */
    int *answer = &known[plan.in_cluster][plan.team < 256 ? plan.team : 256];
    if (*answer && plan.team < 256) return *answer - 1;
    auto *kernel = ring_kernel<T>;
    cudaLaunchAttribute attribute = {};
    const cudaLaunchConfig_t config = ring_launch(plan, NULL, &attribute);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)config.dynamicSmemBytes));
    CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    int teams;
    if (plan.in_cluster) {
        CUDA_CHECK(cudaOccupancyMaxActiveClusters(&teams, kernel, &config));
    } else {
        CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &teams, kernel, RING_BLOCK, config.dynamicSmemBytes));
        teams = teams * device_attribute(cudaDevAttrMultiProcessorCount) / plan.team;
    }
    *answer = teams + 1;
    return teams;
}

/* Launches as many teams as can run at the same time, or as there are rows. */
static void ring(const struct problem *p, const struct arrays *a, struct ring_plan plan)
{
    if (p->rows == 0) return;
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        const int teams = ring_teams<T>(plan);
        plan.teams = (size_t)teams < p->rows ? teams : (int)p->rows;
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = ring_launch(plan, a->stream, &attribute);
        config.gridDim.x = plan.teams * plan.team;
        if (!plan.in_cluster)
            CUDA_CHECK(cudaMemsetAsync(a->workspace, 0xff, p->rows * plan.team * 8,
                                       config.stream)); /* NOT_WRITTEN */
        CUDA_CHECK(cudaLaunchKernelEx(&config, ring_kernel<T>, x, y, p->rows,
                                      (int)p->cols, plan, (uint64_t *)a->workspace,
                                      (int)(p->op == OP_LOGSOFTMAX)));
        CUDA_CHECK(cudaGetLastError());
    });
}

/* The blocks of the cluster that holds a row: slices of 64 to 128 KB (more in the
 * largest), so that the ring has room for the next row. */
static struct ring_plan cluster_plan(const struct problem *p)
{
    const size_t kb = (row_bytes(p) + 1023) / 1024;
    return ring_plan_of(p, kb <= 128 ? 1 : kb <= 256 ? 2 : kb <= 1024 ? 8 : 16, 1);
}

/* The blocks of the grid that share a row: as few as hold GRID_ROWS rows in their rings,
 * then as many as make the teams use every multiprocessor. */
#define GRID_ROWS 3

static struct ring_plan grid_plan(const struct problem *p)
{
    const size_t blocks = device_attribute(cudaDevAttrMultiProcessorCount);
    const size_t least = GRID_ROWS * row_bytes(p) / RING_BYTES + 1;
    const size_t teams = least < blocks ? blocks / least : 1;
    return ring_plan_of(p, (int)(blocks / teams), 0);
}

static const char *plan_refuses(const struct ring_plan &plan)
{
    static cudaFuncAttributes kernel; /* of the code that this GPU would run */
    if (!kernel.binaryVersion)
        CUDA_CHECK(cudaFuncGetAttributes(&kernel, ring_kernel<float>));
    if (kernel.binaryVersion < 90) return "GPUs before Hopper";
    if (plan.stages < plan.chunks) return "rows of that length: no room on the chip";
    if (ring_teams<float>(plan) == 0) return "this GPU: too few multiprocessors together";
    return NULL;
}

static const char *cluster_refuses(const struct problem *p)
{
    return plan_refuses(cluster_plan(p));
}

static const char *grid_refuses(const struct problem *p)
{
    return plan_refuses(grid_plan(p));
}

static void cluster(const struct problem *p, const struct arrays *a)
{
    ring(p, a, cluster_plan(p));
}

static size_t grid_workspace(const struct problem *p)
{
    return p->rows * grid_plan(p).team * sizeof(uint64_t);
}

static void grid(const struct problem *p, const struct arrays *a)
{
    ring(p, a, grid_plan(p));
}

#else /* the CPU has no copy engine: these two are marked as for a GPU only */
#define cluster_refuses NULL
#define grid_refuses NULL
#define grid_workspace NULL
#endif

/* --- one_pass: the kernel for the shape. --- */

/* In the order in which they are preferred. */
enum choice { REGISTERS, CLUSTER, GRID, SHARED, TWO_PASS };

static enum choice choose(const struct problem *p)
{
    if (!registers_refuses(p)) return REGISTERS;
#ifdef __CUDACC__
    if (!cluster_refuses(p)) return CLUSTER;
    if (!grid_refuses(p)) return GRID;
#endif
    return shared_refuses(p) ? TWO_PASS : SHARED;
}

static const char *one_pass_picks(const struct problem *p)
{
    static const char *const names[] = {"gpu_registers", "gpu_cluster", "gpu_grid",
                                        "gpu_shared", "gpu_two_pass"};
    return names[choose(p)];
}

static size_t one_pass_workspace(const struct problem *p)
{
    const enum choice choice = choose(p);
#ifdef __CUDACC__
    if (choice == GRID) return grid_workspace(p);
#endif
    return choice == TWO_PASS ? two_pass_workspace(p) : 0;
}

static void one_pass(const struct problem *p, const struct arrays *a)
{
    switch (choose(p)) {
    case REGISTERS: registers(p, a); return;
#ifdef __CUDACC__
    case CLUSTER: cluster(p, a); return;
    case GRID: grid(p, a); return;
#endif
    case SHARED: shared(p, a); return;
    default: two_pass(p, a);
    }
}

static struct cost two_passes(const struct problem *p)
{
    return traffic(p, 2, 1);
}

/* The ring takes each exponential twice: it keeps x, not exp(x - m). */
static struct cost two_passes_exp_twice(const struct problem *p)
{
    return traffic(p, 2, 2);
}

static struct cost three_passes(const struct problem *p)
{
    return traffic(p, 3, 2);
}

static struct cost one_pass_cost(const struct problem *p)
{
    const enum choice choice = choose(p);
    return traffic(p, choice == TWO_PASS ? 3 : 2, choice == REGISTERS ? 1 : 2);
}

GPU_VARIANT(gpu_registers) = {
    .name = "gpu_registers",
    .idea = "the row in the registers of a few lanes or of a block: 2 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = registers_refuses,
    .cost = two_passes,
    .does = {{OP_SOFTMAX, registers}, {OP_LOGSOFTMAX, registers}},
    .on_gpu = GPU_TWIN(gpu_registers),
};

GPU_VARIANT(gpu_shared) = {
    .name = "gpu_shared",
    .idea = "the row in the shared memory of a block: 2 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = shared_refuses,
    .cost = two_passes_exp_twice,
    .does = {{OP_SOFTMAX, shared}, {OP_LOGSOFTMAX, shared}},
    .on_gpu = GPU_TWIN(gpu_shared),
};

GPU_VARIANT(gpu_cluster) = {
    .name = "gpu_cluster",
    .idea = "the row in the shared memories of a cluster, through a ring of copies: 2 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 90,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = cluster_refuses,
    .cost = two_passes_exp_twice,
    .does = {{OP_SOFTMAX, GPU_ONLY(cluster)}, {OP_LOGSOFTMAX, GPU_ONLY(cluster)}},
    .on_gpu = GPU_TWIN(gpu_cluster),
};

GPU_VARIANT(gpu_grid) = {
    .name = "gpu_grid",
    .idea = "the row in the shared memories of the whole GPU, (m, l) through L2: 2 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 90,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = grid_refuses,
    .workspace = grid_workspace,
    .cost = two_passes_exp_twice,
    .does = {{OP_SOFTMAX, GPU_ONLY(grid)}, {OP_LOGSOFTMAX, GPU_ONLY(grid)}},
    .on_gpu = GPU_TWIN(gpu_grid),
};

GPU_VARIANT(gpu_two_pass) = {
    .name = "gpu_two_pass",
    .idea = "rows of any length: online, x read twice, the second time backwards: 3 G",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = two_pass_refuses,
    .workspace = two_pass_workspace,
    .cost = three_passes,
    .does = {{OP_SOFTMAX, two_pass}, {OP_LOGSOFTMAX, two_pass}},
    .on_gpu = GPU_TWIN(gpu_two_pass),
};

GPU_VARIANT(gpu_one_pass) = {
    .name = "gpu_one_pass",
    .idea = "registers, cluster, grid, shared or two_pass, by the length of the row",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 75,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = two_pass_refuses,
    .picks = one_pass_picks,
    .workspace = one_pass_workspace,
    .cost = one_pass_cost,
    .does = {{OP_SOFTMAX, one_pass}, {OP_LOGSOFTMAX, one_pass}},
    .on_gpu = GPU_TWIN(gpu_one_pass),
};
