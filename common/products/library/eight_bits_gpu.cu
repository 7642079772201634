/* eight_bits_gpu.cu: the library's numbers of 8 bits on a GPU: codes become numbers of 16 bits for kernels
 * that know no codes, and numbers become codes (notes/eight_bits.md: smoothed, rotated). */
#include "harness.h"

#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "library/backend.h"
#include "problem/layout.h"
#include "vector/codes8.h"

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

enum { THREADS = 256, WARPS = THREADS / WARP };

static __device__ inline float number_of(enum dtype type, uint8_t code)
{
    if (type == INT8) return (float)(int8_t)code;
#ifdef __CUDACC__
    return (float)__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3));
#else
    return e4m3_to_float(code);
#endif
}

static __device__ inline uint8_t code_of(int type, float x)
{
    if (type == FIVE_STEPS_INT8) return (uint8_t)(int8_t)rintf(fminf(fmaxf(x, -127.0f), 127.0f));
#ifdef __CUDACC__
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
#else
    return float_to_e4m3(x);
#endif
}

/* ---- Codes to numbers. ---- */

/* Block (b * heads + h, y): rows of a head, each by `lanes` threads, N numbers a thread. */
template <class T, int N>
static __global__ __launch_bounds__(THREADS)
void widen_kernel(const struct problem p, const struct arrays a, enum array of, enum dtype type, int lanes,
                  T *to)
{
    const bool of_q = of == ARRAY_Q;
    const unsigned heads = (unsigned)(of_q ? p.heads_q : p.heads_kv);
    const unsigned b = blockIdx.x / heads, h = blockIdx.x % heads;
    const struct sequence s = sequence_of(&p, &a, b);
    const size_t width = of == ARRAY_V ? p.head_dim_v : p.head_dim, rows = of_q ? p.seqlen_q : p.seqlen_k;
    const size_t own = of_q ? s.seqlen_q : s.seqlen_k, scale_at = b * p.heads_kv + h;
    const struct strides by = of_q ? strides_of_q(&p) : of == ARRAY_K ? strides_of_k(&p) : strides_of_v(&p);
    const uint8_t *from = (const uint8_t *)(of_q ? a.q : of == ARRAY_K ? a.k : a.v);
    const float *scales = of == ARRAY_K ? a.k_scale : a.v_scale;
    float factor = of_q || !scales ? 1.0f : scales[scale_at];
    if (of == ARRAY_K && a.q_scale) factor *= a.q_scale[scale_at];
    to += (p.packed ? h * (of_q ? p.total_q : p.total_k) + (of_q ? s.q_first : s.k_first)
                    : blockIdx.x * rows) * width;
    for (size_t j = blockIdx.y * (THREADS / lanes) + threadIdx.x / lanes; j < rows;
         j += gridDim.y * (THREADS / lanes)) {
        if (p.packed && j >= own) return;
        const uint8_t *row = j >= own ? NULL : from + (of_q ? query_at(&p, &s, by, h, j)
                                                            : key_at(&p, &a, &s, by, h, j));
        for (size_t c = threadIdx.x % lanes * N; c < width; c += lanes * N) {
            struct packed<uint8_t, N> codes = {};
            float x[N];
            if (row) codes = *(const struct packed<uint8_t, N> *)(row + c);
#pragma unroll
            for (int e = 0; e < N; e++) x[e] = factor * number_of(type, codes.e[e]);
            store((struct packed<T, N> *)(to + j * width + c), x);
        }
    }
}

