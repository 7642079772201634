/* q_fragments.h: queries in registers, as A operands: of the whole warpgroup for wgmma, or of a
 * warp for mma.sync, which have the same fragments. */
#pragma once

#include "work_tile.h"

/* Loads the 64 rows at q_rows of a Q tile of Br rows into registers, as A operands. */
template <class C>
static __device__ __forceinline__ void load_q_fragments(uint32_t (&q)[C::D / 4],
                                                    const typename C::T *q_rows)
{
    int lane = threadIdx.x % 32, r = threadIdx.x % 128 / 32 * 16 + lane % 16;
    uint32_t base = shared_address(q_rows) + r * 128;
#pragma unroll
    for (int i = 0; i < C::D / 16; i++) {
        uint32_t chunk = (2 * (i % 4) + lane / 16) ^ (r & 7);
        ldmatrix(q + 4 * i, base + i / 4 * C::Br * 128 + chunk * 16);
    }
}

/* Q as the operand of Q K^T: fragments in registers, or a descriptor of shared memory. */
template <class C>
using q_operand =
    std::conditional_t<C::Q_IN_REGISTERS, uint32_t[C::Q_IN_REGISTERS ? C::D / 4 : 1], uint64_t>;

template <class C>
static __device__ __forceinline__ void set_q(q_operand<C> &q, const typename C::T *q_rows)
{
    if constexpr (C::Q_IN_REGISTERS) load_q_fragments<C>(q, q_rows);
    else q = descriptor_qk(q_rows);
}

/* Issues S = Q K^T as issue_qk() does, with Q in registers. */
template <class C>
static __device__ __forceinline__ void issue_qk(float (&s)[C::Bc / 2],
                                                const uint32_t (&q)[C::D / 4],
                                                const typename C::T *k_tile)
{
    uint64_t k = descriptor_qk(k_tile);
    wgmma_qk<typename C::T, true>(s, q, k);
#pragma unroll
    for (int i = 1; i < C::D / 16; i++)
        wgmma_qk<typename C::T, false>(s, q + 4 * i,
                                       k + i / 4 * (C::Bc * 128 >> 4) + i % 4 * 2);
    wgmma_commit();
}

/* S = Q K^T of one warp's 16 rows by mma.sync, without wgmma, which needs all four warps.
 *   q       the operand, used where it is in registers
 *   q_rows  the warpgroup's queries in shared memory, used where it is not
 *   k       a tile of Bc keys */
template <class C>
static __device__ __forceinline__ void warp_scores(float (&s)[C::Bc / 2],
                                                   const q_operand<C> &q,
                                                   const typename C::T *q_rows,
                                                   const typename C::T *k)
{
    int lane = threadIdx.x % 32, key = lane / 16 * 8 + lane % 8;
    uint32_t base = shared_address(k) + key * 128, loaded[C::D / 4];
    if constexpr (!C::Q_IN_REGISTERS) load_q_fragments<C>(loaded, q_rows);
#pragma unroll
    for (int i = 0; i < C::Bc / 2; i++) s[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < C::D / 16; i++) {
        uint32_t chunk = (2 * (i % 4) + lane / 8 % 2) ^ (key & 7);
        const uint32_t *a;
        if constexpr (C::Q_IN_REGISTERS) a = q + 4 * i;
        else a = loaded + 4 * i;
#pragma unroll
        for (int n = 0; n < C::Bc / 16; n++) { /* 16 keys: two tiles of 8 columns */
            uint32_t b[4];
            ldmatrix(b, base + i / 4 * C::Bc * 128 + n * 16 * 128 + chunk * 16);
            mma_16x8x16<typename C::T>(s + 8 * n, a, b[0], b[1]);
            mma_16x8x16<typename C::T>(s + 8 * n + 4, a, b[2], b[3]);
        }
    }
}
