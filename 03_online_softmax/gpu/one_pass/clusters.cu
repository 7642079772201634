/* clusters.cu: softmax with one read and one write: the row in the shared memories of a cluster of
 * up to 16 blocks, or of several clusters, up to all of the GPU (Hopper).  row_pipeline.h has the
 * kernel; this file chooses how a row is cut. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/device.h"
#include "gpu/gpu_rows.h"
#include "row_pipeline.h"

#include <atomic>

#define GRID_BLOCKS 8                 /* of a cluster, where several share a row */
#define SLICE_BYTES ((size_t)80 << 10) /* the buffer has room for the next row's */

#ifdef __CUDACC__

/* --- How a row is cut. --- */

static int divide_up(size_t n, size_t by)
{
    return (int)((n + by - 1) / by);
}

/* What a slice takes in chunks of `each` packs a thread, in units of a pack of all threads.  A
 * chunk takes a barrier, too. */
static int time_of(int slice, int each)
{
    const int chunk = each * ROLE_THREADS, chunks = divide_up(slice, chunk);
    return chunks + (chunks - 1) * each + divide_up(slice - (chunks - 1) * chunk, ROLE_THREADS);
}

static int stages_of(int each)
{
    return min(MOST_STAGES, BUFFER / (each * ROLE_THREADS));
}

/* The plan for teams of so many clusters: the row in equal slices of whole lines.  The buffer has
 * room for a part of the next row. */
static struct plan plan_for(const struct problem *p, int blocks, int clusters)
{
    const int packs = (int)(row_bytes(p) / 16);
    struct plan plan = {};
    plan.blocks = blocks;
    plan.clusters = clusters;
    plan.slice = max(1, divide_up(divide_up(packs, LINE_PACKS), blocks * clusters)) * LINE_PACKS;
    int each = 4;
    for (int more = 5; more <= MOST_EACH; more++)
        if (divide_up(plan.slice, more * ROLE_THREADS) + 4 <= stages_of(more) &&
            time_of(plan.slice, more) < time_of(plan.slice, each))
            each = more;
    plan.chunk = each * ROLE_THREADS;
    plan.kept = plan.chunks = divide_up(plan.slice, plan.chunk);
    plan.keep.stages = stages_of(each);
    return plan;
}

/* One cluster for a row: of so many blocks that a slice has 80 KB or less, or of 16.  With 16-bit
 * numbers the threads are busier: 104 KB, from two blocks on.  Clusters of 16 leave 20 multiprocessors
 * of an H200 idle; there a cluster of 8 takes slices of up to 128 KB. */
static struct plan cluster_plan(const struct problem *p)
{
    const size_t bytes = row_bytes(p), most = p->dtype == F32 ? SLICE_BYTES : (size_t)104 << 10;
    int blocks = bytes > SLICE_BYTES ? 2 : 1;
    while (blocks < CLUSTER_MAX && bytes > blocks * most) blocks *= 2;
    if (blocks == 16 && p->dtype != F32 && bytes <= 8 * ((size_t)128 << 10)) blocks = 8;
    return plan_for(p, blocks, 1);
}

/* --- How many teams run at the same time. --- */

static cudaLaunchConfig_t launch_team(const struct plan &plan, int threads, void *stream,
                                      cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = launch_of(plan.blocks, threads, sizeof(struct team_shared), stream);
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = plan.blocks;
    attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
    attribute[1].id = cudaLaunchAttributeCooperative; /* clusters wait for one another */
    attribute[1].val.cooperative = 1;
    config.attrs = attribute;
    config.numAttrs = plan.clusters > 1 ? 2 : 1;
    return config;
}

/* How many clusters can run at the same time; 0 where the GPU has no room for one, or runs code for
 * GPUs before Hopper. */
template <bool MANY, class T> static int ask_most_clusters(struct plan plan)
{
    auto *kernel = pipeline_kernel<MANY, T>;
    cudaFuncAttributes of;
    CUDA_CHECK(cudaFuncGetAttributes(&of, kernel));
    if (of.binaryVersion < 90) return 0;
    cudaLaunchAttribute attributes[2] = {};
    plan.clusters = 1;
    const cudaLaunchConfig_t config = launch_team(plan, BLOCK_THREADS<MANY>, NULL, attributes);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)config.dynamicSmemBytes));
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    int most;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&most, kernel, &config));
    return most;
}

/* The same, asked once for each device and size of a cluster. */
template <bool MANY, class T> static int most_clusters(const struct plan &plan)
{
    static std::atomic<int> known[MOST_DEVICES][CLUSTER_MAX + 1]; /* the answer + 1 */
    int device;
    CUDA_CHECK(cudaGetDevice(&device));
    if (device >= MOST_DEVICES) return ask_most_clusters<MANY, T>(plan);
    std::atomic<int> *answer = &known[device][plan.blocks];
    if (!*answer) *answer = ask_most_clusters<MANY, T>(plan) + 1;
    return *answer - 1;
}

/* Several clusters for a row: so many that a slice has SLICE_BYTES or less; then as many as make
 * the teams use all clusters.  Of a row that is too long two chunks of a slice are kept. */
