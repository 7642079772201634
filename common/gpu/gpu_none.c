/* gpu_none.c: what gpu.h means in a program built without nvcc: there is no GPU. */
#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

static int forbidden;

static void cannot_happen(const char *name)
{
    fprintf(stderr, "%s called in a program built without nvcc\n", name);
    exit(1);
}

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

double gpu_gemm_gflops(int dtype)
{
    (void)dtype;
    return 0;
}

void *gpu_alloc(size_t bytes)
{
    (void)bytes;
    cannot_happen("gpu_alloc");
    return NULL;
}

void gpu_free(void *d)
{
    (void)d;
    cannot_happen("gpu_free");
}

void gpu_upload(void *d, const void *h, size_t bytes)
{
    (void)d, (void)h, (void)bytes;
    cannot_happen("gpu_upload");
}

void gpu_download(void *h, const void *d, size_t bytes)
{
    (void)h, (void)d, (void)bytes;
    cannot_happen("gpu_download");
}

void gpu_wait(void)
{
    cannot_happen("gpu_wait");
}

double gpu_time(void (*call)(void *), void *context, int cold)
{
    (void)call, (void)context, (void)cold;
    cannot_happen("gpu_time");
    return 0;
}
