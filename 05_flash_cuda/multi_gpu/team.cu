/* team.cu: the GPUs of this process and NCCL between all ranks. */
#include "team.h"

#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((format(printf, 2, 3), noreturn)) static void
fail(const struct team *t, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    world_abort(t->world, text);
}

void nccl_check(const struct team *t, ncclResult_t result, const char *call)
{
    if (result != ncclSuccess)
        fail(t, "rank %d: %.80s: %s", t->world->first, call, ncclGetErrorString(result));
}

/* NULL when this machine has the GPUs that this process needs. */
static const char *missing(const struct world *w)
{
    static char text[160];
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) n = 0;
    cudaGetLastError();
    if (w->device + w->local > n) {
        snprintf(text, sizeof text, "skipped: %d GPU%s needed on this machine, which has %d",
                 w->device + w->local, w->device + w->local > 1 ? "s" : "", n);
        return text;
    }
    for (int i = 0; i < w->local; i++) {
        int major = 0;
        CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                          w->device + i));
        if (major == 9) continue;
        snprintf(text, sizeof text, "skipped: GPU %d is sm_%d0; the last rung needs sm_90",
                 w->device + i, major);
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
    for (int i = 0; i < MOST_RANKS; i++) {
        CUDA_CHECK(cudaEventCreate(&g->compute_began[i]));
        CUDA_CHECK(cudaEventCreate(&g->computed[i]));
        CUDA_CHECK(cudaEventCreate(&g->copy_began[i]));
        CUDA_CHECK(cudaEventCreate(&g->arrived[i]));
    }
}

int team_open(struct team *t, const struct world *w)
{
    memset(t, 0, sizeof *t);
    t->world = w;
    t->patience = 15;
    int status = world_agree(w, missing(w), 77);
    if (status) return status;
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (w->first == 0) NCCL_CHECK(t, ncclGetUniqueId(&id));
    world_share(&id, sizeof id);
    for (int i = 0; i < w->local; i++) {
        t->gpu[i].rank = w->first + i;
        t->gpu[i].device = w->device + i;
        open_gpu(&t->gpu[i]);
    }
    NCCL_CHECK(t, ncclGroupStart());
    for (int i = 0; i < w->local; i++) {
        CUDA_CHECK(cudaSetDevice(t->gpu[i].device));
        NCCL_CHECK(t, ncclCommInitRank(&t->gpu[i].comm, w->ranks, id, t->gpu[i].rank));
    }
    NCCL_CHECK(t, ncclGroupEnd());
    return 0;
}

static void close_gpu(struct gpu *g)
{
    CUDA_CHECK(cudaSetDevice(g->device));
    CUDA_CHECK(cudaStreamDestroy(g->compute));
    CUDA_CHECK(cudaStreamDestroy(g->copy));
    CUDA_CHECK(cudaEventDestroy(g->began));
    CUDA_CHECK(cudaEventDestroy(g->ended));
    for (int i = 0; i < MOST_RANKS; i++) {
        CUDA_CHECK(cudaEventDestroy(g->compute_began[i]));
        CUDA_CHECK(cudaEventDestroy(g->computed[i]));
        CUDA_CHECK(cudaEventDestroy(g->copy_began[i]));
        CUDA_CHECK(cudaEventDestroy(g->arrived[i]));
    }
}

void team_close(struct team *t)
{
    NCCL_CHECK(t, ncclGroupStart());
    for (int i = 0; i < t->world->local; i++) NCCL_CHECK(t, ncclCommDestroy(t->gpu[i].comm));
    NCCL_CHECK(t, ncclGroupEnd());
    for (int i = 0; i < t->world->local; i++) close_gpu(&t->gpu[i]);
}

/* Is there still work on this GPU?  Ends everything on an error of CUDA or NCCL. */
static bool is_busy(const struct team *t, const struct gpu *g)
{
    ncclResult_t error;
    CUDA_CHECK(cudaSetDevice(g->device));
    NCCL_CHECK(t, ncclCommGetAsyncError(g->comm, &error));
    if (error != ncclSuccess && error != ncclInProgress)
        fail(t, "rank %d: NCCL: %s", g->rank, ncclGetErrorString(error));
    cudaError_t compute = cudaStreamQuery(g->compute), copy = cudaStreamQuery(g->copy);
    if (compute == cudaErrorNotReady) compute = cudaSuccess, copy = cudaErrorNotReady;
    CUDA_CHECK(compute);
    if (copy == cudaErrorNotReady) return true;
    CUDA_CHECK(copy);
    return false;
}

void team_wait(struct team *t)
{
    double began = now();
    for (int i = 0; i < t->world->local; i++)
        while (is_busy(t, &t->gpu[i])) {
            if (now() - began > t->patience)
                fail(t, "rank %d: no end after %.0f s; another rank has stopped, or the link",
                     t->gpu[i].rank, t->patience);
            sched_yield();
        }
}

double team_seconds(const struct team *t)
{
    double longest = 0;
    for (int i = 0; i < t->world->local; i++) {
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, t->gpu[i].began, t->gpu[i].ended));
        if (1e-3 * ms > longest) longest = 1e-3 * ms;
    }
    return world_max(longest);
}
