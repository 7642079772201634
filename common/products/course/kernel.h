/* kernel.h: a student's kernel and its launch, executed on the CPU (common/core/cuda_on_cpu).
 *
 * global<T> and shared<T> are arrays in main and in shared memory.  Their accesses are counted as a GPU would
 * do them for the 32 threads of a warp: in how many pieces of 32 bytes, in how many turns of the 32 banks.
 *
 * Compiled by nvcc they are plain arrays.  Then the kernels alone count: the judge launches them (gpu.py). */
#ifndef KERNEL_H
#define KERNEL_H

#include <map>
#include <set>
#include <tuple>

#include "gpu/cuda_check.h"

#include "course/exercise.h"

#ifdef __CUDACC__
template <class T> struct global {
    T *p;
    size_t n;
    __device__ T &operator[](size_t i) const { return p[i]; }
};
template <class T> struct shared : global<T> {};

static __device__ shared<float> shared_floats_of(size_t n) { return {{&dynamic_shared<float>(), n}}; }

namespace counted /* on the CPU only */
{
enum { n_loads, n_barriers };
static int n_pieces(void) { return 0; }
static int turns(void) { return 0; }
} // namespace counted

template <class... A> static void launch(A...) {}
#else

namespace counted
{
using access = std::tuple<unsigned, unsigned, const void *, long>; /* block, warp, array, which */
static std::map<access, std::set<size_t>> pieces, words;
static std::map<access, long> seen;
static long n_loads, n_barriers;

/* This thread accesses element i of an array of n, in shared memory or not. */
static void touch(bool is_shared, const void *array, size_t i, size_t n)
{
    if (i >= n)
        cuda_on_cpu::fail(cuda_on_cpu::caller::here(), "element %zd of %s of %zu", i,
                          is_shared ? "shared memory" : "an array", n);
    long which = seen[{blockIdx.x, threadIdx.x, array, 0}]++;
    (is_shared ? words : pieces)[{blockIdx.x, threadIdx.x / 32, array, which}].insert(is_shared ? i : i / 8);
    n_loads += !is_shared;
}

static long n_pieces(void)
{
    long n = 0;
    for (auto &x : pieces) n += (long)x.second.size();
    return n;
}

/* Turns of the banks for each access of a warp, on average: 1 without conflicts, 0 without accesses. */
static float turns(void)
{
    long n = 0;
    for (auto &x : words) {
        int of_bank[32] = {}, most = 0;
        for (size_t word : x.second) most = std::max(most, ++of_bank[word % 32]);
        n += most;
    }
    return words.empty() ? 0 : (float)n / (float)words.size();
}
} // namespace counted

template <class T, bool is_shared> struct counted_array {
    T *p;
    size_t n;
    T &operator[](size_t i) const { return counted::touch(is_shared, p, i, n), p[i]; }
};
template <class T> using global = counted_array<T, false>;
template <class T> using shared = counted_array<T, true>;

/* The block's shared memory, n floats. */
static shared<float> shared_floats_of(size_t n)
{
    return {(float *)cuda_on_cpu::shared_memory(n * sizeof(float), sizeof(float), cuda_on_cpu::caller::here()), n};
}

#define __syncthreads() (counted::n_barriers++, __syncthreads()) /* of all threads together */

/* kernel<<<blocks, threads, bytes>>>(arguments) */
template <class... P, class... A>
static void launch(unsigned blocks, unsigned threads, size_t bytes, void (*kernel)(P...), A... arguments)
{
    counted::pieces.clear(), counted::words.clear(), counted::seen.clear();
    counted::n_loads = counted::n_barriers = 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}
#endif

#endif
