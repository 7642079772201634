/* on_ramp.h: what the four programs share beside their lesson: arrays that both the CPU and
 * the GPU can use, a launch that waits, and a comparison. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/cuda_check.h"

/* n floats that the CPU and the GPU read and write at the same address. */
static float *new_array(size_t n)
{
    void *memory = NULL;
#ifdef __CUDACC__
    CUDA_CHECK(cudaMallocManaged(&memory, n * sizeof(float)));
#else
    memory = calloc(n, sizeof(float));
    if (!memory) exit(1);
#endif
    return (float *)memory;
}

/* Starts `blocks` blocks of `threads` threads, which all execute the kernel, and waits for
 * the last one.  Most books write kernel<<<blocks, threads, shared_bytes>>>(arguments). */
template <class Kernel, class... Arguments>
static void launch(Kernel kernel, int blocks, int threads, size_t shared_bytes,
                   Arguments... arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
    CUDA_CHECK(cudaGetLastError());
#ifdef __CUDACC__
    CUDA_CHECK(cudaDeviceSynchronize());
#endif
}

/* Prints whether all n results are right, to one part in 100 000.  Returns 0 or, when one is
 * wrong, 1: what main() returns. */
static int compare(const float *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f * fabsf(want[i]))) {
            printf("WRONG: result %d is %g, it should be %g\n", i, got[i], want[i]);
            return 1;
        }
    printf("right: all %d results\n", n);
    return 0;
}
