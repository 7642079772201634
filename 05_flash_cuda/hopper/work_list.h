/* work_list.h: the work tiles of sequences of different lengths, the longest first.
 *
 * As in scheduler.h, what is worked on together should find its K and V in the L2 cache.  So the
 * arrays are cut into chunks of keys and sections of heads, and tiles are sorted by chunk, then by
 * weight.  The lengths are on the GPU, so one block lists the tiles there: it counts the tiles of
 * each place in this order, adds the counts up, and puts each tile into its place (a counting
 * sort).  All heads have the same list. */
#pragma once

#include "key_blocks.h"
#include "scheduler.h"

struct listed_tile { int tile, sequence; };

struct work_list {
    int *counter;             /* tiles taken so far: scheduler.h */
    int *n;                   /* tiles of a head */
    struct listed_tile *tile; /* NULL: the sequences have the same length, no list */
    int section;              /* heads that are worked on together */
    int chunk, n_chunks;      /* keys of a chunk; chunks of the array */
};

constexpr int N_WEIGHTS = 1024; /* also the threads that sort */
constexpr int MOST_CHUNKS = 64;

/* The number of tiles of each weight, then their end in the list. */
struct weights { int end[N_WEIGHTS]; };

/* The place of a tile in the order: its sequence's chunk, then its weight, the heaviest first. */
template <class C>
static __device__ __forceinline__ int weight_of(const struct sequences &all,
                                                const struct work_list &list,
                                                const rows_of_sequence &s, int tile)
{
    struct blocks b = blocks_some_see<C>(s, tile * C::Br, C::Br);
    int most = all.seqlen_k / C::Bc + 2, weights = N_WEIGHTS / list.n_chunks;
    int light = weights - 1 - (int)((long)(b.end - b.first) * (weights - 1) / most);
    return s.k / list.chunk * weights + light;
}

/* Calls f(sequence, tile, weight) for all tiles: a warp for each sequence. */
template <class C, class F>
static __device__ __forceinline__ void for_all_tiles(const struct sequences &all,
                                                     const struct work_list &list, F f)
{
    for (int i = threadIdx.x / 32; i < all.n; i += N_WEIGHTS / 32) {
        const rows_of_sequence s = find_sequence(all, i);
        for (int tile = threadIdx.x % 32; tile * C::Br < s.seqlen_q; tile += 32)
            f(i, tile, weight_of<C>(all, list, s, tile));
    }
}

template <class C>
static __global__ void __launch_bounds__(N_WEIGHTS)
    list_tiles_kernel(const struct sequences all, const struct work_list list)
{
    int (&end)[N_WEIGHTS] = dynamic_shared<weights>().end;
    const int t = threadIdx.x;
    dependents_may_start(); /* they wait before they read the list */
    end[t] = 0;
    __syncthreads();
    for_all_tiles<C>(all, list, [&](int, int, int weight) { atomicAdd(&end[weight], 1); });
    __syncthreads();
    for (int step = 1; step < N_WEIGHTS; step *= 2) { /* Hillis and Steele's prefix sums */
        int before = t >= step ? end[t - step] : 0;
        __syncthreads();
        end[t] += before;
        __syncthreads();
    }
    if (t == 0) *list.n = end[N_WEIGHTS - 1], *list.counter = 0;
    __syncthreads();
    for_all_tiles<C>(all, list, [&](int sequence, int tile, int weight) {
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

/* Work tile n of all; its `batch` is the sequence.  A section goes through the list, its heads
 * by fastest. */
static __device__ __forceinline__ struct work_tile tile_of(const struct work_list &list,
                                                           const struct scheduler &s,
                                                           const struct params &params, int n)
{
    if (!list.tile) return find_tile(s, params, n);
    int in_section = list.section * *list.n, section = n / in_section;
    int rest = n - section * in_section, first = section * list.section;
    int width = min(list.section, params.heads_q - first), i = rest / width;
    const struct listed_tile t = list.tile[i];
    return {t.tile, first + rest - i * width, t.sequence};
}

/* ---- the host's side ---- */

static struct work_list work_list_of(const struct problem *p, const struct arrays *a)
{
    const size_t room = 16u << 20, of_key = 2 * (p->head_dim + p->head_dim_v); /* bytes */
    struct work_list list = {(int *)a->workspace, (int *)a->workspace + 1, NULL, 0, 0, 0};
    if (!p->packed) return list;
    list.tile = (struct listed_tile *)(list.counter + 2);
    size_t heads = 1; /* key heads whose longest sequences fit together */
    while (2 * heads <= p->heads_kv && 2 * heads * p->seqlen_k * of_key <= room) heads *= 2;
    size_t chunk = room / (heads * of_key), least = p->total_k / MOST_CHUNKS + 1;
    list.section = (int)(heads * (p->heads_q / p->heads_kv));
    list.chunk = (int)(chunk > least ? chunk : least);
    list.n_chunks = (int)(p->total_k / (size_t)list.chunk) + 1;
    return list;
}

/* Launches the sort; returns a bound on the number of work tiles of all heads. */
template <class C>
static int list_tiles(const struct problem *p, const struct arrays *a,
                      const struct sequences &all, const struct work_list &list)
{
    start(list_tiles_kernel<C>, 1, N_WEIGHTS, sizeof(weights), a->stream, all, list);
    return (int)((p->total_q / C::Br + p->batch) * p->heads_q);
}
