/* row_parts.h: how the kernels of this folder see a row: a part made of whole, aligned packs,
 * and the edges.
 *
 * A row starts anywhere: row i of cols floats starts at element i * cols, which is a
 * multiple of 4 only if cols is.  So it has a head of less than a pack, packs, and a
 * tail of less than a pack.  x and y themselves are 16-byte aligned and do not overlap.  A row
 * that is all -inf gives 0 (logsoftmax: -inf), a row with NaN or +inf gives NaN. */
#pragma once

#include "gpu/state.h"

/* head elements, then `packs` packs of WIDTH elements, then tail elements.  The packs begin at a
 * multiple of ALIGN elements. */
struct parts { int head, packs, tail; };

template <int WIDTH, int ALIGN = WIDTH>
static __device__ inline struct parts parts_of(size_t row, int cols)
{
    struct parts r;
    r.head = min((int)((0 - row * (size_t)cols) & (ALIGN - 1)), cols);
    r.packs = (cols - r.head) / WIDTH;
    r.tail = (cols - r.head) % WIDTH;
    return r;
}

/* Which edge element is thread i's: 0 .. head - 1 take the head, MOST .. MOST + tail - 1 the
 * tail; -1 for the others. */
template <int MOST = WARP>
static __device__ inline int edge_of(struct parts r, int cols, int i)
{
    if (i < r.head) return i;
    if (i >= MOST && i - MOST < r.tail) return cols - r.tail + i - MOST;
    return -1;
}

/* Shared memory of block_max and block_sum. */
struct reduction { float max[WARP], sum[WARP]; };

/* Bytes of a row. */
static inline size_t row_bytes(const struct problem *p)
{
    return p->cols * dtype_size(p->dtype);
}
