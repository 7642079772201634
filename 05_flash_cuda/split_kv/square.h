/* square.h: 32 keys by 32 columns of K or V in shared memory, as split_kv_f32.cu uses it:
 * asynchronous copies into it, products out of it.  A copy is 128 bytes of each key, and a
 * square 4 KB, whatever head_dim is. */
#pragma once

#include "portable/float_arithmetic.h"
#include "portable/mma_sync.h"

constexpr int KEYS = 32, SIDE = 32; /* a square is KEYS by SIDE floats */
static_assert(KEYS == 32, "lane j of a warp has key j of the tile");

/* Where column c of row r lies in a square: the 16-byte piece c / 4 at place
 * c / 4 ^ r % 8, so that lanes that read different rows at the same column, or columns
 * of the same row, find them in different banks. */
static __forceinline__ __device__ int place_of(int r, int c)
{
    return r * SIDE + (c / 4 ^ r % 8) * 4 + c % 4;
}

/* BYTES (4 or 16) from global to shared memory, past the registers; where valid is 0
 * nothing is read and zeros are written.  sm_75 has no such copy: there it is done when
 * this returns. */
template <int BYTES>
static __forceinline__ __device__ void copy(float *to, const float *from, bool valid)
{
#ifndef __CUDACC__
    cuda_on_cpu::cp_async(to, from, BYTES, valid ? BYTES : 0);
#elif __CUDA_ARCH__ >= 800
    if constexpr (BYTES == 16)
        copy_16_bytes(address_of(to), from, valid);
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     : : "r"(address_of(to)), "l"(from), "r"(valid ? 4 : 0) : "memory");
#else
    if constexpr (BYTES == 16)
        *(float4 *)to = valid ? *(const float4 *)from : make_float4(0, 0, 0, 0);
    else *to = valid ? *from : 0.0f;
#endif
}

/* Starts the warp's copy of a square, columns c0 ... of n_columns: zeros beyond them and beyond
 * n_keys.
 *   key_at(r)  where key r begins, for all lanes of the warp together
 *   by_16      whether all keys begin at a multiple of 16 bytes */
template <class KEY_AT>
static __forceinline__ __device__ void start_square(float *slot, KEY_AT key_at, bool by_16,
                                                    int n_keys, int c0, int n_columns)
{
    const int lane = threadIdx.x % 32;
    if (by_16) {
        int c = lane % 8 * 4;
#pragma unroll
        for (int r = lane / 8; r < KEYS; r += 4)
            copy<16>(slot + place_of(r, c), key_at(r) + c0 + c,
                     r < n_keys && c0 + c < n_columns);
        return;
    }
    for (int r = 0; r < KEYS; r++)
        copy<4>(slot + place_of(r, lane), key_at(r) + c0 + lane,
                r < n_keys && c0 + lane < n_columns);
}

/* s (ROWS) += q k^T of this lane's key, 32 columns.
 *   q  their first column in the first row */
template <int ROWS, int D>
static __forceinline__ __device__ void add_scores(float (&s)[ROWS], const float *q,
                                                  const float *square)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < SIDE; c += 4) {
        float4 k = *(const float4 *)(square + place_of(lane, c));
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float4 x = *(const float4 *)(q + r * D + c);
            s[r] = add_dot(s[r], x, k);
        }
    }
}

/* o (ROWS) += p v of this lane's column of the square. */
template <int ROWS>
static __forceinline__ __device__ void add_values(float (&o)[ROWS],
                                                  const float (*p)[KEYS],
                                                  const float *square)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < KEYS; j += 4) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = square[place_of(j + i, lane)];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float4 x = *(const float4 *)&p[r][j];
            o[r] = fmaf(x.x, v[0], o[r]);
            o[r] = fmaf(x.y, v[1], o[r]);
            o[r] = fmaf(x.z, v[2], o[r]);
            o[r] = fmaf(x.w, v[3], o[r]);
        }
    }
}
