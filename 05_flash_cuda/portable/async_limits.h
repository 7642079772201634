/* async_limits.h: what rungs 4 to 6 do not take, and what the GPU gives them. */
#ifndef ASYNC_LIMITS_H
#define ASYNC_LIMITS_H

#include "attention.h"

/* Rows of a multiple of 16 bytes, because cp.async copies 16; a positive scale, because the
 * maximum is taken of scores that are not scaled yet. */
static const char *async_refuses(const struct problem *p)
{
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if (p->head_dim % 8 || p->head_dim_v % 8)
        return "a head_dim that is no multiple of 8";
    if (!(p->scale > 0.0f && p->scale < INFINITY)) return "a scale that is not positive";
    return too_large(p, 64); /* no tiling has fewer queries in a block */
}

/* Shared memory that one block may use, in bytes. */
static inline size_t shared_memory_limit(void)
{
    int device, bytes;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return (size_t)bytes;
}

#endif
