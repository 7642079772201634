/* merge.h: kernels that bring the parts of several GPUs together (tree.cu).  Also executed on the
 * CPU (tests/test_multi_gpu.cc).  The ring merges in the attention kernel (hopper/answer.h).
 *
 * A part that has seen some keys holds o, already divided by its l, and lse = m + log l.  That
 * is the element (o, 1, lse) of the monoid (stage 4's monoid.h), and parts merge with its
 * operation.  Everything is in float32: a part rounded to 16 bits would add its own rounding
 * to each merge.
 *
 *   rows     queries of all heads          d   columns of o
 * A warp works on a row: its lanes share the columns, and all compute the row's factors. */
#pragma once

#include "gpu/gpu_rows.h"

#include "monoid.h"

enum { MERGE_ROWS = 8 }; /* rows of a block, a warp each */

/* The launch for that many rows. */
static inline cudaLaunchConfig_t merge_launch(size_t rows, void *stream)
{
    return launch_of((rows + MERGE_ROWS - 1) / MERGE_ROWS, MERGE_ROWS * WARP, 0, stream);
}

static __device__ inline size_t merge_row(void)
{
    return block_number() * MERGE_ROWS + threadIdx.x / WARP;
}

/* The answer as the unit: o = 0, lse = -INFINITY. */
static __global__ void unit_kernel(float *o, float *lse, size_t rows, size_t d)
{
    size_t row = merge_row();
    if (row >= rows) return;
    if (threadIdx.x % WARP == 0) lse[row] = -INFINITY;
    for (size_t c = threadIdx.x % WARP; c < d; c += WARP) o[row * d + c] = 0.0f;
}

/* The parts of all ranks, one after another, merged in the order of the ranks: the same bits in
 * every run.
 *   parts (ranks, rows * (d + 1)): o (rows, d), then lse (rows)     out (rows, d), lse (rows) */
template <class T>
static __global__ void fold_kernel(T *out, float *lse, const float *parts, int ranks,
                                   size_t rows, size_t d)
{
    size_t row = merge_row(), size = rows * (d + 1);
    if (row >= rows) return;
    int lane = threadIdx.x % WARP;
    struct se all = se_unit();
    for (int r = 0; r < ranks; r++) {
        float x = parts[r * size + rows * d + row];
        struct se part = {x, x == -INFINITY ? 0.0f : 1.0f};
        all = se_merge(all, part);
    }
    if (lane == 0) lse[row] = se_lse(all);
    for (size_t c = lane; c < d; c += WARP) {
        float sum = 0.0f;
        for (int r = 0; r < ranks; r++) {
            float x = parts[r * size + rows * d + row];
            if (x == -INFINITY) continue;
            sum += se_factor(x, all.m) * parts[r * size + row * d + c];
        }
        out[row * d + c] = T(se_divide(all, sum));
    }
}
