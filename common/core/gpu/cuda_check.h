/* cuda_check.h: what every CUDA file includes after harness.h.
 *
 * A CUDA file is compiled twice: by nvcc for the GPU, and by the C++ compiler for the CPU,
 * where cuda_on_cpu.h provides the same names and executes the kernels block by block.
 *
 *     GPU_VARIANT(tiled, "its idea", the fields of struct variant from .group on);
 *
 * defines the descriptor `tiled` (CPU build) and its twin `tiled_cuda` (nvcc build), to which
 * .on_gpu points.  The twin's name is weak: in a program linked without nvcc's objects its address is NULL.
 * Everything else in such a file is static, because both objects are linked into one program.
 * GPU_ONLY(f) is f for the GPU; on the CPU it marks a variant that is not executed there. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* A descriptor leaves out what does not apply. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define GPU_DEVICE ON_GPU
#define GPU_VARIANT(rung, words, ...)                                                      \
    extern "C" const struct variant rung##_cuda;                                           \
    extern "C" const struct variant rung##_cuda = {.name = #rung, .idea = words, __VA_ARGS__}
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
#define GPU_VARIANT(rung, words, ...)                                                      \
    extern "C" __attribute__((weak)) const struct variant rung##_cuda;                     \
    extern "C" const struct variant rung;                                                  \
    extern "C" const struct variant rung = {.name = #rung, .idea = words, __VA_ARGS__,     \
                                            .on_gpu = &rung##_cuda}
#endif

/* What becomes of a CUDA error.  In a program it prints file, line, call and the error's name
 * and exits 1 (cuda_failed.cc); in the library it throws, and the caller gets a code and a
 * message (library/backend_gpu.cu).  It does not return: nothing is launched after an error.
 * A launcher holds nothing that would be lost. */
[[noreturn]] void cuda_failed(const char *file, int line, const char *call, const char *name,
                              const char *text);

/* Every CUDA runtime call sits in this. */
#define CUDA_CHECK(call)                                                                   \
    do {                                                                                   \
        cudaError_t cuda_check_error = (call);                                             \
        if (cuda_check_error != cudaSuccess)                                               \
            cuda_failed(__FILE__, __LINE__, #call, cudaGetErrorName(cuda_check_error),     \
                        cudaGetErrorString(cuda_check_error));                             \
    } while (0)