static struct plan grid_plan(const struct problem *p)
{
    struct plan plan = plan_for(p, GRID_BLOCKS, 1);
    const int all = most_clusters<true, float>(plan);
    const int least = max(2, divide_up(row_bytes(p), GRID_BLOCKS * SLICE_BYTES));
    if (all < 2) return plan;
    const int teams = max(1, min(all / least, (int)min(p->rows, (size_t)all)));
    plan = plan_for(p, GRID_BLOCKS, min(all / teams, WARP));
    if (plan.chunks < plan.keep.stages) return plan;
    plan.chunk = 6 * ROLE_THREADS;
    plan.chunks = divide_up(plan.slice, plan.chunk);
    plan.keep = {0, 5};
    plan.once = {5, 2};
    plan.again = {7, 2};
    plan.kept = 2; /* the other three stages are for the next row */
    return plan;
}

/* --- The variants. --- */

static const char *cluster_refuses(const struct problem *p)
{
    if (row_bytes(p) > (p->dtype == F32 ? 2816 : 2048) << 10) /* measured on an H200 */
        return "rows of more than 2.75 MB, or 2 MB of 16-bit numbers";
    if (most_clusters<false, float>(cluster_plan(p)) == 0) return "this GPU: no room for a cluster";
    return NULL;
}

static const char *grid_refuses(const struct problem *p)
{
    const struct plan plan = grid_plan(p);
    if (plan.clusters == 1) return "this GPU: no room for two clusters";
    if (p->cols > (size_t)1 << 26 || (plan.kept < plan.chunks && p->rows < 4))
        return "few rows that are longer than the chip"; /* measured up to here */
    return NULL;
}

/* The counter of the rows that have been drawn; the state of each cluster of each row. */
static size_t cluster_workspace(const struct problem *p)
{
    (void)p;
    return sizeof(uint64_t);
}

static size_t grid_workspace(const struct problem *p)
{
    return p->rows * grid_plan(p).clusters * sizeof(uint64_t);
}

/* Launches as many teams as can run at the same time, or as there are rows. */
template <bool MANY>
static void launch_teams(const struct problem *p, const struct arrays *a, struct plan plan,
                         size_t words_bytes)
{
    if (p->rows == 0) return;
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        const int most = most_clusters<MANY, T>(plan) / plan.clusters;
        plan.teams = (size_t)most < p->rows ? most : (int)p->rows;
        if (MANY || p->rows > (size_t)most) /* else nobody draws a row */
            CUDA_CHECK(cudaMemsetAsync(a->workspace, MANY ? 0xff : 0, /* NOT_WRITTEN, or 0 */
                                       words_bytes, (cudaStream_t)a->stream));
        cudaLaunchAttribute attributes[2] = {};
        cudaLaunchConfig_t config = launch_team(plan, BLOCK_THREADS<MANY>, a->stream, attributes);
        config.gridDim.x = plan.teams * plan.clusters * plan.blocks;
        CUDA_CHECK(cudaLaunchKernelEx(&config, pipeline_kernel<MANY, T>, x, y, p->rows,
                                      (int)p->cols, plan, (uint64_t *)a->workspace,
                                      (int)(p->op == OP_LOGSOFTMAX)));
        CUDA_CHECK(cudaGetLastError());
    });
}

static void cluster(const struct problem *p, const struct arrays *a)
{
    launch_teams<false>(p, a, cluster_plan(p), cluster_workspace(p));
}

static void grid(const struct problem *p, const struct arrays *a)
{
    launch_teams<true>(p, a, grid_plan(p), grid_workspace(p));
}

#else /* the execution on the CPU has no clusters */
#define cluster_refuses NULL
#define cluster_workspace NULL
#define grid_refuses NULL
#define grid_workspace NULL
#endif

/* 1 read, 1 write; each exponential twice, because x is kept, not exp(x - m). */
static struct cost cluster_cost(const struct problem *p)
{
    return traffic(p, 2, 2);
}

/* The same, and a second read of what the multiprocessors of an H200 do not keep. */
static struct cost grid_cost(const struct problem *p)
{
    const double kept = 120 * 48 * 1024.0 / (double)row_bytes(p);
    return traffic(p, row_bytes(p) > 120 * ((size_t)208 << 10) ? 3 - kept : 2, 2);
}

GPU_VARIANT(gpu_cluster) = {
    .name = "gpu_cluster",
    .idea = "row in one cluster",
    SAFE_ON_GPU(90, ALL_TYPES),
    .refuses = cluster_refuses,
    .workspace = cluster_workspace,
    .cost = cluster_cost,
    .does = {{OP_SOFTMAX, GPU_ONLY(cluster)}, {OP_LOGSOFTMAX, GPU_ONLY(cluster)}},
    .on_gpu = GPU_TWIN(gpu_cluster),
};

GPU_VARIANT(gpu_grid) = {
    .name = "gpu_grid",
    .idea = "in many clusters",
    SAFE_ON_GPU(90, ALL_TYPES),
    .refuses = grid_refuses,
    .workspace = grid_workspace,
    .cost = grid_cost,
    .does = {{OP_SOFTMAX, GPU_ONLY(grid)}, {OP_LOGSOFTMAX, GPU_ONLY(grid)}},
    .on_gpu = GPU_TWIN(gpu_grid),
};
