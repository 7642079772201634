/* On-ramp 2: the threads of a block add up a row in shared memory.
 *
 *     l = sum_j exp(x_j)      one row for each block
 *
 * Each thread adds every 256th term.  The 256 sums of the threads meet in shared memory,
 * where half of the threads add the numbers of the other half, then a quarter, and so on.
 * Before anybody reads what others wrote, all wait at a barrier. */
#include "on_ramp.h"

#define THREADS 256

struct sums { float l[THREADS]; };

/*   x (blocks, n)      l (blocks) */
static __global__ void block_sum_kernel(const float *x, float *l, int n)
{
    struct sums &shared = dynamic_shared<struct sums>();
    const float *x_i = x + (size_t)blockIdx.x * n;
    int thread = threadIdx.x;
    float sum = 0;
    for (int j = thread; j < n; j += THREADS) sum += expf(x_i[j]);

    shared.l[thread] = sum;
    __syncthreads(); /* all 256 sums are written */
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (thread < half) shared.l[thread] += shared.l[thread + half];
        __syncthreads(); /* half as many sums are left, and are written */
    }
    if (thread == 0) l[blockIdx.x] = shared.l[0];
}

int main(void)
{
    int rows = 6, n = 1000;
    float *x = new_array((size_t)rows * n), *l = new_array(rows), *want = new_array(rows);
    for (int i = 0; i < rows; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) {
            x[i * n + j] = (float)((j * 7 + i * 3) % 11) - 5;
            sum += exp(x[i * n + j]);
        }
        want[i] = (float)sum;
    }
    printf("%d rows of %d scores: %d blocks of %d threads, %zu bytes of shared memory each\n",
           rows, n, rows, THREADS, sizeof(struct sums));
    launch(block_sum_kernel, rows, THREADS, sizeof(struct sums), x, l, n);
    return compare(l, want, rows);
}
