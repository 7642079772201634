/* swizzled_tile.h: a tile in shared memory as rungs 4 to 6 use it, in exactly the same form:
 * asynchronous copies into it, products out of it, and o through it to main memory.
 *
 * A tile of ROWS rows and D columns of 16 bits is D / 64 panels, one after another.  A panel
 * is ROWS rows of 64 columns, 128 bytes each.  The 16-byte piece p of row r lies at piece
 * p ^ (r % 8) of its row (swizzle):
 *
 *     row 0:  0 1 2 3 4 5 6 7      ldmatrix reads one piece of eight rows at a time.
 *     row 1:  1 0 3 2 5 4 7 6      Unswizzled, the eight would lie in the same banks.
 *     row 2:  2 3 0 1 6 7 4 5      Swizzled, they lie in eight different groups of banks,
 *     ...                          and no memory is spent on padding.
 *
 * W is the rung's `struct tiling`: W::MT tiles of 16 queries a warp, W::Br queries and W::Bc
 * keys a block of threads, W::D columns. */
#ifndef SWIZZLED_TILE_H
#define SWIZZLED_TILE_H

#include "attention.h"
#include "portable/mma_sync.h"

/* The offset in elements of piece `piece` (8 columns) of row `row`, in a tile of ROWS rows. */
template <int ROWS> static __forceinline__ __device__ int swizzled(int row, int piece)
{
    return (piece / 8 * ROWS + row) * 64 + (piece % 8 ^ row % 8) * 8;
}

/* Issues the copies of a tile of ROWS rows; a thread keeps to one column of pieces.
 *   to (ROWS, D) swizzled   from (n_rows, n_columns); what lies beyond it becomes zero */
template <class W, int ROWS>
static __forceinline__ __device__ void issue_copy(const uint16_t *to,
                                                  const uint16_t *from, int n_rows,
                                                  int n_columns)
{
    constexpr int PIECES = W::D / 8;
    constexpr int STEP = W::THREADS / PIECES; /* rows that all threads copy */
    int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    if (8 * piece >= n_columns) n_rows = 0;
    from += (ptrdiff_t)row * n_columns + 8 * piece;
#pragma unroll
    for (int i = 0; i < (ROWS + STEP - 1) / STEP; i++, row += STEP)
        if (W::THREADS % PIECES == 0 || (threadIdx.x < STEP * PIECES && row < ROWS))
            copy_16_bytes(address_of(to) + 2 * swizzled<ROWS>(row, piece),
                          from + (ptrdiff_t)i * STEP * n_columns, row < n_rows);
}

/* Issues the copies of key block t into buffer t % 2, as one group. */
template <class W>
static __forceinline__ __device__ void issue_kv(const typename W::shared &shared,
                                                const struct head &h,
                                                const struct attention &x, int t)
{
    int j0 = t * W::Bc, n = x.seqlen_k - j0;
    issue_copy<W, W::Bc>(shared.k[t % 2], h.k + (size_t)j0 * x.head_dim, n, x.head_dim);
    issue_copy<W, W::Bc>(shared.v[t % 2], h.v + (size_t)j0 * x.head_dim_v, n,
                         x.head_dim_v);
    copies_commit();
}

/* Columns 16 d ... 16 d + 15 of Q as A fragments.
 *   q0  address of piece lane / 16 of row lane % 16 of this warp's queries
 * A step of d moves two pieces: in a swizzled row that flips bits 5 and 6 of the
 * address. */
template <class W>
static __forceinline__ __device__ void load_q(typename W::state &f, shared_address q0,
                                              int d)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++)
        load_matrices(f.q[W::Q_IN_REGISTERS ? d : 0][i],
                      (q0 ^ d % 4 * 32) + (d / 4 * W::Br + 16 * i) * 128);
}

/* S = Q K^T: s[i][j] has query tile i and keys 8 j ... 8 j + 7.
 *   k (Bc, D)  swizzled tile      q0  as in load_q() */
