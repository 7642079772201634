/* cluster.cu: softmax with one read and one write: the row in the shared memories of up to 16
 * blocks that write into each other's (Hopper).  pipeline.h has the kernel; this file chooses
 * how a row is cut. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

#define PACKS_EACH 6 /* long chunks: each takes a barrier and a chain of dependent instructions */
#define STAGES 8
#include "team_launch.h"

#ifdef __CUDACC__

/* The blocks of the cluster that holds a row: so many that the buffer has room for a part of the
 * next row too, and for all of it with floats, which the threads sum faster. */
static struct plan plan_of(const struct problem *p)
{
    const size_t most = (size_t)(p->dtype == F32 ? 80 : 128) << 10; /* bytes of a slice */
    int blocks = 1;
    while (blocks < CLUSTER_MAX && row_bytes(p) > blocks * most) blocks *= 2;
    return plan_for(p, blocks);
}

static const char *cluster_refuses(const struct problem *p)
{
    if (row_bytes(p) > CLUSTER_MAX * ((size_t)128 << 10)) return "rows of more than 2 MB";
    return team_refuses<false>(plan_of(p));
}

/* The counter of the rows that have been drawn. */
static size_t cluster_workspace(const struct problem *p)
{
    (void)p;
    return sizeof(uint64_t);
}

static void cluster(const struct problem *p, const struct arrays *a)
{
    launch_teams<false>(p, a, plan_of(p), 1, 0);
}

#else /* the execution on the CPU has no bulk copy */
#define cluster_refuses NULL
#define cluster_workspace NULL
#endif

/* 1 read, 1 write; each exponential twice, because x is kept, not exp(x - m). */
static struct cost cost(const struct problem *p)
{
    return traffic(p, 2, 2);
}

GPU_VARIANT(gpu_cluster) = {
    .name = "gpu_cluster",
    .idea = "row in one cluster",
    SAFE_ON_GPU(90, ALL_TYPES),
    .refuses = cluster_refuses,
    .workspace = cluster_workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, GPU_ONLY(cluster)}, {OP_LOGSOFTMAX, GPU_ONLY(cluster)}},
    .on_gpu = GPU_TWIN(gpu_cluster),
};
