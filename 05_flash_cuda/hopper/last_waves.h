/* last_waves.h: tiles whose keys are shared by two blocks of threads, so that all end together.
 *
 * 2048 equal tiles on 132 multiprocessors are 15.5 waves, and the half wave takes as long as a
 * whole one.  So the last wave and a half of tiles are cut along their keys: written one after
 * another, their key blocks are dealt out in 132 equal runs (stream-K: Osama, Merrill, Cecka,
 * Garland and Owens 2023).  A run is longer than a tile, so a tile has at most two pieces.
 *
 *     cut tiles   |   t   |  t+1  |  t+2  |
 *     runs        |  block 0  |  block 1  |        pieces: t | t+1 front   t+1 back | t+2
 *
 * A piece leaves o / l and lse in the workspace, the element (o, 1, lse) of the monoid, and a
 * small kernel merges front and back. */
#ifndef HOPPER_LAST_WAVES_H
#define HOPPER_LAST_WAVES_H

#include "merge_weights.h"
#include "scheduler.h"
#include "store.h"

struct last_waves {
    int first;      /* tiles from here on are dealt out in runs; those before are whole */
    int key_blocks; /* in a tile */
    int run;        /* key blocks that a block of threads computes of them */
    float *pieces;  /* (cuts, 2, Br, D): o, and behind all of them lse (cuts, 2, Br) */
};

/* Key blocks begin ... end - 1 of a tile.  slot: where the piece goes in `pieces`, or -1: the tile
 * is whole. */
struct piece { int begin, end, slot; };

/* The cut before block b of threads (b > 0) has the slots 2 b - 2, for the front of the tile, and
 * 2 b - 1, for its back. */
static __device__ __forceinline__ struct piece piece_at(const struct last_waves &s, int at)
{
    int b = blockIdx.x, begin = at % s.key_blocks;
    struct piece x = {begin, min(s.key_blocks, begin + (b + 1) * s.run - at), -1};
    if (begin > 0) x.slot = 2 * b - 1;
    else if (x.end < s.key_blocks) x.slot = 2 * b;
    return x;
}

/* Where lse of a piece's first row lies.   grid  blocks of threads */
template <class C>
static __device__ __forceinline__ float *lse_of_piece(const struct last_waves &s, int slot,
                                                     int grid)
{
    return s.pieces + ((size_t)2 * grid * DV<C> + slot) * C::Br;
}

/* Writes a warpgroup's rows of a piece; row: the thread's first, in the tile. */
template <class C>
static __device__ __forceinline__ void store_piece(float (&o)[DV<C> / 2], const struct rows &r,
                                                  const struct last_waves &s, int slot, int row)
{
    asm volatile("" : "+r"(row), "+r"(slot)); /* or addresses wait in registers all the time */
    normalize(o, r, lse_of_piece<C>(s, slot, gridDim.x) + row, C::Br - row);
    float *out = s.pieces + ((size_t)slot * C::Br + row) * DV<C> + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < DV<C> / 2; i += 2)
        *(float2 *)(out + i / 2 % 2 * 8 * DV<C> + i / 4 * 8) = make_float2(o[i], o[i + 1]);
}

enum { MERGE_WARPS = 8 };

/* o and lse of the tile at cut blockIdx.y + 1; a warp for each row.  grid: of the attention. */
template <class C>
static __global__ void merge_pieces(const __grid_constant__ struct params params,
                                   const struct scheduler s, const struct last_waves waves,
                                   int grid)
{
    int b = blockIdx.y + 1, row = blockIdx.x * MERGE_WARPS + threadIdx.x / 32;
    int at = b * waves.run, lane = threadIdx.x % 32;
    const struct work_tile t = find_tile(s, params, waves.first + at / waves.key_blocks);
    int query = t.tile * C::Br + row;
    if (at % waves.key_blocks == 0 || t.tile < 0 || query >= params.seqlen_q) return;
    const float *o = waves.pieces + ((size_t)(2 * b - 2) * C::Br + row) * DV<C>;
    const float *lse = lse_of_piece<C>(waves, 2 * b - 2, grid) + row;
    const struct merge_weights w = merge_weights_of(lse[0], lse[C::Br]);
    typename C::T *out = (typename C::T *)params.o_rows + t.batch * params.o_strides.batch +
                         t.head * params.o_strides.head + query * params.o_strides.row;
    if (lane == 0)
        params.lse[((size_t)t.batch * params.heads_q + t.head) * params.seqlen_q + query] =
            w.lse;
    for (int c = 2 * lane; c < params.head_dim_v; c += 64) {
        float2 x = *(const float2 *)(o + c), y = *(const float2 *)(o + C::Br * DV<C> + c);
        *(uint32_t *)(out + c) =
            pack<typename C::T>(w.old * x.x + w.part * y.x, w.old * x.y + w.part * y.y);
    }
}

/* ---- the host's side ---- */

/* Key blocks that a block of threads would idle in the last wave, from which on a cut saves more
 * than the pieces and their merge cost (measured: notes/hopper.md). */
enum { WORTH_A_CUT = 48 };

/* Bytes of the pieces for that many blocks of threads. */
static inline size_t bytes_of_pieces(size_t blocks, size_t br, size_t d)
{
    return 2 * blocks * br * (d + 1) * sizeof(float);
}

/* The cuts for n_tiles tiles. */
template <class C>
static struct last_waves last_waves_of(int n_tiles, int blocks, const struct problem *p,
                                       const struct arrays *a)
{
    struct last_waves s = {n_tiles, (int)((p->seqlen_k + C::Bc - 1) / C::Bc), 0,
                           (float *)a->workspace};
    int over = n_tiles % blocks, rest = blocks + over; /* a wave, and the last one */
    long idle = over ? (long)(blocks - over) * s.key_blocks / blocks : 0;
    long in_runs = (long)rest * s.key_blocks; /* key blocks: the kernel counts them in an int */
    if (p->causal || n_tiles < blocks || idle < WORTH_A_CUT || in_runs > 1 << 30)
        return s;
    s.first = n_tiles - rest;
    s.run = (int)((in_runs + blocks - 1) / blocks);
    return s;
}

/* Merges the pieces that `blocks` blocks of threads have left. */
template <class C>
static void merge_last_waves(const struct params &params, const struct scheduler &s,
                             const struct last_waves &waves, int blocks, void *stream)
{
    if (!waves.run) return;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(C::Br / MERGE_WARPS, (unsigned)blocks - 1);
    config.blockDim = dim3(32 * MERGE_WARPS);
    config.stream = (cudaStream_t)stream;
    CUDA_CHECK(cudaLaunchKernelEx(&config, merge_pieces<C>, params, s, waves, blocks));
}

#endif
