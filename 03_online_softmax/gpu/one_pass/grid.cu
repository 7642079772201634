/* grid.cu: softmax with one read and one write: the row in the shared memories of many blocks,
 * up to all of the GPU, that exchange their states in main memory (Hopper).  A row that is too
 * large for a cluster fits; of a row that is too large for the GPU the last part stays, and the
 * rest is read twice.  pipeline.h has the kernel; this file chooses how a row is cut. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"

#define PACKS_EACH 4 /* short chunks, so that more rows are on their way during an exchange */
#define STAGES 13
#include "team_launch.h"

#ifdef __CUDACC__

/* The blocks that share a row: as few as have slices of 44 KB, so that the buffer has room for
 * several rows; then as many as make the teams use every multiprocessor. */
static struct plan plan_of(const struct problem *p)
{
    const size_t blocks = device_attribute(cudaDevAttrMultiProcessorCount);
    size_t teams = blocks / (row_bytes(p) / (44 << 10) + 1);
    if (teams > p->rows) teams = p->rows;
    if (teams == 0) teams = 1;
    const size_t each = blocks / teams;
    struct plan plan = plan_for(p, (int)(each < GRID_MAX ? each : GRID_MAX));
    const int kept = STAGES - 2; /* the others are on their way */
    if (plan.chunks > kept) plan.twice = plan.chunks - kept;
    return plan;
}

static const char *grid_refuses(const struct problem *p)
{
    const struct plan plan = plan_of(p);
    if (p->cols > (size_t)1 << 26 || (plan.twice && p->rows < 4)) /* measured up to here */
        return "few rows that are longer than the chip";
    return team_refuses<true>(plan);
}

/* The state of every block of a row. */
static size_t words_of(const struct problem *p)
{
    return p->rows * plan_of(p).blocks;
}

static size_t grid_workspace(const struct problem *p)
{
    return words_of(p) * sizeof(uint64_t);
}

static void grid(const struct problem *p, const struct arrays *a)
{
    launch_teams<true>(p, a, plan_of(p), words_of(p), 0xff); /* NOT_WRITTEN */
}

#else /* the execution on the CPU has no bulk copy */
#define grid_refuses NULL
#define grid_workspace NULL
#endif

/* 1 read, 1 write, and a second read of what the 132 multiprocessors of an H200 do not keep; each
 * exponential twice, because x is kept, not exp(x - m). */
static struct cost cost(const struct problem *p)
{
    const double kept = 132 * 176 * 1024.0 / (double)row_bytes(p);
    return traffic(p, kept < 1 ? 3 - kept : 2, 2);
}

GPU_VARIANT(gpu_grid) = {
    .name = "gpu_grid",
    .idea = "row in many blocks",
    SAFE_ON_GPU(90, ALL_TYPES),
    .refuses = grid_refuses,
    .workspace = grid_workspace,
    .cost = cost,
    .does = {{OP_SOFTMAX, GPU_ONLY(grid)}, {OP_LOGSOFTMAX, GPU_ONLY(grid)}},
    .on_gpu = GPU_TWIN(gpu_grid),
};
