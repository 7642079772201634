/* On-ramp 1: one thread per element.
 *
 *     y_i = exp(x_i)      for all i < n
 *
 * A loop over i becomes a kernel: a function that n threads execute, each with another i.
 * Threads come in blocks of equal size, so the last block may have threads to spare. */
#include "on_ramp.h"

#define THREADS 256

/*   x, y (n) */
static __global__ void exp_kernel(const float *x, float *y, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return; /* a thread to spare */
    y[i] = expf(x[i]);
}

int main(void)
{
    int n = 1000, blocks = (n + THREADS - 1) / THREADS;
    float *x = new_array(n), *y = new_array(n), *want = new_array(n);
    for (int i = 0; i < n; i++) {
        x[i] = -0.01f * (float)i;
        want[i] = expf(x[i]);
    }
    printf("%d elements, %d blocks of %d threads: %d threads to spare\n", n, blocks, THREADS,
           blocks * THREADS - n);
    launch(exp_kernel, blocks, THREADS, 0, x, y, n);
    return compare(y, want, n);
}
