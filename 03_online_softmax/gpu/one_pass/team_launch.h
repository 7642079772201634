/* team_launch.h: how a row is cut for a team of blocks, and the launch (team.h, pipeline.h). */
#ifndef TEAM_LAUNCH_H
#define TEAM_LAUNCH_H

#include "pipeline.h"

#include <atomic>

#ifdef __CUDACC__

/* The plan for teams of `blocks` blocks: the row in equal slices, a slice in equal chunks, of whole
 * lines: a chunk that is nearly empty would take as long as a barrier. */
static inline struct plan plan_for(const struct problem *p, int blocks)
{
    const size_t packs = row_bytes(p) / 16, lines = (packs + LINE_PACKS - 1) / LINE_PACKS;
    struct plan plan = {};
    plan.blocks = blocks;
    plan.slice = (int)((lines + blocks - 1) / blocks) * LINE_PACKS;
    if (plan.slice == 0) plan.slice = LINE_PACKS;
    plan.chunks = (plan.slice + CHUNK - 1) / CHUNK;
    plan.chunk = (plan.slice / LINE_PACKS + plan.chunks - 1) / plan.chunks * LINE_PACKS;
    return plan;
}

/* Answers are kept for so many devices; others are asked again. */
enum { DEVICES = 16 };

/* The present device's place in an array of DEVICES, and a place that is not kept. */
static inline int device_slot(void)
{
    int device;
    CUDA_CHECK(cudaGetDevice(&device));
    return device < DEVICES ? device : DEVICES;
}

/* A launch of one team; `attribute` is what makes it a cluster, or lets its blocks wait for
 * one another. */
template <bool GRID>
static cudaLaunchConfig_t launch_team(const struct plan &plan, void *stream,
                                      cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = launch_of(plan.blocks, BLOCK_THREADS<GRID>,
                                          sizeof(struct team_shared), stream);
    attribute->id = GRID ? cudaLaunchAttributeCooperative
                         : cudaLaunchAttributeClusterDimension;
    if (GRID) {
        attribute->val.cooperative = 1;
    } else {
        attribute->val.clusterDim.x = plan.blocks;
        attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    }
    config.attrs = attribute;
    config.numAttrs = 1;
    return config;
}

/* How many teams can run at the same time; 0 when the GPU has no room for one. */
template <bool GRID, class T> static int ask_most_teams(const struct plan &plan)
{
    auto *kernel = pipeline_kernel<GRID, T>;
    cudaLaunchAttribute attribute = {};
    const cudaLaunchConfig_t config = launch_team<GRID>(plan, NULL, &attribute);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)config.dynamicSmemBytes));
    int most;
    if (GRID) {
        CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &most, kernel, BLOCK_THREADS<GRID>, config.dynamicSmemBytes));
        most = most * device_attribute(cudaDevAttrMultiProcessorCount) / plan.blocks;
    } else {
        CUDA_CHECK(cudaFuncSetAttribute(
            kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
        CUDA_CHECK(cudaOccupancyMaxActiveClusters(&most, kernel, &config));
    }
    return most;
}

/* The same, asked once for each device and size of a team. */
template <bool GRID, class T> static int most_teams(const struct plan &plan)
{
    static std::atomic<int> known[DEVICES + 1][GRID_MAX + 1]; /* the answer + 1 */
    const int slot = device_slot();
    std::atomic<int> *answer = &known[slot][plan.blocks];
    if (slot == DEVICES || !*answer) *answer = ask_most_teams<GRID, T>(plan) + 1;
    return *answer - 1;
}

/* Why this GPU cannot run the plan, or NULL. */
template <bool GRID> static const char *team_refuses(const struct plan &plan)
{
    static std::atomic<int> versions[DEVICES + 1]; /* of the code that each GPU would run */
    const int slot = device_slot();
    int version = slot < DEVICES ? versions[slot].load() : 0;
    if (!version) {
        cudaFuncAttributes kernel;
        CUDA_CHECK(cudaFuncGetAttributes(&kernel, pipeline_kernel<GRID, float>));
        versions[slot] = version = kernel.binaryVersion;
    }
    if (version < 90) return "GPUs before Hopper";
    if (!GRID && plan.chunks > STAGES) return "rows of that length: no room on the chip";
    if (most_teams<GRID, float>(plan) == 0)
        return "this GPU: too few multiprocessors together";
    return NULL;
}

/* Launches as many teams as can run at the same time, or as there are rows.  Before, sets
 * every byte of the words that they exchange to `empty`. */
template <bool GRID>
static void launch_teams(const struct problem *p, const struct arrays *a, struct plan plan,
                         size_t words, int empty)
{
    if (p->rows == 0) return;
    CUDA_CHECK(cudaMemsetAsync(a->workspace, empty, words * sizeof(uint64_t),
                               (cudaStream_t)a->stream));
    with_type(p, a, [&]<class T>(const T *x, T *y) {
        const int most = most_teams<GRID, T>(plan);
        plan.teams = (size_t)most < p->rows ? most : (int)p->rows;
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = launch_team<GRID>(plan, a->stream, &attribute);
        config.gridDim.x = plan.teams * plan.blocks;
        CUDA_CHECK(cudaLaunchKernelEx(&config, pipeline_kernel<GRID, T>, x, y, p->rows,
                                      (int)p->cols, plan, (uint64_t *)a->workspace,
                                      (int)(p->op == OP_LOGSOFTMAX)));
        CUDA_CHECK(cudaGetLastError());
    });
}

#endif
#endif
