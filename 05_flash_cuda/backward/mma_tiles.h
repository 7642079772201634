/* mma_tiles.h: the products of the mma.sync rung of the backward ladder, on swizzled
 * tiles (portable/swizzled_tile.h) and fragments (portable/mma_sync.h).
 *
 * The scores are transposed: a warp computes S^T = K Q^T for 16 keys.  Its C fragments of
 * P^T and dS^T, rounded and packed, are the A fragments of dV += P^T dO and dK += dS^T Q,
 * as P was that of O += P V in the forward pass. */
#pragma once

#include "backward/gradient.h"
#include "portable/async_tile.h"

/* Columns 16 d ... of 16 rows of a tile as an A fragment.   x  piece lane / 16 of row lane % 16 */
template <int ROWS>
static __forceinline__ __device__ void load_a(uint32_t (&a)[4], shared_address x, int d)
{
    load_matrices(a, (x ^ d % 4 * 32) + d / 4 * ROWS * 128);
}

/* s (16, BR) = a b^T: 16 rows of a tile of BC rows, all rows of b (BR, D).
 *   a  the lane's address for load_a() */
template <enum dtype T, class W>
static __forceinline__ __device__ void multiply_rows(typename W::scores &s, shared_address a_rows,
                                                     const uint16_t *b_tile)
{
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    const shared_address b_rows = address_of(b_tile + swizzled<W::Br>(row, lane / 8 % 2));
#pragma unroll
    for (int n = 0; n < W::Br / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[n][c] = 0.0f;
#pragma unroll
    for (int d = 0; d < W::D / 16; d++) {
        uint32_t a[4];
        load_a<W::Bc>(a, a_rows, d);
#pragma unroll
        for (int n = 0; n < W::Br / 8; n += 2) {
            uint32_t b[4];
            load_matrices(b, (b_rows ^ d % 4 * 32) + (d / 4 * W::Br + 8 * n) * 128);
            mma_16x8x16<T>(s[n], a, b[0], b[1]);
            mma_16x8x16<T>(s[n + 1], a, b[2], b[3]);
        }
    }
}

/* o (16, 8 N) += a b: 16 columns of a (one A fragment), 16 rows of a tile of ROWS rows.
 *   b  the address of piece lane / 16 of row lane % 16, moved on to the first of the N columns
 */
template <enum dtype T, int ROWS, int N>
static __forceinline__ __device__ void add_product(float (&o)[N][4], const uint32_t (&a)[4],
                                                   shared_address b_rows)
{
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t b[4];
        load_matrices_transposed(b, (b_rows ^ n % 8 * 16) + n / 8 * ROWS * 128);
        mma_16x8x16<T>(o[n], a, b[0], b[1]);
        mma_16x8x16<T>(o[n + 1], a, b[2], b[3]);
    }
}

/* Two neighbouring C fragments, 16 x 16, as an A fragment. */
template <enum dtype T>
static __forceinline__ __device__ void pack_fragment(uint32_t (&a)[4], const float (&left)[4],
                                                     const float (&right)[4])
{
    a[0] = pack<T>(left[0], left[1]), a[1] = pack<T>(left[2], left[3]);
    a[2] = pack<T>(right[0], right[1]), a[3] = pack<T>(right[2], right[3]);
}

/* dV += P^T dO or dK += dS^T Q for the warp's keys: weights as C fragments, a tile of queries
 * from the block's first column on. */
template <enum dtype T, class W>
static __forceinline__ __device__ void add_rows(typename W::rows &o, const typename W::scores &w,
                                                const uint16_t *tile)
{
    const int lane = threadIdx.x % 32;
    const shared_address rows = address_of(tile + swizzled<W::Br>(lane % 16, lane / 16));
#pragma unroll
    for (int i = 0; i < W::Br / 16; i++) {
        uint32_t a[4];
        pack_fragment<T>(a, w[2 * i], w[2 * i + 1]);
        add_product<T, W::Br>(o, a, rows + 16 * i * 128);
    }
}

/* dS^T of the warp's keys to shared memory: a row for each key. */
template <enum dtype T, class W>
static __forceinline__ __device__ void put_ds(typename W::shared &shared,
                                              const typename W::scores &ds)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < W::Br / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            store_pair(address_of(shared.ds + swizzled<W::Bc>(row + 8 * r, n) + lane % 4 * 2),
                       pack<T>(ds[n][2 * r], ds[n][2 * r + 1]));
}

/* The warp's rows of dk or dv, from key j of the lane and column `first` on. */
template <enum dtype T, class W>
static __forceinline__ __device__ void store_rows(uint16_t *to, const typename W::rows &o, int j,
                                                  int n_rows, int first, int cols, float scale)
{
#pragma unroll
    for (int n = 0; n < W::COLUMNS / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int c = first + 8 * n + threadIdx.x % 4 * 2;
            if (j + 8 * r < n_rows && c < cols)
                *(uint32_t *)(to + (ptrdiff_t)(j + 8 * r) * cols + c) =
                    pack<T>(o[n][2 * r] * scale, o[n][2 * r + 1] * scale);
        }
}

/* 16 bytes of floats from global to shared memory, as copy_16_bytes(). */
template <int N>
static __forceinline__ __device__ void copy_floats(float (&to)[N], const float *from)
{
    if (threadIdx.x < N / 4) copy_16_bytes(address_of(&to[4 * threadIdx.x]), from + 4 * threadIdx.x, 1);
}
