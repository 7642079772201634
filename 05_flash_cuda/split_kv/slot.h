/* slot.h: 16 keys of K or V in shared memory, as split_kv.cu uses them: asynchronous copies into a
 * slot of a warp's buffer, products out of it.  Rung 3's tile (portable/swizzled_tile.h), for a
 * warp on its own. */
#pragma once

#include "split_kv/codes.h"

constexpr int KEYS = 16;

/* Where piece `piece` (16 bytes) of row `row` lies in a slot, in units of 16 bits: rung 3's swizzle. */
static __forceinline__ __device__ int place_of(int row, int piece)
{
    return (piece / 8 * KEYS + row) * 64 + (piece % 8 ^ row % 8) * 8;
}

/* The same in rows of BYTES.  Of 64 bytes, row j has row j + 8 beside it. */
template <int BYTES> static __forceinline__ __device__ int place_in_slot(int row, int piece)
{
    return BYTES == 64 ? place_of(row % 8, piece + row / 8 * 4) : place_of(row, piece);
}

/* Starts the warp's copy of KEYS rows.
 *   slot (KEYS, D) swizzled   from (n_rows, n_columns); what lies beyond becomes zero
 *   stride  from row to row */
template <int D, class ELEMENT>
static __forceinline__ __device__ void start_copy(const uint16_t *slot,
                                                  const ELEMENT *from, int n_rows,
                                                  int n_columns, unsigned stride)
{
    constexpr int BYTES = D * (int)sizeof(ELEMENT), COLUMNS = 16 / sizeof(ELEMENT); /* of a piece */
    constexpr int PIECES = BYTES / 16, AT_ONCE = 32 / PIECES; /* rows that the lanes copy at once */
    const unsigned lane = threadIdx.x % 32, piece = lane % PIECES;
    from += (size_t)(lane / PIECES) * stride + COLUMNS * piece;
#pragma unroll
    for (int i = 0; i < KEYS; i += AT_ONCE) {
        int row = lane / PIECES + i;
        copy_16_bytes(address_of(slot + place_in_slot<BYTES>(row, piece)), from,
                      row < n_rows && COLUMNS * (int)piece < n_columns);
        from += (size_t)AT_ONCE * stride;
    }
}

/* S = Q K^T for 16 keys: two C fragments.  A load has 16 columns of the keys, of codes 32. */
template <enum dtype T, enum dtype KV, int D>
static __forceinline__ __device__ void multiply_qk(float (&s)[KEYS / 8][4],
                                                   const uint32_t (&q)[D / 16][4],
                                                   const uint16_t *k)
{
    constexpr int STEPS = IS_CODE<KV> ? 2 : 1, BYTES = IS_CODE<KV> ? D : 2 * D;
    int lane = threadIdx.x % 32;
    shared_address k0 =
        address_of(k + place_in_slot<BYTES>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[n][c] = 0.0f;
#pragma unroll
    for (int d = 0; d < D / 16; d += STEPS) {
        uint32_t b[4];
        load_matrices(b, (k0 ^ d / STEPS % 4 * 32) + d / STEPS / 4 * KEYS * 128);
#pragma unroll
        for (int i = 0; i < 4; i += 2) /* 8 keys */
            if constexpr (IS_CODE<KV>)
#pragma unroll
                for (int step = 0; step < 2; step++) {
                    uint32_t wide[2];
                    widen_codes<KV>(wide, b[i + step]);
                    mma_16x8x16<F16>(s[i / 2], q[d + step], wide[0], wide[1]);
                }
            else mma_16x8x16<T>(s[i / 2], q[d], b[i], b[i + 1]);
    }
}

/* O += P V for 16 keys. */
template <enum dtype T, enum dtype KV, int D>
static __forceinline__ __device__ void add_pv(float (&o)[D / 8][4],
                                              const float (&p)[KEYS / 8][4],
                                              const uint16_t *v)
{
    constexpr int STEPS = IS_CODE<KV> ? 2 : 1, BYTES = IS_CODE<KV> ? D : 2 * D;
    constexpr enum dtype P = IS_CODE<KV> ? F16 : T;
    int lane = threadIdx.x % 32;
    shared_address v0 = address_of(v + place_in_slot<BYTES>(lane % 16, lane / 16));
    uint32_t a[4] = {pack<P>(p[0][0], p[0][1]), pack<P>(p[0][2], p[0][3]),
                     pack<P>(p[1][0], p[1][1]), pack<P>(p[1][2], p[1][3])};
#pragma unroll
    for (int n = 0; n < D / 8; n += 2 * STEPS) {
        uint32_t b[4];
        load_matrices_transposed(b, (v0 ^ n / STEPS % 8 * 16) + n / STEPS / 8 * KEYS * 128);
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            if constexpr (IS_CODE<KV>) { /* the even columns, then the odd */
                uint32_t low[2], high[2];
                widen_codes<KV>(low, even_first(b[i]));
                widen_codes<KV>(high, even_first(b[i + 1]));
                mma_16x8x16<F16>(o[n + i], a, low[0], high[0]);
                mma_16x8x16<F16>(o[n + i + 1], a, low[1], high[1]);
            } else mma_16x8x16<T>(o[n + i / 2], a, b[i], b[i + 1]);
    }
}