template <class T> static void widen_to(const struct problem *p, const struct arrays *a, enum array i, T *to)
{
    const struct strides s = array_strides(p, i);
    const bool of_q = i == ARRAY_Q;
    const size_t width = i == ARRAY_V ? p->head_dim_v : p->head_dim, rows = of_q ? p->seqlen_q : p->seqlen_k;
    const size_t n = (s.batch | s.head | s.row | width) % 16 == 0 ? 16 : 1; /* numbers a thread */
    int lanes = 1;
    while (lanes < WARP && lanes * n < width) lanes *= 2;
    cudaLaunchConfig_t config = launch_of(p->batch * (of_q ? p->heads_q : p->heads_kv), THREADS, 0, a->stream);
    const size_t blocks = rows * lanes / THREADS + 1;
    config.gridDim.y = (unsigned)(blocks < 65535 ? blocks : 65535);
    CUDA_CHECK(cudaLaunchKernelEx(&config, n == 16 ? widen_kernel<T, 16> : widen_kernel<T, 1>, *p, *a, i,
                                  array_dtype(p, i), lanes, to));
}

void backend_widen(const struct problem *p, const struct arrays *a, enum array i, void *to, enum dtype type)
{
    with_element(type, [&]<class T>(T *) { widen_to(p, a, i, (T *)to); });
}

/* ---- Numbers to codes.  A warp has a row, lane l columns PER l ... PER l + PER - 1. ---- */

using quantised = struct five_steps_quantise_problem;
constexpr size_t MOST_PARTS = 64; /* of a head's rows, one for a block */

template <class T, int PER>
static __device__ inline void load_row(const quantised &q, size_t j, float (&x)[PER])
{
    const unsigned b = blockIdx.x / (unsigned)q.heads, h = blockIdx.x % (unsigned)q.heads;
    const T *head = (const T *)q.x + b * q.strides.batch + h * q.strides.head;
    const auto row = ((const struct packed<T, PER> *)(head + j * q.strides.row))[threadIdx.x % WARP];
#pragma unroll
    for (int e = 0; e < PER; e++) x[e] = (float)row.e[e];
}

/* The same less the mean row, rotated: rotate_row() in vector/codes8.h. */
template <class T, int PER>
static __device__ inline void prepare_row(const quantised &q, size_t j, float (&x)[PER])
{
    const int lane = threadIdx.x % WARP;
    load_row<T>(q, j, x);
#pragma unroll
    for (int e = 0; q.smooth && e < PER; e++) x[e] -= q.mean[(blockIdx.x * WARP + lane) * PER + e];
    if (!q.rotate) return;
#pragma unroll
    for (int apart = 1; apart < PER; apart *= 2)
#pragma unroll
        for (int e = 0; e < PER; e++) {
            const float low = x[e & ~apart], high = x[e | apart];
            if (!(e & apart)) x[e] = low + high, x[e | apart] = low - high;
        }
#pragma unroll
    for (int apart = 1; apart < WARP; apart *= 2)
#pragma unroll
        for (int e = 0; e < PER; e++) {
            const float other = __shfl_xor_sync(~0u, x[e], apart);
            x[e] = lane & apart ? other - x[e] : x[e] + other;
        }
#pragma unroll
    for (int e = 0; e < PER; e++) x[e] /= sqrtf((float)(WARP * PER));
}

#define EACH_ROW(j) \
    for (size_t j = blockIdx.y * WARPS + threadIdx.x / WARP; j < q.rows; j += gridDim.y * WARPS)

/* sums [batch * heads, parts, head_dim]: of each block's rows, in a fixed order. */
template <class T, int PER>
static __global__ __launch_bounds__(THREADS) void sum_kernel(const quantised q, float *sums)
{
    float (&warps)[WARPS][WARP * PER] = dynamic_shared<float[WARPS][WARP * PER]>();
    float sum[PER] = {}, x[PER];
    EACH_ROW(j) {
        load_row<T>(q, j, x);
#pragma unroll
        for (int e = 0; e < PER; e++) sum[e] += x[e];
    }
    for (int e = 0; e < PER; e++) warps[threadIdx.x / WARP][threadIdx.x % WARP * PER + e] = sum[e];
    __syncthreads();
    const unsigned c = threadIdx.x;
    if (c >= WARP * PER) return;
    for (int w = 1; w < WARPS; w++) warps[0][c] += warps[w][c];
    sums[(blockIdx.x * (size_t)gridDim.y + blockIdx.y) * WARP * PER + c] = warps[0][c];
}