template <enum dtype T, class W>
static __forceinline__ __device__ void multiply_qk(typename W::scores &s,
                                                   typename W::state &f,
                                                   shared_address q0, const uint16_t *k)
{
    int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    shared_address k0 = address_of(k + swizzled<W::Bc>(row, lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int j = 0; j < W::Bc / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) s[i][j][c] = 0.0f;
#pragma unroll
    for (int d = 0; d < W::D / 16; d++) {
        if (!W::Q_IN_REGISTERS) load_q<W>(f, q0, d);
#pragma unroll
        for (int j = 0; j < W::Bc / 8; j += 2) {
            uint32_t b[4];
            load_matrices(b, (k0 ^ d % 4 * 32) + (d / 4 * W::Bc + 8 * j) * 128);
#pragma unroll
            for (int i = 0; i < W::MT; i++) {
                const uint32_t(&a)[4] = f.q[W::Q_IN_REGISTERS ? d : 0][i];
                mma_16x8x16<T>(s[i][j], a, b[0], b[1]);
                mma_16x8x16<T>(s[i][j + 1], a, b[2], b[3]);
            }
        }
    }
}

/* O += P V.
 *   v (Bc, D)  swizzled tile */
template <enum dtype T, class W>
static __forceinline__ __device__ void add_pv(typename W::state &f,
                                              const typename W::scores &p,
                                              const uint16_t *v)
{
    int lane = threadIdx.x % 32;
    shared_address v0 = address_of(v + swizzled<W::Bc>(lane % 16, lane / 16));
#pragma unroll
    for (int j = 0; j < W::Bc / 16; j++) { /* keys 16 j ... 16 j + 15 */
        uint32_t a[W::MT][4];
#pragma unroll
        for (int i = 0; i < W::MT; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                a[i][e] = pack<T>(p[i][2 * j + e / 2][2 * (e % 2)],
                                  p[i][2 * j + e / 2][2 * (e % 2) + 1]);
#pragma unroll
        for (int n = 0; n < W::D / 8; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b,
                                     (v0 ^ n % 8 * 16) + (n / 8 * W::Bc + 16 * j) * 128);
#pragma unroll
            for (int i = 0; i < W::MT; i++) {
                mma_16x8x16<T>(f.o[i][n], a[i], b[0], b[1]);
                mma_16x8x16<T>(f.o[i][n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* o = O / l as 16-bit elements, in the warp's own rows of the Q tile, from where 16
 * bytes a lane leave together; lse = m unit + ln l.  A query without visible keys: 0
 * and -inf. */
template <enum dtype T, class W>
static __forceinline__ __device__ void store(typename W::state &f,
                                             typename W::shared &shared,
                                             const struct head &h,
                                             const struct attention &x, float unit)
{
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT;
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) { /* the row's sum from its four lanes */
            f.l[i][r] += __shfl_xor_sync(~0u, f.l[i][r], 1);
            f.l[i][r] += __shfl_xor_sync(~0u, f.l[i][r], 2);
        }
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = row0 + 16 * i + lane / 4 + 8 * r;
            float l = f.l[i][r], inverse = l == 0.0f ? 0.0f : __fdividef(1.0f, l);
            shared_address o0 =
                address_of(shared.q + swizzled<W::Br>(row, 0)) + lane % 4 * 4;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++)
                store_pair(
                    (o0 ^ n % 8 * 16) + n / 8 * W::Br * 128,
                    pack<T>(f.o[i][n][2 * r] * inverse, f.o[i][n][2 * r + 1] * inverse));
            if (lane % 4 == 0 && h.q0 + row < x.seqlen_q)
                *lse_row(x, h, h.q0 + row) =
                    l == 0.0f ? -INFINITY : f.m[i][r] * unit + logf(l);
        }
    __syncwarp();
    for (int n = lane; n < 16 * W::MT * W::D / 8; n += 32) {
        int row = row0 + n / (W::D / 8), piece = n % (W::D / 8);
        if (h.q0 + row < x.seqlen_q && 8 * piece < x.head_dim_v)
            *(uint4 *)(o_row(x, h, h.q0 + row) + 8 * piece) =
                *(const uint4 *)(shared.q + swizzled<W::Br>(row, piece));
    }
}

#endif
