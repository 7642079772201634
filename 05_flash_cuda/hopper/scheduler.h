/* scheduler.h: which work tile a persistent block computes next.
 *
 * Full mask: all tiles take the same time.  Block b takes b, b + blocks, b + 2 blocks, ...
 *
 * Causal: tiles at the end of the sequence take longest.  They come first, and a block that
 * is free takes the next one from a counter: long tiles first, short ones fill the gaps
 * (Graham's LPT rule; FlashAttention-3 does so too).  But the heavy tiles of all heads
 * together would ask for every head's K and V at once.  So heads go by in *sections* whose K
 * and V together fit into the L2 cache. */
#pragma once

#include "q_pipeline.h"

struct scheduler {
    int *counter; /* in the workspace: tiles that were taken from it; NULL: in a fixed order */
    int heads;    /* of all batches */
    int section;  /* heads that are worked on together */
    int n_tiles;  /* of all heads */
};

/* Work tile n: sections one after another; inside a section the last tile of every head, then
 * the last but one of every head, ... */
static __device__ __forceinline__ struct work_tile find_tile(const struct scheduler &s,
                                                             const struct params &params,
                                                             int n)
{
    int per_section = s.section * params.tiles, section = n / per_section;
    int rest = n - section * per_section;
    if (n >= s.n_tiles) return work_tile{-1, 0, 0};
    int width = min(s.section, s.heads - section * s.section);
    int head = section * s.section + rest % width;
    struct work_tile t;
    t.tile = params.tiles - 1 - rest / width;
    t.batch = head / params.heads_q;
    t.head = head - t.batch * params.heads_q;
    return t;
}

/* The number of the tile after n, taken by thread 0.  The exchange with itself tells ptxas
 * that the number is the same for the whole warp.  Otherwise ptxas keeps every stage and
 * address that depends on it out of the uniform registers that the copy engine wants, and
 * the producer becomes the slowest of all. */
static __device__ __forceinline__ int next_tile(const struct scheduler &s, int n)
{
    int next = s.counter ? (int)gridDim.x + atomicAdd(s.counter, 1) : n + (int)gridDim.x;
    return __shfl_sync(1u, next, 0);
}

/* ---- the host's side ---- */

/* Lets blocks take their tiles from the counter, from 0 on. */
static void count_from_zero(struct scheduler &s, const struct arrays *a)
{
    s.counter = (int *)a->workspace;
    CUDA_CHECK(cudaMemsetAsync(s.counter, 0, sizeof(int), (cudaStream_t)a->stream));
}

/* The schedule for the tiles of `params`. */
static struct scheduler scheduler_of(const struct params &params, const struct problem *p,
                                     const struct arrays *a)
{
    size_t head_bytes = 2 * p->seqlen_k * (p->head_dim + p->head_dim_v);
    size_t room = p->seqlen_k <= 512 ? 8u << 20 : 16u << 20; /* of the L2 cache */
    size_t group = p->heads_q / p->heads_kv;
    struct scheduler s = {NULL, (int)(p->batch * p->heads_q), 1, 0};
    s.n_tiles = params.tiles * s.heads;
    if (!params.causal) return s;
    if (p->seqlen_k > 256) /* else a head's few tiles follow one another (notes/hopper.md) */
        while (2 * s.section * head_bytes <= room * group && s.section < s.heads)
            s.section *= 2;
    if (p->packed) s.counter = (int *)a->workspace; /* list_tiles_kernel sets it to 0 */
    else count_from_zero(s, a);
    return s;
}
