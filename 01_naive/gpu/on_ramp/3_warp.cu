/* On-ramp 3: the 32 lanes of a warp add up a row by shuffles.
 *
 *     l = sum_j exp(x_j)      one row for each warp
 *
 * 32 neighbouring threads are a warp, and execute each instruction together.  A shuffle lets
 * a lane read a register of another lane: no shared memory, no barrier.  After the exchange
 * with the lanes 16, 8, 4, 2 and 1 places away every lane has the whole sum. */
#include "on_ramp.h"

#define THREADS 128 /* 4 warps in a block */
#define WARP 32

/*   x (rows, n)      l (rows) */
static __global__ void warp_sum_kernel(const float *x, float *l, int rows, int n)
{
    int row = (blockIdx.x * THREADS + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return; /* the whole warp leaves: no lane waits for one that left */
    const float *x_i = x + (size_t)row * n;
    float sum = 0;
    for (int j = lane; j < n; j += WARP) sum += expf(x_i[j]);

    for (int away = WARP / 2; away > 0; away /= 2)
        sum += __shfl_xor_sync(~0u, sum, away); /* ~0u: all 32 lanes take part */
    if (lane == 0) l[row] = sum;
}

int main(void)
{
    int rows = 6, n = 1000, blocks = (rows * WARP + THREADS - 1) / THREADS;
    float *x = new_array((size_t)rows * n), *l = new_array(rows), *want = new_array(rows);
    for (int i = 0; i < rows; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) {
            x[i * n + j] = (float)((j * 7 + i * 3) % 11) - 5;
            sum += exp(x[i * n + j]);
        }
        want[i] = (float)sum;
    }
    printf("%d rows of %d scores: %d blocks of %d warps\n", rows, n, blocks, THREADS / WARP);
    launch(warp_sum_kernel, blocks, THREADS, 0, x, l, rows, n);
    return compare(l, want, rows);
}
