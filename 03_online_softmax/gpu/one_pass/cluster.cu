/* cluster.cu: softmax with one read and one write: the row in the shared memories of up to 16
 * blocks that write into each other's (Hopper).  cluster.h has the kernel; this file chooses
 * how a row is cut, and launches.
 *
 * x and y [rows, cols] are 16-byte aligned and do not overlap; any row may start anywhere.  A
 * row that is all -inf gives 0 (logsoftmax: -inf), a row with NaN or +inf gives NaN. */
#include "stage.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "cluster.h"

#include <atomic>

#ifdef __CUDACC__

/* The plan for clusters of `blocks` blocks: the row cut into equal slices, a slice into equal
 * chunks.  A slice that does not fit makes stages less than chunks. */
static struct plan plan_for(const struct problem *p, int blocks)
{
    const int packs = row_bytes(p) < 16 ? 1 : (int)(row_bytes(p) / 16);
    struct plan plan = {};
    plan.blocks = blocks;
    plan.slice = (packs + blocks - 1) / blocks;
    plan.chunks = (plan.slice + CHUNK_MAX - 1) / CHUNK_MAX;
    plan.chunk = ((plan.slice + plan.chunks - 1) / plan.chunks + 7) / 8 * 8;
    plan.stages = BUFFER_BYTES / 16 / plan.chunk;
    if (plan.stages > STAGES_MAX) plan.stages = STAGES_MAX;
    return plan;
}

/* The blocks of the cluster that holds a row: slices of 64 to 128 KB (more in the largest),
 * so that the buffer has room for the next row. */
static struct plan plan_of(const struct problem *p)
{
    const size_t kb = (row_bytes(p) + 1023) / 1024;
    return plan_for(p, kb <= 128 ? 1 : kb <= 256 ? 2 : kb <= 1024 ? 8 : 16);
}

static cudaLaunchConfig_t launch_clusters(const struct plan &plan, void *stream,
                                          cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = launch_of(plan.blocks, BLOCK_THREADS,
                                          sizeof(struct cluster_shared), stream);
    attribute->id = cudaLaunchAttributeClusterDimension;
    attribute->val.clusterDim.x = plan.blocks;
    attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return config;
}

/* Answers are kept for so many devices; others are asked again. */
enum { DEVICES = 16 };

/* The present device's place in an array of DEVICES, and a place that is not kept. */
static int device_slot(void)
{
    int device;
    CUDA_CHECK(cudaGetDevice(&device));
    return device < DEVICES ? device : DEVICES;
}

/* How many clusters can run at the same time; 0 when the GPU has no room for one.  Asked
 * once for each device and size of a cluster. */
template <class T> static int most_clusters(const struct plan &plan)
{
    static std::atomic<int> known[DEVICES + 1][CLUSTER_MAX + 1]; /* the answer + 1 */
    const int slot = device_slot();
    std::atomic<int> *answer = &known[slot][plan.blocks];
    if (slot < DEVICES && *answer) return *answer - 1;
    auto *kernel = cluster_kernel<T>;
    cudaLaunchAttribute attribute = {};
    const cudaLaunchConfig_t config = launch_clusters(plan, NULL, &attribute);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)config.dynamicSmemBytes));
    CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    int clusters;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    *answer = clusters + 1;
    return clusters;
}

static const char *cluster_refuses(const struct problem *p)
{
    static std::atomic<int> versions[DEVICES + 1]; /* of the code that each GPU would run */
    const int slot = device_slot();
    const struct plan plan = plan_of(p);
    int version = slot < DEVICES ? versions[slot].load() : 0;
    if (!version) {
        cudaFuncAttributes kernel;
        CUDA_CHECK(cudaFuncGetAttributes(&kernel, cluster_kernel<float>));
        versions[slot] = version = kernel.binaryVersion;
    }
    if (version < 90) return "GPUs before Hopper";
    if (plan.stages < plan.chunks) return "rows of that length: no room on the chip";
    if (most_clusters<float>(plan) == 0)
        return "this GPU: too few multiprocessors together";
    return NULL;
}

/* Launches as many clusters as can run at the same time, or as there are rows. */
static void cluster(const struct problem *p, const struct arrays *a)
{
    if (p->rows == 0) return;
    struct plan plan = plan_of(p);
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        const int clusters = most_clusters<T>(plan);
        plan.clusters = (size_t)clusters < p->rows ? clusters : (int)p->rows;
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = launch_clusters(plan, a->stream, &attribute);
        config.gridDim.x = plan.clusters * plan.blocks;
        CUDA_CHECK(cudaLaunchKernelEx(&config, cluster_kernel<T>, x, y, p->rows,
                                      (int)p->cols, plan, (int)(p->op == OP_LOGSOFTMAX)));
        CUDA_CHECK(cudaGetLastError());
    });
}

#else /* the execution on the CPU has no bulk copy */
#define cluster_refuses NULL
#endif

/* 1 read, 1 write; each exponential twice, because x is kept, not exp(x - m). */
static struct cost cost(const struct problem *p)
{
    return traffic(p, 2, 2);
}

GPU_VARIANT(gpu_cluster) = {
    .name = "gpu_cluster",
    .idea = "row in one cluster",
    .group = IN_GPU,
    .device = GPU_DEVICE,
    .least_arch = 90,
    .types = ALL_TYPES,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = cluster_refuses,
    .cost = cost,
    .does = {{OP_SOFTMAX, GPU_ONLY(cluster)}, {OP_LOGSOFTMAX, GPU_ONLY(cluster)}},
    .on_gpu = GPU_TWIN(gpu_cluster),
};
