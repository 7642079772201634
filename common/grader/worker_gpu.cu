/* worker_gpu.cu: the arrays of a worker on the GPU, and its main().
 *
 * A project's file names its variant `project`; compiled by nvcc that is project_cuda. */
#include "harness.h"

#include <unistd.h>

#include "gpu/cuda_check.h"
#include "grader/gpu_share.h"
#include "grader/worker_memory.h"

extern "C" const struct variant project_cuda;

static char *allocated(size_t n)
{
    char *p = NULL;
    CUDA_CHECK(cudaMalloc(&p, n));
    return p;
}

extern "C" char *memory_to_device(char *host, size_t n)
{
    char *p = allocated(n);
    CUDA_CHECK(cudaMemcpy(p, host, n, cudaMemcpyHostToDevice));
    return p;
}

extern "C" void memory_from_device(char *host, char *device, size_t n)
{
    CUDA_CHECK(cudaMemcpy(host, device, n, cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(device));
}

/* Opened once: opening takes longer than a kernel. */
extern "C" char *memory_of_judge(size_t n, char *file)
{
    static char *place;
    (void)file;
    if (!place) place = share_open(GPU_FD, n);
    return place;
}

/* Kept and grown: an allocation would be timed. */
extern "C" void *memory_for_work(size_t n)
{
    static char *kept;
    static size_t size;
    if (size < n) {
        if (kept) CUDA_CHECK(cudaFree(kept));
        kept = allocated(n);
        size = n;
    }
    return kept;
}

extern "C" void memory_free_work(void *p)
{
    (void)p;
}

extern "C" void memory_wait(void)
{
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    static const struct variant *const variants[] = {&project_cuda, NULL};
    static const struct stage stage = {.number = 5, .name = "project", .idea = "project",
                                       .variants = variants};
    return stage_main(argc, argv, &stage);
}
