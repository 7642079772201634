/* test_cuda_on_cpu.cc: CUDA kernels executed on the CPU: barriers, warps. */
#include "kernel_launch.h"

#include <stdlib.h>

/* --- Barriers --- */

/* Reverses y, three times.  One of its two barriers may be left out: `missing` 0 or 1. */
static __global__ void race_kernel(float *y, int missing)
{
    struct numbers &shared = dynamic_shared<struct numbers>();
    int i = threadIdx.x, n = blockDim.x;
    for (int repeat = 0; repeat < 3; repeat++) {
        shared.x[i] = y[blockIdx.x * n + i] + 1.0f;
        if (missing != 0) __syncthreads();
        y[blockIdx.x * n + i] = shared.x[n - 1 - i];
        if (missing != 1) __syncthreads();
    }
}

Test(cuda_on_cpu, missing_barrier_changes_the_result)
{
    for (int missing = 0; missing < 2; missing++) {
        std::vector<float> y(256), once(256);
        for (size_t i = 0; i < 256; i++) y[i] = (float)i;
        once = y;
        launch(1, 256, sizeof(struct numbers), race_kernel, y.data(), missing);
        int wrong = 0;
        for (size_t i = 0; i < 256; i++) wrong += y[i] != (float)(255 - i) + 3.0f;
        cr_expect(wrong > 0, "without barrier %d the result is right all the same",
                  missing);
        launch(1, 256, sizeof(struct numbers), race_kernel, once.data(), missing);
        cr_expect(!memcmp(once.data(), y.data(), 256 * 4), "two runs differ");
    }
}

/* In a child process each, because the order is chosen at the first launch. */
Test(cuda_on_cpu, order_of_the_threads_does_not_matter_with_barriers)
{
    for (const char *order : {"forward", "backward", "random:1", "random:2"}) {
        pid_t child = fork();
        if (child == 0) {
            setenv("CUDA_ON_CPU_ORDER", order, 1);
            std::vector<float> y(256);
            for (size_t i = 0; i < 256; i++) y[i] = (float)i;
            launch(1, 256, sizeof(struct numbers), race_kernel, y.data(), 2);
            int wrong = 0;
            for (size_t i = 0; i < 256; i++) wrong += y[i] != (float)(255 - i) + 3.0f;
            _exit(wrong > 0);
        }
        int status;
        waitpid(child, &status, 0);
        cr_expect(status == 0, "order %s: status %d", order, status);
    }
}

/* --- Warps --- */

static __global__ void shuffle_kernel(int *y)
{
    int i = threadIdx.x % 32;
    y[threadIdx.x * 4 + 0] = __shfl_sync(~0u, i, 5);
    y[threadIdx.x * 4 + 1] = __shfl_xor_sync(~0u, i, 3);
    unsigned half = i < 16 ? 0x0000ffffu : 0xffff0000u;
    y[threadIdx.x * 4 + 2] = __shfl_xor_sync(half, i, 8);
    y[threadIdx.x * 4 + 3] = (int)__ballot_sync(~0u, i % 5 == 0);
}

Test(cuda_on_cpu, shuffles_and_votes)
{
    int y[64 * 4];
    launch(1, 64, 0, shuffle_kernel, y);
    for (int t = 0; t < 64; t++) {
        int i = t % 32;
        int want[4] = {5, i ^ 3, i ^ 8, (int)0x42108421};
        for (int e = 0; e < 4; e++)
            cr_assert(y[t * 4 + e] == want[e], "thread %d, shuffle %d: got %d, want %d",
                      t, e, y[t * 4 + e], want[e]);
    }
}

static __global__ void identity_kernel(unsigned *y)
{
    unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    atomicAdd(&y[b * 24 + t], 1u + t + 100 * b);
}

Test(cuda_on_cpu, every_thread_of_every_block_runs_once)
{
    std::vector<unsigned> y(30 * 24, 0);
    cudaLaunchConfig_t config = {dim3(5, 3, 2), dim3(4, 3, 2), 0, NULL, NULL, 0};
    CUDA_CHECK(cudaLaunchKernelEx(&config, identity_kernel, y.data()));
    for (unsigned i = 0; i < y.size(); i++)
        cr_assert(y[i] == 1 + i % 24 + 100 * (i / 24), "thread %u: %u", i, y[i]);
}
