/* team.cu: the GPUs of this process and NCCL between all ranks. */
#include "team.h"

#include <sched.h>
#include <stdarg.h>
#include <string.h>

extern "C" {
#include "measurement/timing.h"
}

struct gpu gpus[MOST_RANKS];
double team_patience;

__attribute__((format(printf, 1, 2), noreturn)) static void
fail(const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    world_abort(text);
}

void nccl_check(ncclResult_t result, const char *call)
{
    if (result != ncclSuccess)
        fail("rank %d: %.80s: %s", world.first, call, ncclGetErrorString(result));
}

/* NULL when this machine has the GPUs that this process needs. */
static const char *missing(void)
{
    static char text[160];
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) n = 0;
    cudaGetLastError();
    if (world.place + world.local > n) {
        snprintf(text, sizeof text, "skipped: %d GPU%s needed on this machine, which has %d",
                 world.place + world.local, world.place + world.local > 1 ? "s" : "", n);
        return text;
    }
    for (int i = world.place; i < world.place + world.local; i++) {
        int major = 0;
        CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i));
        if (major == 9) continue;
        snprintf(text, sizeof text, "skipped: GPU %d is sm_%d0; the last rung needs sm_90", i,
                 major);
        return text;
    }
    return NULL;
}

static void open_gpu(struct gpu *g)
{
    int least, most;
    CUDA_CHECK(cudaSetDevice(g->device));
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &most));
    CUDA_CHECK(cudaStreamCreateWithPriority(&g->compute, cudaStreamNonBlocking, least));
    CUDA_CHECK(cudaStreamCreateWithPriority(&g->copy, cudaStreamNonBlocking, most));
    CUDA_CHECK(cudaEventCreate(&g->began));
    CUDA_CHECK(cudaEventCreate(&g->ended));
    for (auto &steps : g->when)
        for (cudaEvent_t &event : steps) CUDA_CHECK(cudaEventCreate(&event));
}

const char *team_open(void)
{
    const char *why = missing();
    ncclUniqueId id;
    world.patience = 30;
    if (world_max(why != NULL) > 0) return why; /* nobody begins what another cannot */
    memset(&id, 0, sizeof id);
    if (world.first == 0) NCCL_CHECK(ncclGetUniqueId(&id));
    world_share(&id, sizeof id);
    for (int i = 0; i < world.local; i++) {
        gpus[i].rank = world.first + i;
        gpus[i].device = world.place + i;
        open_gpu(&gpus[i]);
    }
    NCCL_CHECK(ncclGroupStart());
    EACH_GPU(g) NCCL_CHECK(ncclCommInitRank(&g->comm, world.ranks, id, g->rank));
    NCCL_CHECK(ncclGroupEnd());
    return NULL;
}

static void close_gpu(struct gpu *g)
{
    CUDA_CHECK(cudaStreamDestroy(g->compute));
    CUDA_CHECK(cudaStreamDestroy(g->copy));
    CUDA_CHECK(cudaEventDestroy(g->began));
    CUDA_CHECK(cudaEventDestroy(g->ended));
    for (auto &steps : g->when)
        for (cudaEvent_t event : steps) CUDA_CHECK(cudaEventDestroy(event));
}

void team_close(void)
{
    NCCL_CHECK(ncclGroupStart());
    EACH_GPU(g) NCCL_CHECK(ncclCommDestroy(g->comm));
    NCCL_CHECK(ncclGroupEnd());
    EACH_GPU(g) close_gpu(g);
}

/* Is there still work on this GPU?  Ends everything on an error of CUDA or NCCL. */
static bool is_busy(const struct gpu *g)
{
    ncclResult_t error;
    NCCL_CHECK(ncclCommGetAsyncError(g->comm, &error));
    if (error != ncclSuccess && error != ncclInProgress)
        fail("rank %d: NCCL: %s", g->rank, ncclGetErrorString(error));
    cudaError_t compute = cudaStreamQuery(g->compute), copy = cudaStreamQuery(g->copy);
    if (compute == cudaErrorNotReady) compute = cudaSuccess, copy = cudaErrorNotReady;
    CUDA_CHECK(compute);
    if (copy == cudaErrorNotReady) return true;
    CUDA_CHECK(copy);
    return false;
}

void team_wait(void)
{
    double began = seconds_now();
    EACH_GPU(g)
        while (is_busy(g)) {
            if (seconds_now() - began > team_patience)
                fail("rank %d: no end after %.0f s; another rank has stopped, or the link",
                     g->rank, team_patience);
            sched_yield();
        }
}
