/* gpu_none.c: what gpu.h means in a program built without nvcc: there is no GPU. */
#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

static int forbidden;

int gpu_arch(void) { return 0; }
const char *gpu_name(void) { return ""; }
void gpu_forbid(void) { forbidden = 1; }
size_t gpu_memory_free(void) { return 0; }
double gpu_copy_gbps(void) { return 0; }
double gpu_read_gbps(void) { return 0; }

const char *gpu_why_not(void)
{
    return forbidden ? "--device cpu" : "built without GPU code: make cuda needs nvcc";
}

const char *gpu_has_code_for(int least)
{
    (void)least;
    return gpu_why_not();
}

/* No variant computes on a GPU here, so these are never called. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NEVER(type, name, ...)                                                     \
    type name(__VA_ARGS__)                                                         \
    {                                                                              \
        fprintf(stderr, "%s called in a program built without nvcc\n", #name);     \
        exit(1);                                                                   \
    }
NEVER(double, gpu_gemm_gflops, int dtype)
NEVER(void *, gpu_alloc, size_t bytes)
NEVER(void, gpu_free, void *d)
NEVER(void, gpu_upload, void *d, const void *h, size_t bytes)
NEVER(void, gpu_download, void *h, const void *d, size_t bytes)
NEVER(void, gpu_wait, void)
NEVER(double, gpu_time, void (*call)(void *), void *context, int cold)
