/* early_start.h: a kernel that starts before the one before it in the stream has ended (sm_90 on):
 * its launch is hidden.  CUDA calls it programmatic dependent launch. */
#pragma once

#include "gpu/cuda_check.h"

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

/* For cudaLaunchConfig_t::attrs: the kernel may start early. */
static inline cudaLaunchAttribute may_start_early(void)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    return early;
}
