/* The CPU execution of CUDA kernels: what it computes and what it refuses.
 *
 * A misuse ends the program, so it is tried in a child process, whose exit status must be
 * 1 and whose last words must name kernel, block and thread. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "stage.h"

#include "gpu/cuda_check.h"
#include "cuda_on_cpu/mma_on_cpu.h"

/* Launches kernel(arguments...) with `blocks` blocks of `threads` threads. */
template <class... P, class... A>
static void launch(unsigned blocks, unsigned threads, size_t shared, void (*kernel)(P...),
                   A... arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

/* Runs f in a child process; expects exit status 1 and each of `words` on stderr. */
template <class F> static void expect_report(F f, std::vector<const char *> words)
{
    int ends[2];
    cr_assert(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        f();
        _exit(0);
    }
    close(ends[1]);
    char text[2048];
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) n += got;
    text[n] = '\0';
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d, said: %s",
              status, text);
    for (const char *word : words)
        cr_expect(strstr(text, word), "'%s' is missing in: %s", word, text);
}

struct numbers {
    float x[256];
};

/* --- Barriers --- */

static __global__ void reverse_kernel(float *y)
{
    struct numbers &shared = dynamic_shared<struct numbers>();
    int i = threadIdx.x, n = blockDim.x;
    for (int repeat = 0; repeat < 3; repeat++) {
        shared.x[i] = y[blockIdx.x * n + i];
        __syncthreads();
        y[blockIdx.x * n + i] = shared.x[n - 1 - i];
        __syncthreads();
    }
}

Test(cuda_on_cpu, barrier_separates_writes_from_reads)
{
    std::vector<float> y(5 * 256);
    for (size_t i = 0; i < y.size(); i++) y[i] = (float)i;
    launch(5, 256, sizeof(struct numbers), reverse_kernel, y.data());
    for (size_t i = 0; i < y.size(); i++) {
        float want = (float)(i / 256 * 256 + 255 - i % 256);
        cr_assert(y[i] == want, "element %zu: got %g, want %g", i, y[i], want);
    }
}

/* The same with one of its two barriers left out: `missing` 0 or 1. */
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

static __global__ void count_kernel(int *y)
{
    int i = threadIdx.x;
    y[i] = __syncthreads_count(i % 3 == 0) + 1000 * __syncthreads_or(i == 77) +
           10000 * __syncthreads_and(i < 96) + 100000 * __syncthreads_and(i < 95);
}

Test(cuda_on_cpu, barrier_counts_votes)
{
    int y[96];
    launch(1, 96, 0, count_kernel, y);
    for (int i = 0; i < 96; i++) cr_assert(y[i] == 11032, "thread %d: %d", i, y[i]);
}

/* Warp 0 produces, warp 1 consumes, two named barriers between them. */
static __global__ void hand_over_kernel(float *y)
{
    struct numbers &shared = dynamic_shared<struct numbers>();
    struct cuda_on_cpu::place here = cuda_on_cpu::place::here();
    int lane = threadIdx.x % 32;
    for (int t = 0; t < 5; t++)
        if (threadIdx.x < 32) {
            if (t) cuda_on_cpu::barrier_sync(2, 64, 0, here); /* consumed */
            shared.x[lane] = (float)(100 * t + lane);
            cuda_on_cpu::barrier_arrive(1, 64, here); /* full */
        } else {
            cuda_on_cpu::barrier_sync(1, 64, 0, here);
            y[t * 32 + lane] = shared.x[31 - lane];
            if (t < 4) cuda_on_cpu::barrier_arrive(2, 64, here);
        }
}

Test(cuda_on_cpu, named_barriers_hand_over)
{
    float y[160];
    launch(1, 64, sizeof(struct numbers), hand_over_kernel, y);
    for (int i = 0; i < 160; i++)
        cr_assert(y[i] == i / 32 * 100 + 31 - i % 32, "element %d: %g", i, y[i]);
}

/* --- Warps --- */

static __global__ void shuffle_kernel(int *y)
{
    int i = threadIdx.x % 32;
    y[threadIdx.x * 6 + 0] = __shfl_sync(~0u, i, 5);
    y[threadIdx.x * 6 + 1] = __shfl_xor_sync(~0u, i, 3);
    y[threadIdx.x * 6 + 2] = __shfl_up_sync(~0u, i, 2);
    y[threadIdx.x * 6 + 3] = __shfl_down_sync(~0u, i, 4, 8);
    unsigned half = i < 16 ? 0x0000ffffu : 0xffff0000u;
    y[threadIdx.x * 6 + 4] = __shfl_xor_sync(half, i, 8);
    y[threadIdx.x * 6 + 5] = (int)__ballot_sync(~0u, i % 5 == 0);
}

