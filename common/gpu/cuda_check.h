/* cuda_check.h: what every CUDA file includes after stage.h.
 *
 * A CUDA file is compiled twice: by nvcc for the GPU, and by the C++ compiler for the CPU,
 * where cuda_on_cpu.h provides the same names and executes the kernels block by block.
 *
 *     GPU_VARIANT(tiled) = { .name = "tiled", ..., .on_gpu = GPU_TWIN(tiled) };
 *
 * defines the descriptor `tiled` (CPU build) and its twin `tiled_cuda` (nvcc build).
 * Everything else in such a file is static, because both objects are linked into one program.
 * GPU_ONLY(f) is f for the GPU; on the CPU it marks a variant that is not executed there. */
#ifndef CUDA_CHECK_H
#define CUDA_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* A descriptor leaves out what does not apply. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define GPU_DEVICE ON_GPU
#define GPU_VARIANT(name)                                                                  \
    extern "C" const struct variant name##_cuda;                                           \
    extern "C" const struct variant name##_cuda
#define GPU_TWIN(name) NULL
#define GPU_ONLY(f) f

/* The block's shared memory as a T; launch with sizeof(T) bytes of it. */
template <class T> static __device__ __forceinline__ T &dynamic_shared()
{
    extern __shared__ __align__(1024) unsigned char dynamic_shared_bytes[];
    return *reinterpret_cast<T *>(dynamic_shared_bytes);
}
#else
#include "cuda_on_cpu/cuda_on_cpu.h"
#define GPU_DEVICE GPU_ON_CPU
#define GPU_ONLY(f) needs_gpu
#ifdef HAVE_CUDA
#define GPU_VARIANT(name)                                                                  \
    extern "C" const struct variant name##_cuda;                                           \
    extern "C" const struct variant name;                                                  \
    extern "C" const struct variant name
#define GPU_TWIN(name) &name##_cuda
#else
#define GPU_VARIANT(name)                                                                  \
    extern "C" const struct variant name;                                                  \
    extern "C" const struct variant name
#define GPU_TWIN(name) NULL
#endif
#endif

/* Every CUDA runtime call sits in this: an error prints file, line, call and the error's
 * name, and exits 1. */
#define CUDA_CHECK(call)                                                                   \
    do {                                                                                   \
        cudaError_t cuda_check_error = (call);                                             \
        if (cuda_check_error != cudaSuccess) {                                             \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call,             \
                    cudaGetErrorName(cuda_check_error),                                    \
                    cudaGetErrorString(cuda_check_error));                                 \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

#endif
