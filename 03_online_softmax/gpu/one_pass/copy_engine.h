/* copy_engine.h: a block's copies to and from its shared memory, by the copy engine of a Hopper
 * GPU, on older ones by its threads.  All threads of the block call these functions.
 *   bytes  a multiple of 16, as are the addresses */
#ifndef COPY_ENGINE_H
#define COPY_ENGINE_H

#include "gpu/ptx.h"
#include "row_parts.h"

#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define COPY_ENGINE 1
#else
#define COPY_ENGINE 0
#endif

static __device__ inline void copy_packs(void *to, const void *from, int bytes)
{
    for (int s = threadIdx.x; s < bytes / 16; s += blockDim.x)
        ((uint4 *)to)[s] = ((const uint4 *)from)[s];
}

/* Starts a load, which completes on `arrived`. */
static __device__ inline void begin_load(void *to, const void *from, int bytes, uint64_t *arrived)
{
#if COPY_ENGINE
    if (threadIdx.x > 0) return;
    mbarrier_init(arrived, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(arrived, bytes);
    if (bytes > 0) tma_load_bytes(to, from, bytes, arrived);
#else
    copy_packs(to, from, bytes);
#endif
}

/* Waits until it has arrived, and the threads have come. */
static __device__ inline void end_load(uint64_t *arrived)
{
    __syncthreads();
#if COPY_ENGINE
    mbarrier_wait(arrived, 0);
#endif
}

/* Stores what the threads have written, and returns when it has been read. */
static __device__ inline void store_all(void *to, const void *from, int bytes)
{
#if COPY_ENGINE
    fence_proxy_async(); /* the copy engine sees what the threads have written */
    __syncthreads();
    if (threadIdx.x > 0 || bytes == 0) return;
    tma_store_bytes(to, from, bytes);
    tma_store_commit();
    tma_store_wait_read();
#else
    __syncthreads();
    copy_packs(to, from, bytes);
#endif
}

#endif