/* Block b * heads + h: the mean row, a column for each thread. */
static __global__ __launch_bounds__(THREADS) void mean_kernel(const quantised q, const float *sums,
                                                              int parts)
{
    float sum = 0.0f;
    for (int i = 0; i < parts; i++) sum += sums[(blockIdx.x * (size_t)parts + i) * blockDim.x + threadIdx.x];
    q.mean[blockIdx.x * blockDim.x + threadIdx.x] = sum / (float)q.rows;
}

/* scale = the largest number / the largest code, of e4m3 the next power of two; 0 before. */
template <class T, int PER>
static __global__ __launch_bounds__(THREADS) void scale_kernel(const quantised q)
{
    float most = 0.0f, x[PER];
    EACH_ROW(j) {
        prepare_row<T>(q, j, x);
#pragma unroll
        for (int e = 0; e < PER; e++) most = fmaxf(most, fabsf(x[e]));
    }
    most = lanes_max<WARP>(most) / (q.to == FIVE_STEPS_INT8 ? 127.0f : 448.0f);
    unsigned bits = __float_as_uint(most);
    if (q.to == FIVE_STEPS_E4M3) bits = (bits + 0x7fffffu) & 0xff800000u;
    if (threadIdx.x % WARP == 0) atomicMax((unsigned *)&q.scale[blockIdx.x], bits);
}

template <class T, int PER>
static __global__ __launch_bounds__(THREADS) void code_kernel(const quantised q)
{
    const float scale = q.scale[blockIdx.x];
    float x[PER];
    EACH_ROW(j) {
        struct packed<uint8_t, PER> codes;
        prepare_row<T>(q, j, x);
#pragma unroll
        for (int e = 0; e < PER; e++) codes.e[e] = code_of(q.to, scale > 0.0f ? x[e] / scale : 0.0f);
        ((struct packed<uint8_t, PER> *)q.codes)[(blockIdx.x * q.rows + j) * WARP + threadIdx.x % WARP] = codes;
    }
}

template <class T, int PER> static void quantise_rows(const quantised *p)
{
    const size_t n = p->batch * p->heads, groups = p->rows / 32;
    cudaLaunchConfig_t config = launch_of(n, THREADS, 0, p->stream), of_head = config;
    const int parts = (int)(groups < 1 ? 1 : groups < MOST_PARTS ? groups : MOST_PARTS);
    float *sums = parts == 1 ? p->mean : (float *)p->codes; /* 32 rows of codes for a sum */
    config.gridDim.y = (unsigned)parts;
    CUDA_CHECK(cudaMemsetAsync(p->scale, 0, n * sizeof(float), (cudaStream_t)p->stream));
    if (p->smooth) {
        cudaLaunchConfig_t shared = config;
        shared.dynamicSmemBytes = sizeof(float) * THREADS * PER;
        of_head.blockDim.x = WARP * PER;
        CUDA_CHECK(cudaLaunchKernelEx(&shared, sum_kernel<T, PER>, *p, sums));
        CUDA_CHECK(cudaLaunchKernelEx(&of_head, mean_kernel, *p, (const float *)sums, parts));
    }
    CUDA_CHECK(cudaLaunchKernelEx(&config, scale_kernel<T, PER>, *p));
    CUDA_CHECK(cudaLaunchKernelEx(&config, code_kernel<T, PER>, *p));
}

void backend_quantise(enum dtype type, const quantised *p)
{
    with_element(type, [&]<class T>(T *) {
        if (p->head_dim == 32) quantise_rows<T, 1>(p);
        else if (p->head_dim == 64) quantise_rows<T, 2>(p);
        else if (p->head_dim == 128) quantise_rows<T, 4>(p);
        else quantise_rows<T, 8>(p);
    });
}
