/* test_cuda_mistakes.cc: mistakes that the CPU execution of CUDA kernels reports or shows, and
 * launches that it refuses. */
#include "kernel_launch.h"

/* --- Shared memory --- */

static __global__ void uninitialised_kernel(float *y)
{
    y[blockIdx.x * 32 + threadIdx.x] = dynamic_shared<struct numbers>().x[threadIdx.x];
    dynamic_shared<struct numbers>().x[threadIdx.x] = 1.0f;
}

Test(cuda_on_cpu, shared_memory_is_poisoned_for_each_block)
{
    float y[8 * 32];
    launch(8, 32, sizeof(struct numbers), uninitialised_kernel, y);
    for (int i = 0; i < 8 * 32; i++) cr_assert(isnan(y[i]), "element %d: %g", i, y[i]);
}

static __global__ void touch_kernel(int element, int write)
{
    volatile float *x = dynamic_shared<struct numbers>().x;
    if (threadIdx.x == 7 && write) x[element] = 1.0f;
    if (threadIdx.x == 7 && !write) (void)x[element];
}

Test(cuda_on_cpu, access_outside_shared_memory_is_reported)
{
    size_t bytes = sizeof(struct numbers);
    launch(1, 32, bytes, touch_kernel, 255, 1);
    expect_report(
        [=] { launch(1, 32, bytes, touch_kernel, 256, 0); },
        {"touch_kernel", "block (0,0,0)", "thread (7,0,0)", "0 bytes past the end"});
    expect_report([=] { launch(1, 32, bytes, touch_kernel, 300, 1); },
                  {"thread (7,0,0)", "176 bytes past the end of its 1024 bytes"});
    expect_report([=] { launch(1, 32, bytes, touch_kernel, -1, 1); },
                  {"touch_kernel", "before the start of its shared memory"});
    expect_report([=] { launch(1, 32, bytes, touch_kernel, -2000, 0); },
                  {"thread (7,0,0)", "before the start of its shared memory"});
    expect_report([=] { launch(1, 32, bytes - 4, touch_kernel, 0, 0); },
                  {"uses 1024 bytes of shared memory, the launch gave 1020"});
}

/* --- Misuse --- */

static __global__ void misuse_kernel(int how)
{
    struct cuda_on_cpu::caller here = cuda_on_cpu::caller::here();
    unsigned i = threadIdx.x;
    switch (how) {
    case 0: /* leaves before the others' barrier */
        if (i == 3) return;
        __syncthreads();
        break;
    case 1: /* two different barriers */
        if (i < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case 2: /* a barrier against a shuffle */
        if (i % 32 < 16)
            __syncthreads();
        else
            __shfl_sync(~0u, i, 0);
        break;
    case 3: /* one lane of the mask does not come */
        if (i % 32 != 9) __syncwarp();
        break;
    case 4: /* reads a lane that takes no part */
        if (i % 32 < 16) __shfl_xor_sync(0xffffu, i, 16);
        break;
    case 5: /* not in its own mask */ __ballot_sync(0xffffu, 1); break;
    case 6: /* waits for more threads than come */
        if (i >= 32) cuda_on_cpu::barrier_sync(1, 64, 0, here);
        break;
    case 7: /* different warp functions */
        if (i % 2)
            __any_sync(~0u, 1);
        else
            __shfl_sync(~0u, i, 0);
        break;
    }
}

Test(cuda_on_cpu, misuse_is_reported)
{
    const std::vector<const char *> words[] = {
        {"misuse_kernel", "block (0,0,0)", "thread (3,0,0)", "left"},
        {"divergent barrier", "line"},
        {"deadlock: waits in a barrier", "in __shfl_sync, line"},
        {"lane 9", "left the kernel"},
        {"lane 0 reads lane 16, which takes no part"},
        {"__ballot_sync: its own lane", "is not in the mask 0x0000ffff"},
        {"deadlock", "a barrier", "left the kernel"},
        {"__shfl_sync", "__any_sync"},
    };
    for (int how = 0; how < 8; how++)
        expect_report([=] { launch(1, 64, 0, misuse_kernel, how); }, words[how]);
}

static __global__ void empty_kernel()
{
}

Test(cuda_on_cpu, launches_that_a_gpu_refuses_are_refused)
{
    auto error = [&](dim3 grid, dim3 block, size_t shared) {
        cudaLaunchConfig_t config = {grid, block, shared, NULL, NULL, 0};
        return cudaLaunchKernelEx(&config, empty_kernel);
    };
    cr_expect(error(dim3(1, 65536), dim3(1), 0) == cudaErrorInvalidConfiguration);
    cr_expect(error(dim3(0), dim3(1), 0) == cudaErrorInvalidConfiguration);
    cr_expect(error(dim3(1), dim3(1025), 0) == cudaErrorInvalidConfiguration);
    cr_expect(error(dim3(1), dim3(1), 49153) == cudaErrorInvalidValue);
    cr_expect(cudaGetLastError() == cudaErrorInvalidValue);
    cr_expect(cudaGetLastError() == cudaSuccess);
    CUDA_CHECK(cudaFuncSetAttribute(empty_kernel,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    cr_expect(error(dim3(1), dim3(1), 49153) == cudaSuccess);
    cr_expect(error(dim3(1), dim3(1), 65537) == cudaErrorInvalidValue);
}
