/* padded_tile.h: how rung 3 reads q, k and v and writes o, with ordinary loads and stores.
 *
 * Rows of K and V in shared memory are PAD elements, 16 bytes, longer than the head, so that
 * the eight rows that ldmatrix reads at a time lie in different banks.  Q and O pass between
 * main memory and the registers of a warp, as fragments (mma_sync.h). */
#ifndef PADDED_TILE_H
#define PADDED_TILE_H

#include "attention.h"
#include "portable/mma_sync.h"

constexpr int PAD = 8;

/* Columns 16 i ... 16 i + 15 of Q as an A fragment, straight from global memory.
 *   q (n_rows, n_columns)  this warp's queries; rows and columns beyond are zeros */
static __forceinline__ __device__ void load_q(uint32_t (&a)[4], const uint16_t *q, int i,
                                              int n_rows, int n_columns)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int row = threadIdx.x % 32 / 4 + 8 * (r % 2);
        int column = 16 * i + 8 * (r / 2) + 2 * (threadIdx.x % 4);
        const uint16_t *x = q + (ptrdiff_t)row * n_columns + column;
        uint32_t left = row < n_rows && column < n_columns ? x[0] : 0;
        uint32_t right = row < n_rows && column + 1 < n_columns ? x[1] : 0;
        a[r] = left | right << 16;
    }
}

/* Copies a tile of Bc rows to shared memory; returns 1 if this thread copied NaN or inf
 * (looked for only where the caller says so).
 *   to (Bc, D + PAD)   from (n_rows, n_columns)   what lies beyond `from` becomes zero
 * Rows of a multiple of 8 columns move 16 bytes at a time, others element by element. */
template <enum dtype T, int D, int Bc, int THREADS>
static __forceinline__ __device__ int load_tile(uint16_t *to, const uint16_t *from,
                                                int n_rows, int n_columns, int look)
{
    int nonfinite = 0;
    if (n_columns % 8 == 0 && (size_t)from % 16 == 0) {
#pragma unroll 4
        for (int i = threadIdx.x; i < Bc * D / 8; i += THREADS) {
            int row = i / (D / 8), column = i % (D / 8) * 8;
            uint4 x = make_uint4(0, 0, 0, 0);
            if (row < n_rows && column < n_columns)
                x = *(const uint4 *)(from + (size_t)row * n_columns + column);
            *(uint4 *)(to + row * (D + PAD) + column) = x;
            if (look)
                nonfinite |= has_nonfinite<T>(x.x) | has_nonfinite<T>(x.y) |
                             has_nonfinite<T>(x.z) | has_nonfinite<T>(x.w);
        }
    } else {
        for (int i = threadIdx.x; i < Bc * D; i += THREADS) {
            int row = i / D, column = i % D;
            uint16_t x = 0;
            if (row < n_rows && column < n_columns)
                x = from[(size_t)row * n_columns + column];
            to[row * (D + PAD) + column] = x;
            if (look) nonfinite |= has_nonfinite<T>(x);
        }
    }
    return nonfinite;
}

/* o = O / l and lse = m + ln l; a query without visible keys gets 0 and -inf.
 *   o  C fragments of the numerator   m, l  of the lane's two queries, l its own part
 *   first  the warp's first query */
template <enum dtype T, int D>
static __forceinline__ __device__ void store(const float (&o)[D / 8][4], const float (&m)[2],
                                             const float (&l)[2], const struct head &h,
                                             const struct attention &x, int first)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = first + threadIdx.x % 32 / 4 + 8 * r;
        float sum = l[r]; /* from the four lanes of the row */
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (row >= x.seqlen_q) continue;
        float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
        if (t == 0)
            *lse_row(x, h, row) =
                sum == 0.0f ? -INFINITY : m[r] + logf(sum);
        uint16_t *o_i = o_row(x, h, row);
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            int column = 8 * n + 2 * t;
            uint32_t both = pack<T>(o[n][2 * r] * scale, o[n][2 * r + 1] * scale);
            if (column < x.head_dim_v) o_i[column] = (uint16_t)both;
            if (column + 1 < x.head_dim_v) o_i[column + 1] = (uint16_t)(both >> 16);
        }
    }
}

#endif
