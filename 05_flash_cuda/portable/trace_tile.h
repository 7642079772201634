/* trace_tile.h: what `make trace 5` shows: rung 1 writes down the state of query 0 after every tile
 * where the CPU executes it.  On a GPU trace_tile() is empty. */
#pragma once

#include "monoid.h"
#include "portable/float_arithmetic.h"

#ifdef __CUDACC__
static inline __device__ void trace_tile(int, int, float, struct se, float, const float *, int) {}
#else
/* Where it goes, if anybody asks: for each tile max s, m, l, correction, o (head_dim_v). */
inline float *tile_trace = NULL;

/* Query i after tile t.   s  the lane's score      o  its columns lane, lane + 32, ... */
static inline void trace_tile(int i, int t, float s, struct se state, float correction, const float *o,
                       int head_dim_v)
{
    if (!tile_trace || i > 0) return;
    int lane = threadIdx.x % 32;
    float *to = tile_trace + t * (4 + head_dim_v);
    const float of_row[4] = {lanes_max<32>(s), state.m, state.l, correction};
    if (lane < 4) to[lane] = of_row[lane];
    for (int c = lane; c < head_dim_v; c += 32) to[4 + c] = o[c / 32];
}
#endif
