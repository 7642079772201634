/* swizzled_tile.h: a tile in shared memory as rungs 3 to 6 use it, in exactly the same form:
 * products out of it, and o through it to main memory.
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
#pragma once

#include "attention.h"
#include "portable/mma_sync.h"

/* Shared memory of a block: its queries, in the end its o, and W::BUFFERS tiles of K and V. */
template <class W> struct tile_memory {
    static_assert(W::D % 16 == 0 && W::Bc % 16 == 0, "a product takes 16 columns or keys");
    static constexpr int PANELS = (W::D + 63) / 64; /* of 64 columns, 128 bytes per row */
    alignas(1024) uint16_t q[PANELS * W::Br * 64];
    alignas(1024) uint16_t k[W::BUFFERS][PANELS * W::Bc * 64];
    alignas(1024) uint16_t v[W::BUFFERS][PANELS * W::Bc * 64];
};

/* The running state of a warp's queries, as C fragments.  m is not scaled; l is this lane's part of
 * the sum.  And Q as A fragments, all of it or one step. */
template <class W> struct warp_state {
    float o[W::MT][W::D / 8][4];
    float m[W::MT][2], l[W::MT][2];
    uint32_t q[W::Q_IN_REGISTERS ? W::D / 16 : 1][W::MT][4];
};

/* The offset in elements of piece `piece` (8 columns) of row `row`, in a tile of ROWS rows. */
template <int ROWS> static __forceinline__ __device__ int swizzled(int row, int piece)
{
    return (piece / 8 * ROWS + row) * 64 + (piece % 8 ^ row % 8) * 8;
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

/* S = Q K^T: s[i][j] has query tile i and keys 8 j ... 8 j + 7.  K's rows are the columns of K^T,
 * so ldmatrix without transposition makes B fragments of them: matrices 0 and 1 are the upper and
 * lower half of B for keys 0-7, matrices 2 and 3 for keys 8-15.
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

/* O += P V.  Two neighbouring C fragments of P are one A fragment.  V lies in memory as it is
 * multiplied, so its B fragments come through the transposing ldmatrix.
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
                                             const struct head_block &h,
                                             const struct attention &x, float unit)
{
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT;
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) { /* the row's sum from its four lanes */
            f.l[i][r] = quad_sum(f.l[i][r]);
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
        int n_columns = h.q0 + row < x.seqlen_q ? x.head_dim_v - 8 * piece : 0;
        uint16_t *to = o_row(x, h, h.q0 + row) + 8 * piece;
        const uint16_t *from = shared.q + swizzled<W::Br>(row, piece);
        if (n_columns >= 8 && (size_t)to % 16 == 0) *(uint4 *)to = *(const uint4 *)from;
        else
            for (int c = 0; c < min(8, n_columns); c++) to[c] = from[c];
    }
}

/* What rungs 3 to 6 do not take: a scale that is not positive, because the maximum is taken of
 * scores that are not scaled yet. */
[[maybe_unused]] static const char *mma_refuses(const struct problem *p)
{
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if (!(p->scale > 0.0f && p->scale < INFINITY)) return "a scale that is not positive";
    return too_large(p, 64); /* no tiling has fewer queries in a block */
}
