/* cuda_on_cpu.h: CUDA kernels compiled by the C++ compiler and executed on the CPU.
 *
 * Blocks run in parallel (OpenMP).  The threads of a block are fibres on one CPU thread:
 * each runs until it waits (barrier, shuffle) or leaves, then another goes on.  In every
 * round the order is either forward or backward, by a fixed hash of block and round, and in
 * every other block a warp or warpgroup goes on only when nobody else can, so a
 * missing barrier changes results, and every run gives the same bits.
 *
 * How to write a kernel for both worlds.  Include harness.h and cuda_check.h.  Write plain
 * CUDA and launch it with cudaLaunchKernelEx(&config, kernel, arguments...), never
 * <<<>>>.  Put the shared memory into one struct and take it
 * with `struct tile &shared = dynamic_shared<struct tile>();`, launched with
 * sizeof(struct tile) bytes; no `__shared__` variable.  Hide PTX in a function whose CPU
 * twin stands under `#ifndef __CUDACC__`; mma_on_cpu.h has the twins of ldmatrix,
 * mma.sync and cp.async.  Let every thread reach every barrier.  No block may wait for
 * another one, and no kernel may rely on warps running in step.
 *
 * Reported with kernel, block and thread, then exit status 1: a thread that leaves before
 * a barrier at which others wait, barriers or warp functions reached by different ways,
 * deadlock, a shuffle from a lane that takes no part, shared memory accessed outside its
 * bounds (a page that cannot be accessed follows its last byte), stack overflow.  Shared
 * memory is filled with NaN bytes before each block.  A launch that a GPU would refuse
 * (grid, block or shared memory too large) returns the same error.  Built with
 * -fsanitize=thread, threads of a block that race are reported line by line.
 *
 * hopper_on_cpu.h has the twins of mbarrier, TMA and wgmma.
 *
 *     CUDA_ON_CPU_ORDER=forward, backward or random:SEED   another order of the fibres
 *     CUDA_ON_CPU_TRACE=FILE   what happens to the mbarriers of block 0 */
#pragma once

#include <stddef.h>
#include <string.h>

#include "cuda_on_cpu/cuda_types_on_cpu.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline /* forced, a Hopper rung takes twice as long to compile */
#define __launch_bounds__(...)

/* Who am I.  Plain thread-local variables, so that a debugger prints them by name. */
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(struct uint3 u) : x(u.x), y(u.y), z(u.z) {}
};
extern __thread struct uint3 threadIdx, blockIdx;
extern __thread struct dim3 blockDim, gridDim;

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8
};
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute { /* taken, and ignored: a launch has ended when it returns */
    enum cudaLaunchAttributeID id;
    struct { int programmaticStreamSerializationAllowed; } val;
};
typedef struct CUstream_st *cudaStream_t;
struct cudaLaunchConfig_t {
    struct dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    struct cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

const char *cudaGetErrorName(enum cudaError_t error);
const char *cudaGetErrorString(enum cudaError_t error);
enum cudaError_t cudaGetLastError(void);
enum cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device);
static inline enum cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
enum cudaError_t cudaSetDevice(int device);
static inline enum cudaError_t cudaMemsetAsync(void *p, int byte, size_t n,
                                               cudaStream_t stream = NULL)
{
    (void)stream; /* a launch has ended when it returns */
    if (n) memset(p, byte, n); /* p may be NULL then */
    return cudaSuccess;
}

namespace cuda_on_cpu
{

/* The line of a kernel that calls: filled in by the compiler, as the default of a last
 * parameter. */
struct caller {
    const char *file, *function;
    unsigned line;
    static constexpr struct caller here(const char *file = __builtin_FILE(),
                                        const char *function = __builtin_FUNCTION(),
                                        unsigned line = __builtin_LINE())
    {
        return {file, function, line};
    }
};

struct launch {
    const char *text, *file; /* the launch as written */
    int line;
    const void *kernel;
    struct dim3 grid, block;
    size_t shared_bytes;
    void (*thread)(void *arguments); /* runs one thread */
    void *arguments;
};
enum cudaError_t execute(const struct launch *l);
enum cudaError_t set_shared_limit(const void *kernel, int bytes);

void *shared_memory(size_t bytes, size_t alignment, const struct caller &where);
/* What an error in the kernel is reported with; does not return. */
[[noreturn]] void fail(const struct caller &where, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Barrier `id` (0 to 15) for `threads` threads, 0: the whole block.  Returns for how many
 * of them `vote` was true.  barrier_arrive() does not wait: PTX bar.sync, bar.arrive. */
int barrier_sync(int id, int threads, int vote, const struct caller &where);
void barrier_arrive(int id, int threads, const struct caller &where);

/* What all lanes of `mask` do together.  Each deposits its operand; the last calls
 * compute(operands of all lanes, NULL for those outside); then all go on, with what
 * compute() left in their operand.  `orders` says that memory accesses before it are seen
 * after it by all lanes (a shuffle does not promise that). */
typedef void warp_function(void *const operand[32], const struct caller &where);
void warp_collective(unsigned mask, warp_function *compute, void *operand, bool orders,
                     const char *name, const struct caller &where);
unsigned lane(void);

/* The executor's own accesses are no races of the kernel. */
#define CUDA_ON_CPU_UNSEEN __attribute__((no_sanitize("thread")))

/* The launch with the kernel's own parameter types.  It is static, and so is what it calls: two
 * files may each have a `struct work` of their own. */
template <class... P, class... A>
static enum cudaError_t launch_ex(const char *text, const char *file, int line,
                                  const struct cudaLaunchConfig_t *c, void (*kernel)(P...),
                                  A &&...arguments)
{
    auto thread = [kernel, ... parameters = static_cast<P>(arguments)] {
        kernel(parameters...);
    };
    struct launch l = {text, file, line, (const void *)kernel, c->gridDim, c->blockDim,
                       c->dynamicSmemBytes, [](void *f) { (*(decltype(thread) *)f)(); },
                       &thread};
    return execute(&l);
}

} // namespace cuda_on_cpu

/* A macro, so that an error can name the launch. */
#define cudaLaunchKernelEx(...)                                                          \
    cuda_on_cpu::launch_ex(#__VA_ARGS__, __FILE__, __LINE__, __VA_ARGS__)

template <class T>
enum cudaError_t cudaFuncSetAttribute(T *kernel, enum cudaFuncAttribute what, int value)
{
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    return cuda_on_cpu::set_shared_limit((const void *)kernel, value);
}

#define CALLER const struct cuda_on_cpu::caller &where = cuda_on_cpu::caller::here()

/* The block's shared memory as a T. */
template <class T> static inline T &dynamic_shared(CALLER)
{
    return *(T *)cuda_on_cpu::shared_memory(sizeof(T), alignof(T), where);
}

static inline void __syncthreads(CALLER) { cuda_on_cpu::barrier_sync(0, 0, 0, where); }
static inline int __syncthreads_or(int vote, CALLER)
{
    return cuda_on_cpu::barrier_sync(0, 0, vote, where) > 0;
}

#include "cuda_on_cpu/warp_on_cpu.h"
