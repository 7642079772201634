/* start.h: how a kernel of stage 5 starts.  From sm_90 on it may start before the one before it in the
 * stream has ended, so its launch is hidden: CUDA calls it programmatic dependent launch. */
#pragma once

#include <type_traits>

#include "gpu/device.h"

/* 1 where a kernel can start before the one before it has ended. */
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
enum { STARTS_EARLY = 1 };
#else
enum { STARTS_EARLY = 0 };
#endif

/* Lets the next kernel of the stream, if it was launched with programmatic serialization,
 * start as soon as all blocks have said so: its launch is hidden. */
static __forceinline__ __device__ void dependents_may_start(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits until the kernel before has ended and its results can be read. */
static __forceinline__ __device__ void wait_for_previous_kernel(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- the host's side ---- */

/* Launches blocks of `threads` threads with so many bytes of shared memory each.  CUDA gives more than
 * 48 KB only to a kernel for which this has been asked.  start<EARLY>: before the kernel before it has
 * ended, for which it then waits itself. */
static constexpr bool EARLY = true;
template <bool IS_EARLY = false, class... PARAMETERS>
static void start(void (*kernel)(PARAMETERS...), struct dim3 blocks, int threads, size_t bytes,
                  void *stream, const std::type_identity_t<PARAMETERS> &...parameters)
{
    if (bytes) allow_shared(kernel, bytes);
    cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    early.val.programmaticStreamSerializationAllowed = 1;
    const bool is_early = IS_EARLY && device_attribute<cudaDevAttrComputeCapabilityMajor>() >= 9;
    const cudaLaunchConfig_t config = {
        .gridDim = blocks, .blockDim = dim3((unsigned)threads), .dynamicSmemBytes = bytes,
        .stream = (cudaStream_t)stream, .attrs = &early, .numAttrs = is_early};
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, parameters...));
}
