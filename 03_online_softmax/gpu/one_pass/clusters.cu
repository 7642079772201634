/* clusters.cu: softmax with one read and one write: the row in the shared memories of a cluster of
 * up to 16 blocks (Hopper).  row_pipeline.h has the kernel; this file chooses how a row is cut. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/device.h"
#include "gpu/gpu_rows.h"
#include "row_pipeline.h"

#include <atomic>

#define SLICE_BYTES ((size_t)80 << 10) /* the buffer has room for the next row's */

#ifdef __CUDACC__

/* --- How a row is cut. --- */

static int divide_up(size_t n, size_t by) { return (int)((n + by - 1) / by); }

/* What a slice takes in chunks of `each` packs a thread, in units of a pack of all threads.  A
 * chunk takes a barrier, too. */
static int time_of(int slice, int each)
{
    const int chunk = each * ROLE_THREADS, chunks = divide_up(slice, chunk);
    return chunks + (chunks - 1) * each + divide_up(slice - (chunks - 1) * chunk, ROLE_THREADS);
}

static int stages_of(int each) { return min(MOST_STAGES, BUFFER / (each * ROLE_THREADS)); }

/* The plan for clusters of so many blocks: the row in equal slices of whole lines.  The buffer has
 * room for a part of the next row. */
static struct plan plan_for(const struct problem *p, int blocks)
{
    const int packs = (int)(row_bytes(p) / 16);
    struct plan plan = {};
    plan.blocks = blocks;
    plan.slice = max(1, divide_up(divide_up(packs, LINE_PACKS), blocks)) * LINE_PACKS;
    int each = 4;
    for (int more = 5; more <= MOST_EACH; more++)
        if (divide_up(plan.slice, more * ROLE_THREADS) + 4 <= stages_of(more) &&
            time_of(plan.slice, more) < time_of(plan.slice, each))
            each = more;
    plan.chunk = each * ROLE_THREADS;
    plan.chunks = divide_up(plan.slice, plan.chunk);
    plan.stages = stages_of(each);
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
    return plan_for(p, blocks);
}

/* --- How many clusters run at the same time. --- */

static cudaLaunchConfig_t launch_cluster(int blocks, void *stream, cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = launch_of(blocks, BLOCK_THREADS, sizeof(struct team_shared), stream);
    attribute->id = cudaLaunchAttributeClusterDimension;
    attribute->val.clusterDim.x = blocks;
    attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return config;
}

/* How many clusters can run at the same time; 0 where the GPU has no room for one, or runs code for
 * GPUs before Hopper. */
template <class T> static int ask_most_clusters(int blocks)
{
    auto *kernel = pipeline_kernel<T>;
    cudaFuncAttributes of;
    CUDA_CHECK(cudaFuncGetAttributes(&of, kernel));
    if (of.binaryVersion < 90) return 0;
    cudaLaunchAttribute attribute = {};
    const cudaLaunchConfig_t config = launch_cluster(blocks, NULL, &attribute);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)config.dynamicSmemBytes));
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    int most;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&most, kernel, &config));
    return most;
}

/* The same, asked once for each device and size of a cluster. */
template <class T> static int most_clusters(int blocks)
{
    static std::atomic<int> known[MOST_DEVICES][CLUSTER_MAX + 1]; /* the answer + 1 */
    int device;
    CUDA_CHECK(cudaGetDevice(&device));
    if (device >= MOST_DEVICES) return ask_most_clusters<T>(blocks);
    std::atomic<int> *answer = &known[device][blocks];
    if (!*answer) *answer = ask_most_clusters<T>(blocks) + 1;
    return *answer - 1;
}

/* --- The variant. --- */

static const char *cluster_refuses(const struct problem *p)
{
    if (row_bytes(p) > (p->dtype == F32 ? 2816 : 2048) << 10) /* measured on an H200 */
        return "rows of more than 2.75 MB, or 2 MB of 16-bit numbers";
    return most_clusters<float>(cluster_plan(p).blocks) ? NULL : "this GPU: no room for a cluster";
}

/* The counter of the rows that have been drawn. */
static size_t cluster_workspace(const struct problem *p)
{
    (void)p;
    return sizeof(uint64_t);
}

/* Launches as many clusters as can run at the same time, but no more than there are rows. */
static void cluster(const struct problem *p, const struct arrays *a)
{
    struct plan plan = cluster_plan(p);
    if (p->rows == 0) return;
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        const int most = most_clusters<T>(plan.blocks);
        plan.clusters = (size_t)most < p->rows ? most : (int)p->rows;
        if (p->rows > (size_t)most) /* else nobody draws a row */
            CUDA_CHECK(cudaMemsetAsync(a->workspace, 0, sizeof(uint64_t),
                                       (cudaStream_t)a->stream));
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = launch_cluster(plan.blocks, a->stream, &attribute);
        config.gridDim.x = plan.clusters * plan.blocks;
        CUDA_CHECK(cudaLaunchKernelEx(&config, pipeline_kernel<T>, x, y, p->rows, (int)p->cols,
                                      plan, (uint64_t *)a->workspace,
                                      (int)(p->op == OP_LOGSOFTMAX)));
    });
}

#else /* the execution on the CPU has no clusters */
#define cluster_refuses NULL
#define cluster_workspace NULL
#endif

GPU_VARIANT(gpu_cluster, "row in one cluster",
    SAFE_ON_GPU(90, ALL_TYPES), .refuses = cluster_refuses, .workspace = cluster_workspace,
    .cost = traffic<2, 2>, /* each exponential twice: x is kept, not exp(x - m) */
    .does = {{OP_SOFTMAX, GPU_ONLY(cluster)}, {OP_LOGSOFTMAX, GPU_ONLY(cluster)}});
