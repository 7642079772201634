/* device.h: what a launch asks of the present device.  A decoding step is short, so it asks once. */
#pragma once

#include <stdlib.h>

#include <atomic>

#include "gpu/cuda_check.h"

enum { MOST_DEVICES = 16 };

/* An attribute of the device. */
template <enum cudaDeviceAttr what> static inline int device_attribute(void)
{
    static std::atomic<int> known[MOST_DEVICES]; /* the value + 1; 0: not asked yet */
    int device, value;
    CUDA_CHECK(cudaGetDevice(&device));
    if (device < MOST_DEVICES && known[device]) return known[device] - 1;
    CUDA_CHECK(cudaDeviceGetAttribute(&value, what, device));
    if (device < MOST_DEVICES) known[device] = value + 1;
    return value;
}

/* Bytes of shared memory that a block may have.  For tests, the environment's SHARED_KIB makes
 * them fewer: any GPU, and the CPU, then takes the tiles of one with less shared memory. */
static inline size_t shared_memory_limit(void)
{
    static const char *fewer = getenv("SHARED_KIB");
    size_t limit = device_attribute<cudaDevAttrMaxSharedMemoryPerBlockOptin>();
    return fewer && (size_t)atoi(fewer) << 10 < limit ? (size_t)atoi(fewer) << 10 : limit;
}

/* Lets a kernel have so many bytes of dynamic shared memory. */
template <class KERNEL> static inline void allow_shared(KERNEL *kernel, size_t bytes)
{
    enum { PLACES = 64 }; /* each remembers the last kernel that fell on it, and its bytes */
    static std::atomic<size_t> told[MOST_DEVICES][PLACES];
    const size_t place = (size_t)kernel / 64 % PLACES, what = (size_t)kernel << 16 ^ bytes / 16;
    int device;
    CUDA_CHECK(cudaGetDevice(&device));
    if (device < MOST_DEVICES && told[device][place] == what) return;
    CUDA_CHECK(bytes > shared_memory_limit() ? cudaErrorInvalidValue
               : cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)bytes));
    if (device < MOST_DEVICES) told[device][place] = what;
}
