/* On-ramp 4: which elements the lanes of a warp read together.
 *
 *     y_i = x_(i * stride)
 *
 * Main memory answers in sectors of 32 bytes, 8 floats.  With stride 1 the 32 lanes of a
 * warp read 32 neighbours: 128 bytes in 4 sectors, all of them used.  With stride 8 or more
 * each lane needs a sector of its own and uses 4 of its 32 bytes.  The kernel notes what it
 * read, and main() counts the sectors of every warp; on a GPU it takes the time as well. */
#include "on_ramp.h"

#define THREADS 256
#define WARP 32
#define SECTOR 8 /* floats */
#define MAX_STRIDE 32

/*   x (n * stride)      y (n)      where (n): the index that each thread read, or NULL */
static __global__ void strided_kernel(const float *x, float *y, float *where, int n,
                                      int stride)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    size_t j = (size_t)i * stride;
    y[i] = x[j];
    if (where) where[i] = (float)j;
}

/* Sectors that a warp touched, the mean over all warps.  n is a multiple of WARP. */
static double sectors_per_warp(const float *where, int n)
{
    int touched = 0;
    for (int i = 0; i < n; i++) {
        int seen = 0; /* by an earlier lane of the same warp? */
        for (int k = i / WARP * WARP; k < i; k++)
            seen |= (int)where[k] / SECTOR == (int)where[i] / SECTOR;
        touched += !seen;
    }
    return (double)touched / (n / WARP);
}

/* Useful GB/s on an array larger than every cache; 0 without a GPU. */
static double rate(int stride)
{
#ifdef __CUDACC__
    const int n = 1 << 25;
    static float *x = new_array((size_t)n * MAX_STRIDE), *y = new_array(n);
    cudaEvent_t begin, end;
    float best = INFINITY, ms;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (int run = 0; run < 10; run++) {
        CUDA_CHECK(cudaEventRecord(begin));
        launch(strided_kernel, n / THREADS, THREADS, 0, x, y, (float *)NULL, n, stride);
        CUDA_CHECK(cudaEventRecord(end));
        CUDA_CHECK(cudaEventSynchronize(end));
        CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        best = ms < best ? ms : best;
    }
    return 2.0 * 4 * n / (1e6 * best);
#else
    return (void)stride, 0.0;
#endif
}

int main(void)
{
    const int n = 1 << 14;
    int wrong = 0;
    float *x = new_array((size_t)n * MAX_STRIDE), *y = new_array(n), *where = new_array(n),
          *want = new_array(n);
    for (int j = 0; j < n * MAX_STRIDE; j++) x[j] = (float)j + 1;
    for (int stride = 1; stride <= MAX_STRIDE; stride *= 2) {
        for (int i = 0; i < n; i++) want[i] = x[i * stride];
        launch(strided_kernel, n / THREADS, THREADS, 0, x, y, where, n, stride);
        double sectors = sectors_per_warp(where, n), gbps = rate(stride);
        printf("stride %2d: %4.1f sectors per warp, %3.1f bytes fetched per byte used", stride,
               sectors, sectors * SECTOR / WARP);
        if (gbps > 0) printf(", %.0f GB/s", gbps);
        printf("\n");
        wrong |= compare(y, want, n);
    }
    return wrong;
}
