/* launch.h: how the portable rungs start their kernel. */
#ifndef PORTABLE_LAUNCH_H
#define PORTABLE_LAUNCH_H

#include "harness.h"
#include "gpu/device.h"

/* Launches `blocks` blocks of `threads` threads with sizeof(MEMORY) bytes of shared memory
 * each.  CUDA gives more than 48 KB only to a kernel for which this has been asked. */
template <class MEMORY, class ARGUMENT>
static void start(void (*kernel)(ARGUMENT), size_t blocks, int threads, void *stream,
                  const ARGUMENT &argument)
{
    allow_shared(kernel, sizeof(MEMORY));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = sizeof(MEMORY);
    config.stream = (cudaStream_t)stream;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, argument));
}

#endif
