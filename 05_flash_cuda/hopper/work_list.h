/* work_list.h: the work tiles of sequences of different lengths, the longest first.
 *
 * The lengths are on the GPU, so one block lists the tiles there: it counts the tiles of each
 * number of key blocks, adds the counts up from the heaviest on, and puts each tile into its
 * place (a counting sort).  All heads have the same list. */
#ifndef HOPPER_WORK_LIST_H
#define HOPPER_WORK_LIST_H

#include "key_blocks.h"
#include "scheduler.h"

struct listed_tile { int tile, sequence; };

struct work_list {
    int *counter;             /* tiles taken so far: scheduler.h */
    int *n;                   /* tiles of a head */
    struct listed_tile *tile; /* NULL: the sequences have the same length, no list */
};

constexpr int N_WEIGHTS = 1024; /* also the threads that sort */

/* The number of tiles of each weight, then their end in the list. */
struct weights { int end[N_WEIGHTS]; };

/* The place of a tile in order of weight: 0 is the heaviest. */
template <class C>
static __device__ __forceinline__ int weight_of(const struct sequences &all,
                                                const rows_of_sequence &s, int tile)
{
    struct blocks b = blocks_some_see<C>(s, tile * C::Br, C::Br);
    int most = all.seqlen_k / C::Bc + 2;
    return N_WEIGHTS - 1 - (int)((long)(b.end - b.first) * (N_WEIGHTS - 1) / most);
}

/* Calls f(sequence, tile, weight) for all tiles: a warp for each sequence. */
template <class C, class F>
static __device__ __forceinline__ void for_all_tiles(const struct sequences &all, F f)
{
    for (int i = threadIdx.x / 32; i < all.n; i += N_WEIGHTS / 32) {
        const rows_of_sequence s = find_sequence(all, i);
        for (int tile = threadIdx.x % 32; tile * C::Br < s.seqlen_q; tile += 32)
            f(i, tile, weight_of<C>(all, s, tile));
    }
}

template <class C>
static __global__ void __launch_bounds__(N_WEIGHTS)
    list_tiles_kernel(const struct sequences all, const struct work_list list)
{
    int (&end)[N_WEIGHTS] = dynamic_shared<weights>().end;
    const int t = threadIdx.x;
    end[t] = 0;
    __syncthreads();
    for_all_tiles<C>(all, [&](int, int, int weight) { atomicAdd(&end[weight], 1); });
    __syncthreads();
    for (int step = 1; step < N_WEIGHTS; step *= 2) { /* Hillis and Steele's prefix sums */
        int before = t >= step ? end[t - step] : 0;
        __syncthreads();
        end[t] += before;
        __syncthreads();
    }
    if (t == 0) *list.n = end[N_WEIGHTS - 1], *list.counter = 0;
    __syncthreads();
    for_all_tiles<C>(all, [&](int sequence, int tile, int weight) {
        list.tile[atomicAdd(&end[weight], -1) - 1] = {tile, sequence};
    });
}

/* The number of work tiles of all heads, in the list or, without one, in the scheduler. */
static __device__ __forceinline__ int tiles_of(const struct work_list &list,
                                               const struct scheduler &s,
                                               const struct params &params)
{
    return list.tile ? *list.n * params.heads_q : s.n_tiles;
}

/* Work tile n; its `batch` is the sequence.  In the list heads go by fastest. */
static __device__ __forceinline__ struct work_tile tile_of(const struct work_list &list,
                                                           const struct scheduler &s,
                                                           const struct params &params, int n)
{
    if (!list.tile) return find_tile(s, params, n);
    int i = n / params.heads_q;
    const struct listed_tile t = list.tile[i];
    return {t.tile, n - i * params.heads_q, t.sequence};
}

/* ---- the host's side ---- */

static struct work_list work_list_of(const struct problem *p, const struct arrays *a)
{
    struct work_list list = {(int *)a->workspace, (int *)a->workspace + 1, NULL};
    if (p->packed) list.tile = (struct listed_tile *)(list.counter + 2);
    return list;
}

/* Launches the sort; returns a bound on the number of work tiles of all heads. */
template <class C>
static int list_tiles(const struct problem *p, const struct arrays *a,
                      const struct sequences &all, const struct work_list &list)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(N_WEIGHTS);
    config.dynamicSmemBytes = sizeof(weights);
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(cudaLaunchKernelEx(&config, list_tiles_kernel<C>, all, list));
    return (int)((p->total_q / C::Br + p->batch) * p->heads_q);
}

#endif
