/* backend_gpu.cu: the library's GPU: lists of kernels, errors caught, and the two small
 * kernels that belong to no stage. */
#include "harness.h"

#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "../../../05_flash_cuda/hopper/merge_weights.h"
#include "library/backend.h"
#include "problem/layout.h"

#include <stdio.h>

#include <atomic>

#ifdef __CUDACC__
#define KERNEL(name) name##_cuda
#define WEAK __attribute__((weak))
#else
#define KERNEL(name) name
#define WEAK
#endif

/* A kernel that was not compiled (Hopper's, for another GPU) is NULL in the list. */
#define DECLARE(name) extern "C" WEAK const struct variant KERNEL(name);
#define RUNG(name, ...) DECLARE(name)
#define BESIDE(name) RUNG(name)
#define GRADIENT(name, ...) RUNG(name)
#include "../../../05_flash_cuda/rungs.h"
#undef RUNG
#define SOFTMAX(V)                                                                         \
    V(gpu_registers) V(gpu_shared) V(gpu_cluster) V(gpu_two_pass) V(gpu_one_pass)
SOFTMAX(DECLARE)

#define RUNG(name, ...) &KERNEL(name),
const struct variant *const backend_attention[] = {
#include "../../../05_flash_cuda/rungs.h"
};
#undef RUNG
#define KERNEL_AT(name) &KERNEL(name),
const struct variant *const backend_softmax[] = {SOFTMAX(KERNEL_AT)};
const size_t n_backend_attention = sizeof backend_attention / sizeof *backend_attention;
const size_t n_backend_softmax = sizeof backend_softmax / sizeof *backend_softmax;

/* What CUDA_CHECK throws in the library. */
struct cuda_error {
    char message[sizeof(five_steps_error::message)];
};

/* The last part of the file's name is enough to find it. */
void cuda_failed(const char *file, int line, const char *call, const char *name,
                 const char *text)
{
    struct cuda_error e;
    const char *slash = strrchr(file, '/');
    snprintf(e.message, sizeof e.message, "%s: %s (%.80s, %s:%d)", name, text, call,
             slash ? slash + 1 : file, line);
    throw e;
}

int backend_guard(int (*work)(void *context), void *context, struct five_steps_error *error)
{
    try {
        return work(context);
    } catch (const struct cuda_error &e) {
        cudaGetLastError(); /* an error of a launch does not meet the next caller */
        if (error) {
            error->code = FIVE_STEPS_CUDA;
            memcpy(error->message, e.message, sizeof e.message);
        }
        return FIVE_STEPS_CUDA;
    }
}

int backend_arch(const char **why)
{
#ifdef __CUDACC__
    enum { MOST_DEVICES = 64 };
    static std::atomic<int> known[MOST_DEVICES]; /* each is asked once: a decoding step is short */
    int device, major, minor;
    cudaError_t error = cudaGetDevice(&device);
    if (!error && device < MOST_DEVICES && known[device]) return known[device];
    if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (!error && device < MOST_DEVICES) known[device] = 10 * major + minor;
    if (!error) return 10 * major + minor;
    cudaGetLastError();
    *why = cudaGetErrorString(error);
    return 0;
#else
    (void)why;
    return 80; /* what the CPU executes is written for */
#endif
}

/* Threads of a block; each warp has a row. */
#define THREADS 256

static __device__ inline size_t row_of_warp(void)
{
    return block_number() * (THREADS / WARP) + threadIdx.x / WARP;
}

template <class T>
static __global__ __launch_bounds__(THREADS)
void merge_kernel(struct five_steps_merge_problem p)
{
    size_t row = row_of_warp();
    if (row >= p.rows) return;
    struct merge_weights w = merge_weights_of(p.lse1[row], p.lse2[row]);
    __syncwarp(); /* lse may be lse1 */
    if (threadIdx.x % WARP == 0) p.lse[row] = w.lse;
    const T *o1 = (const T *)p.o1 + row * p.head_dim_v, *o2 = (const T *)p.o2 + row * p.head_dim_v;
    T *o = (T *)p.o + row * p.head_dim_v;
    for (size_t c = threadIdx.x % WARP; c < p.head_dim_v; c += WARP)
        o[c] = T(merge_element(w, (float)o1[c], (float)o2[c]));
}

template <class T>
static __global__ __launch_bounds__(THREADS)
void no_keys_kernel(struct problem p, T *o, float *lse, const float *sinks, size_t rows)
{
    size_t row = row_of_warp(), head = row / stored_queries(&p) % p.heads_q;
    if (row >= rows) return;
    if (threadIdx.x % WARP == 0 && lse) lse[row] = sinks ? sinks[head] : -INFINITY;
    T *o_i = o + o_row_at(&p, row);
    for (size_t c = threadIdx.x % WARP; c < p.head_dim_v; c += WARP) o_i[c] = T(0.0f);
}

static cudaLaunchConfig_t a_warp_a_row(size_t rows, void *stream)
{
    return launch_of((rows + THREADS / WARP - 1) / (THREADS / WARP), THREADS, 0, stream);
}

void backend_no_keys(const struct problem *p, const struct arrays *a)
{
    size_t rows = (p->packed ? 1 : p->batch) * p->heads_q * stored_queries(p);
    cudaLaunchConfig_t config = a_warp_a_row(rows, a->stream);
    with_element(p->dtype, [&]<class T>(T *) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, no_keys_kernel<T>, *p, (T *)a->o, a->lse, a->sinks,
                                      rows));
    });
}

void backend_clear(void *array, size_t bytes, void *stream)
{
    CUDA_CHECK(cudaMemsetAsync(array, 0, bytes, (cudaStream_t)stream));
}

void backend_merge(enum dtype type, const struct five_steps_merge_problem *p)
{
    cudaLaunchConfig_t config = a_warp_a_row(p->rows, p->stream);
    with_element(type, [&]<class T>(T *) {
        CUDA_CHECK(cudaLaunchKernelEx(&config, merge_kernel<T>, *p));
    });
}

#ifndef CUDA_COMPILER
#define CUDA_COMPILER "executed on the CPU"
#endif
const char *backend_built_with(void) { return CUDA_COMPILER; }
