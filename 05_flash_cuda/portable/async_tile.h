/* async_tile.h: asynchronous copies of tiles, as rungs 4 to 6 issue them, and what these rungs do
 * not take. */
#pragma once

#include "portable/swizzled_tile.h"
#include "gpu/device.h"

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
                                                const struct head_block &h,
                                                const struct attention &x, int t)
{
    int j0 = t * W::Bc, n = x.seqlen_k - j0;
    issue_copy<W, W::Bc>(shared.k[t % 2], h.k + (size_t)j0 * x.head_dim, n, x.head_dim);
    issue_copy<W, W::Bc>(shared.v[t % 2], h.v + (size_t)j0 * x.head_dim_v, n,
                         x.head_dim_v);
    copies_commit();
}

/* Rows of a multiple of 16 bytes, because cp.async copies 16. */
[[maybe_unused]] static const char *async_refuses(const struct problem *p)
{
    if (p->head_dim % 8 || p->head_dim_v % 8)
        return "a head_dim that is no multiple of 8";
    return mma_refuses(p);
}
