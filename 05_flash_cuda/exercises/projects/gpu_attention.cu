/* gpu_attention.cu: project of stage 5, 60 points: attention at the speed of tensor cores.
 *
 * This program is right and slow: a thread computes a whole query and reads every key from main
 * memory.  Make it fast.  Everything may change: tiles in shared memory, tensor cores,
 * asynchronous copies.  q, k, v and o are float16, lse is float.  It must stay right in all cases:
 * any length, head dimensions up to 128, causal, a bias, groups of heads, NaN in a masked row of
 * v; a score that is -INFINITY masks its key.  One wrong case, and the speed does not count.
 *
 * The cases are executed on the CPU too, so write the kernel as common/core/cuda_on_cpu/cuda_on_cpu.h
 * says.  The points are for the share of what a matrix product of the library (cuBLAS, float16)
 * does; the shares for half and all points depend on the GPU (common/products/course/targets.csv).
 *
 * Speed: attention:16x8192x128 in f16, as a share of gemm.
 * Judged like: push_tile
 * Right, and how fast:  make project EX=gpu_attention */
#include "course/exercise.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

enum {
    THREADS = 64,
    MAX_COLS = 128 /* largest head_dim and head_dim_v */
};

/* The scaled score of query q_i and key k_j, with the bias. */
static __device__ float score(const struct problem &p, const __half *q_i, const __half *k_j, float bias)
{
    float dot = 0;
    for (size_t d = 0; d < p.head_dim; d++) dot = fmaf((float)q_i[d], (float)k_j[d], dot);
    return p.scale * dot + bias;
}

/* Query blockIdx.x * THREADS + threadIdx.x of all heads, by one thread. */
static __global__ void attention_kernel(struct problem p, struct arrays a)
{
    size_t row = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (row >= p.batch * p.heads_q * p.seqlen_q) return;
    size_t head = row / p.seqlen_q, i = row % p.seqlen_q;
    size_t head_kv = head / (p.heads_q / p.heads_kv);
    const __half *q_i = (const __half *)a.q + row * p.head_dim;
    const __half *k = (const __half *)a.k + head_kv * p.seqlen_k * p.head_dim;
    const __half *v = (const __half *)a.v + head_kv * p.seqlen_k * p.head_dim_v;
    struct key_range keys = visible_keys(&p, i);

    float m = -INFINITY, l = 0, o[MAX_COLS] = {};
    for (size_t j = keys.first; j < keys.end; j++) {
        float bias = p.has_bias ? a.bias[i * p.seqlen_k + j] : 0;
        if (bias == -INFINITY) continue;
        float s = score(p, q_i, k + j * p.head_dim, bias);
        if (s == -INFINITY) continue; /* masked as well */
        float m_new = s > m ? s : m, correction = expf(m - m_new), weight = expf(s - m_new);
        if (m_new == m) correction = 1;
        l = l * correction + weight;
        for (size_t d = 0; d < p.head_dim_v; d++)
            o[d] = o[d] * correction + weight * (float)v[j * p.head_dim_v + d];
        m = m_new;
    }

    __half *o_i = (__half *)a.o + row * p.head_dim_v;
    for (size_t d = 0; d < p.head_dim_v; d++) o_i[d] = __half(l == 0 ? 0.0f : o[d] / l);
    a.lse[row] = m + logf(l);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    size_t n_rows = p->batch * p->heads_q * p->seqlen_q;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((n_rows + THREADS - 1) / THREADS));
    config.blockDim = dim3(THREADS);
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(cudaLaunchKernelEx(&config, attention_kernel, *p, *a));
}

PROGRAM(5, gpu_attention, "attention at the speed of tensor cores",
        .types = TYPE(F16), ALL_PROBLEMS, .refuses = above_128_columns,
        .does = {{OP_ATTENTION, attention}})