Test(cuda_on_cpu, shuffles_and_votes)
{
    int y[64 * 6];
    launch(1, 64, 0, shuffle_kernel, y);
    for (int t = 0; t < 64; t++) {
        int i = t % 32;
        int want[6] = {5,     i ^ 3,          i < 2 ? i : i - 2, i % 8 < 4 ? i + 4 : i,
                       i ^ 8, (int)0x42108421};
        for (int e = 0; e < 6; e++)
            cr_assert(y[t * 6 + e] == want[e], "thread %d, shuffle %d: got %d, want %d",
                      t, e, y[t * 6 + e], want[e]);
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
    unsigned *p = y.data();
    void *arguments[] = {&p};
    CUDA_CHECK(cudaLaunchKernel(identity_kernel, dim3(5, 3, 2), dim3(4, 3, 2), arguments,
                                0, NULL));
    for (unsigned i = 0; i < y.size(); i++)
        cr_assert(y[i] == 1 + i % 24 + 100 * (i / 24), "thread %u: %u", i, y[i]);
}

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
    struct cuda_on_cpu::place here = cuda_on_cpu::place::here();
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

static volatile int depth_reached;
static int deep(int n)
{
    volatile char frame[1024];
    frame[n % 1024] = (char)n;
    if (n == 0) return 0;
    depth_reached = n;
    return deep(n - 1) + frame[n % 1024];
}
static __global__ void deep_kernel()
{
    deep(560);
    __syncthreads();
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
    expect_report([] { launch(1, 32, 0, deep_kernel); },
                  {"thread (", "its stack of", "overflows"});
}

static __global__ void leave_kernel(int *y)
{
    if (threadIdx.x % 2) return;
    y[threadIdx.x] = 1;
}

Test(cuda_on_cpu, leaving_early_without_a_barrier_is_allowed)
{
    int y[64] = {0};
    launch(1, 64, 0, leave_kernel, y);
    for (int i = 0; i < 64; i++) cr_assert(y[i] == (i % 2 == 0));
}

Test(cuda_on_cpu, launches_that_a_gpu_refuses_are_refused)
{
    int y[1];
    void *arguments[1];
    int *p = y;
    arguments[0] = &p;
    auto error = [&](dim3 grid, dim3 block, size_t shared) {
        return cudaLaunchKernel(leave_kernel, grid, block, arguments, shared, NULL);
    };
    cr_expect(error(dim3(1, 65536), dim3(1), 0) == cudaErrorInvalidConfiguration);
    cr_expect(error(dim3(0), dim3(1), 0) == cudaErrorInvalidConfiguration);
    cr_expect(error(dim3(1), dim3(1025), 0) == cudaErrorInvalidConfiguration);
    cr_expect(error(dim3(1), dim3(1), 49153) == cudaErrorInvalidValue);
    cr_expect(cudaGetLastError() == cudaErrorInvalidValue);
    cr_expect(cudaGetLastError() == cudaSuccess);
    CUDA_CHECK(cudaFuncSetAttribute(leave_kernel,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    cr_expect(error(dim3(1), dim3(1), 49153) == cudaSuccess);
    cr_expect(error(dim3(1), dim3(1), 65537) == cudaErrorInvalidValue);
}

/* --- Clusters --- */

/* Each block of a cluster adds up what all of them hold. */
static __global__ void cluster_kernel(float *y)
{
    struct numbers &shared = dynamic_shared<struct numbers>();
    auto cluster = cooperative_groups::this_cluster();
    shared.x[threadIdx.x] = (float)(blockIdx.x * 100 + threadIdx.x);
    cluster.sync();
    float sum = 0.0f;
    for (unsigned r = 0; r < cluster.num_blocks(); r++)
        sum += *cluster.map_shared_rank(&shared.x[threadIdx.x], r);
    y[blockIdx.x * 32 + threadIdx.x] = sum;
    cluster.sync(); /* nobody leaves while others read its shared memory */
}

Test(cuda_on_cpu, clusters_share_their_memory)
{
    float y[8 * 32];
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 4;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(8);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = sizeof(struct numbers);
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUDA_CHECK(cudaLaunchKernelEx(&config, cluster_kernel, y));
    for (int i = 0; i < 8 * 32; i++) {
        float want = (float)(4 * (i % 32) + (i < 128 ? 600 : 2200));
        cr_assert(y[i] == want, "element %d: got %g, want %g", i, y[i], want);
    }
}

/* --- Tensor cores, asynchronous copies --- */

struct matrices {
    alignas(16) uint16_t a[16][24], b[8][24], bt[16][24]; /* rows padded to 48 bytes */
};

/* d (16, 8) = a (16, 16) b (16, 8) + 1, with B from its columns (the rows of b) or, by
 * .trans, from its rows (bt). */
static __global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *d,
                                      int bf16, int trans, int k)
{
    struct matrices &shared = dynamic_shared<struct matrices>();
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) shared.a[i / 16][i % 16] = a[i];
    for (int i = lane; i < 128; i += 32) {
        shared.b[i % 8][i / 8] = b[i];
        shared.bt[i / 8][i % 8] = b[i];
    }
    __syncthreads();
    uint32_t fa[4], fb[2];
    cuda_on_cpu::ldmatrix(fa, 4, &shared.a[lane % 16][lane / 16 * 8], false);
    if (trans)
        cuda_on_cpu::ldmatrix(fb, 2, &shared.bt[lane % 16][0], true);
    else
        cuda_on_cpu::ldmatrix(fb, 2, &shared.b[lane % 8][lane / 8 % 2 * 8], false);
    float acc[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (k == 16)
        cuda_on_cpu::mma_m16n8(acc, fa, fb, acc, 16, bf16);
    else { /* as on sm_75: two of half the depth */
        cuda_on_cpu::mma_m16n8(acc, fa, fb, acc, 8, bf16);
        cuda_on_cpu::mma_m16n8(acc, fa + 2, fb + 1, acc, 8, bf16);
    }
    int g = lane / 4, c = lane % 4 * 2;
    d[g * 8 + c] = acc[0];
    d[g * 8 + c + 1] = acc[1];
    d[(g + 8) * 8 + c] = acc[2];
    d[(g + 8) * 8 + c + 1] = acc[3];
}

Test(cuda_on_cpu, mma_of_ldmatrix_fragments_is_the_matrix_product)
{
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int way = 0; way < 4; way++) {
            uint16_t a[256], b[128];
            float d[128], x[256], y[128]; /* small integers: exact in both types */
            for (int i = 0; i < 256; i++) x[i] = (float)((i * 37 + i / 16) % 17 - 8);
            for (int i = 0; i < 128; i++) y[i] = (float)((i * 23 + i / 8) % 13 - 6);
            for (int i = 0; i < 256; i++)
                a[i] = bf16 ? float_to_bfloat(x[i]) : float_to_half(x[i]);
            for (int i = 0; i < 128; i++)
                b[i] = bf16 ? float_to_bfloat(y[i]) : float_to_half(y[i]);
            launch(1, 32, sizeof(struct matrices), product_kernel, a, b, d, bf16, way % 2,
                   way / 2 ? 16 : 8);
            for (int i = 0; i < 16; i++)
                for (int j = 0; j < 8; j++) {
                    float want = 1.0f;
                    for (int l = 0; l < 16; l++) want += x[i * 16 + l] * y[l * 8 + j];
                    cr_assert(d[i * 8 + j] == want,
                              "bf16 %d, way %d, element (%d, %d): got %g, want %g", bf16,
                              way, i, j, d[i * 8 + j], want);
                }
        }
}

/* Copies two groups; waits for the first, for both, or not at all. */
static __global__ void copy_kernel(const float *x, float *y, int wait)
{
    struct numbers &shared = dynamic_shared<struct numbers>();
    int i = threadIdx.x;
    cuda_on_cpu::cp_async(&shared.x[4 * i], &x[4 * i], 16, 16);
    cuda_on_cpu::cp_async_commit();
    cuda_on_cpu::cp_async(&shared.x[128 + 4 * i], &x[128 + 4 * i], 16, i == 5 ? 8 : 16);
    cuda_on_cpu::cp_async_commit();
    if (wait > 0) cuda_on_cpu::cp_async_wait(2 - wait);
    __syncthreads();
    for (int e = i; e < 256; e += 32) y[e] = shared.x[255 - e];
}

Test(cuda_on_cpu, asynchronous_copies_take_place_in_the_wait)
{
    alignas(16) float x[256];
    float y[256];
    for (int i = 0; i < 256; i++) x[i] = (float)(i + 1);
    for (int wait = 0; wait < 3; wait++) {
        launch(1, 32, sizeof(struct numbers), copy_kernel, x, y, wait);
        for (int e = 0; e < 256; e++) {
            bool arrived = 255 - e < 128 * wait;
            bool filled = 255 - e == 150 || 255 - e == 151; /* beyond the 8 bytes read */
            float want = filled ? 0.0f : x[255 - e];
            cr_assert(arrived ? y[e] == want : isnan(y[e]), "wait %d, element %d: %g",
                      wait, e, y[e]);
        }
    }
}
