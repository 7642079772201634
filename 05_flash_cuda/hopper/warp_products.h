/* warp_products.h: the two products of attention by mma.sync, each warp for itself, out of the tiles
 * that TMA brings: rung 6's products in the Hopper rungs' form.
 *
 * A warp has MT tiles of 16 queries, 64 rows apart, and uses each fragment of K and V for all of
 * them.  Its fragments are wgmma's (wgmma.h): s and o lie in the same registers of the same lanes.
 * Tiles are swizzled, so a step of 16 columns flips bits 5 and 6 of an address. */
#pragma once

#include "work_tile.h"

/* Columns 16 d ... 16 d + 15 of Q, as A operands.   q_rows  the warpgroup's, in a tile of Br rows */
template <class C>
static __device__ __forceinline__ void load_warp_q(uint32_t (&q)[C::MT][4],
                                                   const typename C::T *q_rows, int d)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    const uint32_t q0 = shared_address(q_rows) + row * 128 + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int t = 0; t < C::MT; t++)
        ldmatrix(q[t], (q0 ^ d % 4 * 32) + (d / 4 * C::Br + 64 * t) * 128);
}

/* S = Q K^T.   q  all of Q, or room for a step      k  a tile of Bc keys */
template <class C>
static __device__ __forceinline__ void
warp_qk(float (&s)[C::MT][C::Bc / 2], uint32_t (&q)[C::Q_IN_REGISTERS ? C::D / 16 : 1][C::MT][4],
        const typename C::T *q_rows, const typename C::T *k)
{
    const int lane = threadIdx.x % 32, key = lane / 16 * 8 + lane % 8;
    const uint32_t k0 = shared_address(k) + key * 128 + (lane / 8 % 2 ^ lane % 8) * 16;
#pragma unroll
    for (int t = 0; t < C::MT; t++)
#pragma unroll
        for (int i = 0; i < C::Bc / 2; i++) s[t][i] = 0.0f;
#pragma unroll
    for (int d = 0; d < C::D / 16; d++) {
        uint32_t (&a)[C::MT][4] = q[C::Q_IN_REGISTERS ? d : 0], b[4];
        if (!C::Q_IN_REGISTERS) load_warp_q<C>(a, q_rows, d);
#pragma unroll
        for (int j = 0; j < C::Bc / 16; j++) { /* 16 keys */
            ldmatrix(b, (k0 ^ d % 4 * 32) + (d / 4 * C::Bc + 16 * j) * 128);
#pragma unroll
            for (int t = 0; t < C::MT; t++) {
                mma_16x8x16<typename C::T>(s[t] + 8 * j, a[t], b[0], b[1]);
                mma_16x8x16<typename C::T>(s[t] + 8 * j + 4, a[t], b[2], b[3]);
            }
        }
    }
}

/* O += P V.   v  a tile of Bc values, transposed on the way to the fragments */
template <class C>
static __device__ __forceinline__ void warp_pv(float (&o)[C::MT][C::D / 2],
                                               const uint32_t (&p)[C::MT][C::Bc / 4],
                                               const typename C::T *v)
{
    const int lane = threadIdx.x % 32;
    const uint32_t v0 =
        shared_address(v) + lane % 16 * 128 + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int j = 0; j < C::Bc / 16; j++)
#pragma unroll
        for (int n = 0; n < C::D / 16; n++) { /* 16 columns */
            uint32_t b[4];
            ldmatrix_transposed(b, (v0 ^ n % 4 * 32) + (n / 4 * C::Bc + 16 * j) * 128);
#pragma unroll
            for (int t = 0; t < C::MT; t++) {
                mma_16x8x16<typename C::T>(o[t] + 8 * n, p[t] + 4 * j, b[0], b[1]);
                mma_16x8x16<typename C::T>(o[t] + 8 * n + 4, p[t] + 4 * j, b[2], b[3]);
            }
        }
}
