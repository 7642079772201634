/* codes.h: keys and values in 8 bits as split_kv.cu uses them: they stay codes up to the registers, and
 * become float16 there, exactly, in one instruction for two (bfloat16 takes four).  So q becomes float16
 * too, times a power of two, and weights are at most 2^15 instead of 1, so that none is too small for it.
 *
 * ldmatrix moves units of 16 bits, here two codes.  So a lane gets other columns than of 16-bit
 * numbers, and the rest of the kernel follows:
 *
 *     K               columns 4t ... 4t + 3 of 16.  A sum over columns may go in any order, if q's go
 *                     in the same (column_of_q)
 *     V, transposed   columns 2g and 2g + 1 of two keys: the even columns of 16 are one C tile, the
 *                     odd ones the next (store_row_of_o) */
#pragma once

#include <type_traits>

#include "portable/mma_sync.h"
#include "vector/codes8.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

template <enum dtype KV> constexpr bool IS_CODE = KV == E4M3 || KV == INT8;

#ifdef __CUDACC__
/* Two e4m3 in the upper bytes of h's halves.  Their bits are those of a float16 that is 2^8 too
 * small, but for NaN. */
static __forceinline__ __device__ uint32_t e4m3_to_halves(uint32_t h)
{
    uint32_t bits = (h & 0x80008000u) | (h & 0x7f007f00u) >> 1;
    __half2 x = __hmul2(*(__half2 *)&bits, __half2half2(__ushort_as_half(0x5c00)));
    bits = *(uint32_t *)&x;
    if ((h & 0x7f00u) == 0x7f00u) bits |= 0x7fffu;
    if ((h & 0x7f000000u) == 0x7f000000u) bits |= 0x7fff0000u;
    return bits;
}
#endif

/* Four codes, from the lowest byte up, as two pairs of float16, exactly. */
template <enum dtype KV>
static __forceinline__ __device__ void widen_codes(uint32_t (&pair)[2], uint32_t codes)
{
#ifndef __CUDACC__
    for (int i = 0; i < 2; i++) {
        float x[2];
        for (int e = 0; e < 2; e++) {
            uint8_t code = (uint8_t)(codes >> (16 * i + 8 * e));
            x[e] = KV == E4M3 ? e4m3_to_float(code) : (float)(int8_t)code;
        }
        pair[i] = pack<F16>(x[0], x[1]);
    }
#else
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if constexpr (KV == E4M3) {
#if __CUDA_ARCH__ >= 890
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair[i]) : "h"((uint16_t)(codes >> 16 * i)));
#else
            pair[i] = e4m3_to_halves(__byte_perm(codes, 0, i ? 0x3424 : 0x1404));
#endif
        } else { /* 1024 + (code + 128), less 1152 */
            uint32_t bits = __byte_perm(codes ^ 0x80808080u, 0x64646464u, i ? 0x4342 : 0x4140);
            __half2 x = __hsub2(*(__half2 *)&bits, __half2half2(__ushort_as_half(0x6480)));
            pair[i] = *(uint32_t *)&x;
        }
    }
#endif
}

/* Bytes 0, 2, 1, 3. */
static __forceinline__ __device__ uint32_t even_first(uint32_t x)
{
#ifdef __CUDACC__
    return __byte_perm(x, 0, 0x3120);
#else
    return (x & 0xff0000ffu) | (x >> 8 & 0xff00u) | (x & 0xff00u) << 8;
#endif
}

/* Of step d of 16 columns, the first of the two that register r of an A fragment holds. */
template <enum dtype KV> static __forceinline__ __device__ int column_of_q(int d, int r)
{
    const int t = threadIdx.x % 4;
    return 16 * d + (IS_CODE<KV> ? 4 * t + 2 * (r / 2) : 8 * (r / 2) + 2 * t);
}

/* The lane's columns of C tiles n and n + 1, two each, in o's row. */
template <enum dtype KV>
static __forceinline__ __device__ void store_row_of_o(float *row, int n, float2 x, float2 y)
{
    const int t = threadIdx.x % 4;
    if (IS_CODE<KV>) {
        *(float4 *)(row + 8 * n + 4 * t) = make_float4(x.x, y.x, x.y, y.y);
        return;
    }
    *(float2 *)(row + 8 * n + 2 * t) = x;
    *(float2 *)(row + 8 * n + 8 + 2 * t) = y;
}

/* Two rows of q (8 registers a step of 16 columns) in bfloat16 become float16 times a power of two that
 * brings the largest to 2^14: what is above 2^-28 of it keeps all its bits.  inverse (2) gets what the
 * scores of the rows are multiplied by for that. */
template <int D>
static __forceinline__ __device__ void narrow_q(uint32_t (&a)[D / 16][4], float (&inverse)[2])
{
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float most = 0.0f;
#pragma unroll
        for (int d = 0; d < D / 16; d++)
#pragma unroll
            for (int r = row; r < 4; r += 2)
                most = fmaxf(most, fmaxf(fabsf(__uint_as_float(a[d][r] << 16)),
                                         fabsf(__uint_as_float(a[d][r] & 0xffff0000u))));
        most = quad_max(most);
        uint32_t exponent = min(268u - (__float_as_uint(most) >> 23), 253u);
        float factor = __uint_as_float(exponent << 23);
        inverse[row] = __uint_as_float((254u - exponent) << 23);
#pragma unroll
        for (int d = 0; d < D / 16; d++)
#pragma unroll
            for (int r = row; r < 4; r += 2)
                a[d][r] = pack<F16>(factor * __uint_as_float(a[d][r] << 16),
                                    factor * __uint_as_float(a[d][r] & 0xffff0000u));
    }
}
