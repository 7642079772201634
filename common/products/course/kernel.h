/* kernel.h: a student's kernel and its launch, executed on the CPU (common/core/cuda_on_cpu).
 *
 * global<T> is an array in main memory.  Its accesses are counted: how many, and in how many pieces of
 * 32 bytes a GPU would move them, where the threads of a warp access it together. */
#ifndef KERNEL_H
#define KERNEL_H

#include <map>
#include <set>
#include <tuple>

#include "gpu/cuda_check.h"

#include "course/exercise.h"

namespace counted
{
using place = std::tuple<unsigned, unsigned, const void *, long>; /* block, warp, array, which */
static std::map<place, std::set<size_t>> pieces;
static std::map<place, long> seen;
static long n_loads;

/* Thread `threadIdx.x` accesses element i. */
static void touch(const void *array, size_t i)
{
    long which = seen[{blockIdx.x, threadIdx.x, array, 0}]++;
    pieces[{blockIdx.x, threadIdx.x / 32, array, which}].insert(i / 8);
    n_loads++;
}

static long n_pieces(void)
{
    long n = 0;
    for (auto &x : pieces) n += (long)x.second.size();
    return n;
}
} // namespace counted

template <class T> struct global {
    T *p;
    size_t n;
    T &operator[](size_t i) const
    {
        if (i >= n)
            cuda_on_cpu::fail(cuda_on_cpu::caller::here(), "element %zd of an array of %zu", i, n);
        counted::touch(p, i);
        return p[i];
    }
};

/* kernel<<<blocks, threads, bytes>>>(arguments) */
template <class... P, class... A>
static void launch(unsigned blocks, unsigned threads, size_t bytes, void (*kernel)(P...), A... arguments)
{
    counted::pieces.clear(), counted::seen.clear(), counted::n_loads = 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

#endif
