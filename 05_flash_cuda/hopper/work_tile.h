/* work_tile.h: what the Hopper rungs do with a tile, in exactly the same form: where it lies in the
 * problem, its copy, its mask, and the two products.
 *
 * C is the rung's `struct config`: C::T the 16-bit type, C::D the padded head dimension,
 * C::Br queries and C::Bc keys in a tile, 64 queries a warpgroup. */
#pragma once

#include "params.h"
#include "gpu/ptx.h"
#include "wgmma_softmax.h"
#include "wgmma.h"

/* A work tile: Br queries of a head.  tile: which of them, or -1: no more work. */
struct work_tile {
    int tile, head, batch;
};

/* Work tile n, counted head by head; causal: from the end of a head on, as in rungs 3 to 6, so
 * that tiles with few keys come last. */
static __device__ __forceinline__ struct work_tile work_tile_of(const struct params &params,
                                                                int n)
{
    int head = n / params.tiles;
    int tile = n - head * params.tiles;
    struct work_tile t = {params.causal ? params.tiles - 1 - tile : tile,
                          head % params.heads_q, head / params.heads_q};
    return t;
}

/* Blocks of keys that queries up to `last` see, and those in which `first` sees all. */
template <class C>
static __device__ __forceinline__ int blocks_seen(const struct params &params, int last)
{
    return (mask_keys(params.mask, last).end + C::Bc - 1) / C::Bc;
}

template <class C>
static __device__ __forceinline__ int blocks_open(const struct params &params, int first)
{
    return mask_keys(params.mask, first).end / C::Bc;
}

/* The first of the two rows (wgmma.h) of this thread in its warpgroup's 64. */
static __device__ __forceinline__ int first_row(void)
{
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}

/* Masks in key block n what row and row + 8 do not see. */
template <class C>
static __device__ __forceinline__ void mask_block(float (&s)[C::Bc / 2],
                                                  const struct params &params, int row, int n)
{
    asm("" : "+r"(row)); /* hides it from the compiler: nothing of it waits in registers */
    const struct mask32 keys = keys_from(params.mask, n * C::Bc + 2 * (threadIdx.x % 4));
    const int visible[2] = {mask_keys(keys, row).end, mask_keys(keys, row + 8).end};
    apply_mask(s, visible);
}

/* Columns of V and o: those of Q and K, where a rung names no others. */
template <class C> static constexpr int columns_of_v()
{
    if constexpr (requires { C::DV; }) return C::DV;
    else return C::D;
}

template <class C> constexpr int DV = columns_of_v<C>();

/* The columns that a row of COLUMNS takes in shared memory: whole panels. */
template <int COLUMNS> constexpr int IN_PANELS = (COLUMNS + 63) / 64 * 64;

/* Issues the copy of ROWS rows from `row` on into a tile, panel after panel; bar counts the
 * bytes. */
template <class C, int ROWS, int COLUMNS = C::D>
static __device__ __forceinline__ void load_tile(typename C::T *to,
                                                 const CUtensorMap *map, uint64_t *bar,
                                                 int row, int head, int batch)
{
    mbarrier_arrive_expect_tx(bar, ROWS * IN_PANELS<COLUMNS> * 2);
#pragma unroll
    for (int i = 0; i < IN_PANELS<COLUMNS> / 64; i++)
        tma_load_box(to + i * ROWS * 64, map, bar, 64 * i, row, head, batch);
}

/* Issues S = Q K^T: 64 rows of Q at descriptor q, a tile of Bc keys. */
template <class C>
static __device__ __forceinline__ void issue_qk(float (&s)[C::Bc / 2], uint64_t q,
                                                const typename C::T *k_tile)
{
    uint64_t k = descriptor_qk(k_tile);
    wgmma_qk<typename C::T, true>(s, q, k);
#pragma unroll
    for (int i = 1; i < C::D / 16; i++)
        wgmma_qk<typename C::T, false>(s, q + i / 4 * (C::Br * 128 >> 4) + i % 4 * 2,
                                       k + i / 4 * (C::Bc * 128 >> 4) + i % 4 * 2);
    wgmma_commit();
}

/* Issues O += P V: the weights of 64 rows, a tile of Bc values. */
template <class C>
static __device__ __forceinline__ void issue_pv(float (&o)[DV<C> / 2],
                                                const uint32_t (&p)[C::Bc / 4],
                                                const typename C::T *v_tile)
{
    uint64_t v = descriptor_v(v_tile, C::Bc);
#pragma unroll
    for (int i = 0; i < C::Bc / 16; i++)
        wgmma_pv<typename C::T>(o, p + 4 * i, v + 128 * i);
    wgmma_commit();
}
