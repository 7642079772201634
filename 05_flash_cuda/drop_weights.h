/* drop_weights.h: dropout of the weights that a warp holds as C fragments of products. */
#pragma once

#include "dropout.h"

/* The four numbers of an element are all a thread's own: weights N / 4 fragments of 8 columns, of which two
 * that follow one another make 16 x 16 squares.  Dropped weights become 0.   i, j  the thread's first row and column */
template <int N>
static __forceinline__ __device__ void drop_weights(float *p, const struct dropout &drops, uint32_t head, int i,
                                                    int j)
{
#pragma unroll
    for (int n = 0; n < N; n += 8)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const struct four x = philox(&drops, head, i, j + 2 * n + e);
#pragma unroll
            for (int k = 0; k < 4; k++) /* (i, j), (i, j + 8), (i + 8, j), (i + 8, j + 8) */
                if (x.x[k] < drops.below) p[n + 4 * (k % 2) + 2 * (k / 2) + e] = 0.0f;
        }
}
