/* gpu_share.h: memory of the GPU that two processes use.
 *
 * The judge allocates with the driver's calls, which give a file descriptor for an allocation.
 * Who inherits the descriptor maps the same memory.  No socket and no file is needed, so the
 * worker's jail stays shut.  The calls are found at run time: nothing is linked with libcuda. */
#ifndef GPU_SHARE_H
#define GPU_SHARE_H

#include <cuda.h>

#include "gpu/cuda_check.h"

static inline void *driver_function(const char *name)
{
    void *f = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &f, 12000, cudaEnableDefault, &found));
#else
    CUDA_CHECK(cudaGetDriverEntryPoint(name, &f, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess)
        cuda_failed(__FILE__, __LINE__, name, "not found", "the driver has no such function");
    return f;
}

/* The result of one of the driver's calls. */
#define DRIVER(call, ...) (((decltype(&call))driver_function(#call))(__VA_ARGS__))

#define DRIVER_CHECK(call, ...)                                                            \
    do {                                                                                   \
        CUresult driver_result = DRIVER(call, __VA_ARGS__);                                \
        char driver_number[24];                                                            \
        snprintf(driver_number, sizeof driver_number, "CUresult %d", (int)driver_result);  \
        if (driver_result != CUDA_SUCCESS)                                                 \
            cuda_failed(__FILE__, __LINE__, #call, driver_number, "a call of the driver"); \
    } while (0)

static inline CUmemAllocationProp share_kind(void)
{
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUDA_CHECK(cudaGetDevice(&kind.location.id));
    return kind;
}

/* n bytes, rounded up to what can be mapped: the same number in both processes. */
static inline size_t share_bytes(size_t n)
{
    CUmemAllocationProp kind = share_kind();
    size_t step = 0;
    CUDA_CHECK(cudaFree(0)); /* the runtime's context, which the driver's calls need */
    DRIVER_CHECK(cuMemGetAllocationGranularity, &step, &kind,
                 CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    return (n + step - 1) / step * step;
}

static inline char *share_map(CUmemGenericAllocationHandle memory, size_t bytes)
{
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {};
    access.location = share_kind().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRIVER_CHECK(cuMemAddressReserve, &at, bytes, (size_t)0, (CUdeviceptr)0, 0ULL);
    DRIVER_CHECK(cuMemMap, at, bytes, (size_t)0, memory, 0ULL);
    DRIVER_CHECK(cuMemSetAccess, at, bytes, &access, (size_t)1);
    return (char *)at;
}

/* n bytes and the descriptor for them; NULL: the GPU has not that much. */
static inline char *share_new(size_t n, int *descriptor)
{
    CUmemAllocationProp kind = share_kind();
    CUmemGenericAllocationHandle memory;
    size_t bytes = share_bytes(n);
    CUresult made = DRIVER(cuMemCreate, &memory, bytes, &kind, 0ULL);
    if (made == CUDA_ERROR_OUT_OF_MEMORY) return NULL;
    if (made != CUDA_SUCCESS) cuda_failed(__FILE__, __LINE__, "cuMemCreate", "", "a call of the driver");
    DRIVER_CHECK(cuMemExportToShareableHandle, descriptor, memory,
                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
    return share_map(memory, bytes);
}

/* The n bytes that a descriptor is for. */
static inline char *share_open(int descriptor, size_t n)
{
    CUmemGenericAllocationHandle memory;
    size_t bytes = share_bytes(n);
    DRIVER_CHECK(cuMemImportFromShareableHandle, &memory, (void *)(size_t)descriptor,
                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return share_map(memory, bytes);
}

#endif
