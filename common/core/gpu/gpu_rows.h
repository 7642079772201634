/* gpu_rows.h: what the softmax kernels of stages 1 to 3 share: packs of 16 bytes,
 * exponentials, the reductions of a warp and of a block, the call by element type.
 * Include cuda_check.h before it.
 *
 * A pack is 16 bytes, four floats or eight 16-bit numbers: the widest access of one
 * thread.  All arithmetic is in float; a 16-bit element is widened when it is used and
 * rounded once, when it is stored. */
#pragma once

#include <string.h>

#include "gpu/exp2.h"
#include "harness.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#define WARP 32
#define LOG2E 1.44269504f

/* What a softmax on a GPU says of itself from stage 2 on. */
#define SAFE_ON_GPU(arch, numbers)                                                         \
    .group = IN_GPU, .device = GPU_DEVICE, .least_arch = arch, .types = numbers,           \
    .max_score = INFINITY, .masked_rows = 1

/* WIDTH elements that move together. */
template <class T, int WIDTH> struct alignas(WIDTH * sizeof(T)) packed { T e[WIDTH]; };

/* The elements of one 16-byte access. */
template <class T> constexpr int FULL = 16 / sizeof(T);

/* Two floats rounded by one instruction. */
static __device__ inline __half2 two_of(__half, float x, float y)
{
    return __floats2half2_rn(x, y);
}
static __device__ inline __nv_bfloat162 two_of(__nv_bfloat16, float x, float y)
{
    return __floats2bfloat162_rn(x, y);
}

template <class T, int WIDTH>
static __device__ inline void narrow(struct packed<T, WIDTH> *y, const float *v)
{
    if constexpr (sizeof(T) == 4 || WIDTH == 1) {
        for (int e = 0; e < WIDTH; e++) y->e[e] = T(v[e]);
    } else {
        for (int e = 0; e < WIDTH; e += 2) {
            auto two = two_of(T(), v[e], v[e + 1]);
            memcpy(&y->e[e], &two, sizeof two);
        }
    }
}

/* The largest element of a pack; a NaN only where all are NaN.  On a GPU of two at a time, in a
 * full pack: in smaller ones the two halves cost what the twos save. */
template <class T, int WIDTH>
static __device__ inline float pack_max(const struct packed<T, WIDTH> &x)
{
#ifdef __CUDACC__
    if constexpr (WIDTH == 8) {
        decltype(two_of(T(), 0.0f, 0.0f)) m, other;
        memcpy(&m, &x.e[0], sizeof m);
        for (int e = 2; e < 8; e += 2) {
            memcpy(&other, &x.e[e], sizeof other);
            m = __hmax2(m, other);
        }
        return fmaxf((float)m.x, (float)m.y);
    }
#endif
    float m = (float)x.e[0];
    for (int e = 1; e < WIDTH; e++) m = fmaxf(m, (float)x.e[e]);
    return m;
}

/* *y = v, rounded to the type of y, in one access.  A plain store, as loads are plain
 * loads: every hint to the caches that was tried (streaming, no allocation, evict first)
 * costs 2 to 6 % of the bandwidth on an H200. */
template <class T, int WIDTH>
static __device__ inline void store(struct packed<T, WIDTH> *y, const float (&v)[WIDTH])
{
    struct packed<T, WIDTH> narrowed;
    narrow(&narrowed, v);
    *y = narrowed;
}

/* exp(x - m), x <= m.  On the GPU one exp2 instruction: 2 ulp, and the rounding of the
 * argument, together a relative error of (2.2 (m - x) + 4) 2^-24 while exp(x - m) >
 * 2^-126; what is smaller becomes 0. */
static __device__ inline float exp_minus(float x, float m)
{
#ifdef __CUDA_ARCH__
    return exp2_fast((x - m) * LOG2E);
#else
    return expf(x - m);
#endif
}

/* Maximum and sum over the lanes of a group of LANES <= 32 neighbouring lanes; each gets
 * the result.  fmaxf drops NaN: a NaN in the row reaches the result through the sum. */
template <int LANES> static __device__ inline float lanes_max(float v)
{
    for (int d = LANES / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
    return v;
}

template <int LANES> static __device__ inline float lanes_sum(float v)
{
    for (int d = LANES / 2; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

/* A slot for each warp of a block. */
struct block_sums { float warp[WARP]; };

/* The same over a block, whose size is a multiple of 32.  slots (32) is shared memory.  One
 * barrier inside: between two calls with the same slots another one must lie. */
static __device__ inline float block_max(float v, float *slots)
{
    const unsigned lane = threadIdx.x % WARP;
    v = lanes_max<WARP>(v);
    if (lane == 0) slots[threadIdx.x / WARP] = v;
    __syncthreads();
    return lanes_max<WARP>(lane < blockDim.x / WARP ? slots[lane] : -INFINITY);
}

static __device__ inline float block_sum(float v, float *slots)
{
    const unsigned lane = threadIdx.x % WARP;
    v = lanes_sum<WARP>(v);
    if (lane == 0) slots[threadIdx.x / WARP] = v;
    __syncthreads();
    return lanes_sum<WARP>(lane < blockDim.x / WARP ? slots[lane] : 0.0f);
}

/* What is subtracted from each score: m, or 0 when every score is -inf, where m would
 * give inf - inf. */
static __device__ inline float shift_of(float m) { return m == -INFINITY ? 0.0f : m; }

/* A launch of `blocks` blocks or a few more, which have nothing to do; none is refused
 * for being too many.  In the kernel each has its number. */
static inline cudaLaunchConfig_t launch_of(size_t blocks, int threads,
                                           size_t shared_bytes, void *stream)
{
    const size_t wide = (size_t)1 << 30;
    const dim3 grid = blocks <= wide
                          ? dim3((unsigned)(blocks ? blocks : 1))
                          : dim3((unsigned)wide, (unsigned)((blocks + wide - 1) / wide));
    return {.gridDim = grid, .blockDim = dim3((unsigned)threads),
            .dynamicSmemBytes = shared_bytes, .stream = (cudaStream_t)stream};
}

static __device__ inline size_t block_number(void)
{
    return blockIdx.y * (size_t)gridDim.x + blockIdx.x;
}

/* A cost of PASSES passes (reads or writes of the whole array) and EXPS exponentials for each
 * element. */
template <int PASSES, int EXPS> static struct cost traffic(const struct problem *p)
{
    const double n = (double)p->rows * (double)p->cols;
    return {.passes = PASSES, .bytes = PASSES * n * (double)dtype_size(p->dtype), .exps = EXPS * n};
}

/* f((T *)NULL) with the type's T. */
template <class F> static inline void with_element(enum dtype type, F f)
{
    if (type == F32) f((float *)NULL);
    else if (type == F16) f((__half *)NULL);
    else f((__nv_bfloat16 *)NULL);
}

/* f((const T *)x, (T *)y) with the element type T of the problem. */
template <class F>
static inline void with_type(const struct problem *p, const struct arrays *a, F f)
{
    with_element(p->dtype, [&]<class T>(T *) { f((const T *)a->x, (T *)a->y); });
}
