/* gradient.h: what all backward kernels know of a problem, and the two small kernels that
 * run before them.
 *
 *     p_ij  = exp(s_ij - lse_i)           D_i = do_i . o_i         ds_ij = p_ij (do_i . v_j - D_i)
 *     dv_j  = sum_i p_ij do_i             dk_j = scale sum_i ds_ij q_i
 *     dq_i  = scale sum_j ds_ij k_j       (notes/gradient.md says why)
 *
 * With lse and D, two numbers per query, every tile of p and ds is computed on its own:
 * the forward pass needed a running maximum and a running sum, the backward pass needs
 * neither.
 *
 * dk and dv are sums over queries, dq is a sum over keys.  A block of threads that owns a
 * tile of keys holds dk and dv in registers while the queries go by, and has a part of
 * every dq. */
#pragma once

#include "dropout.h"
#include "harness.h"
#include "gpu/cuda_check.h"
#include "mask32.h"
#include "portable/float_arithmetic.h"
#include "start.h"
#include "problem/arrays.h"
#include "problem/layout.h"
#include "sequences.h"
#include "vector/half.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

/* An element in memory: a float, or the bits of 16. */
template <enum dtype T> struct element { typedef uint16_t type; };
template <> struct element<F32> { typedef float type; };

template <enum dtype T>
static __forceinline__ __device__ float as_float(typename element<T>::type x)
{
    if constexpr (T == F32) return x;
    else if constexpr (T == BF16) return __uint_as_float((uint32_t)x << 16);
#ifdef __CUDACC__
    else return __half2float(__ushort_as_half(x));
#else
    else return half_to_float(x);
#endif
}

/* A kernel's argument.  Arrays as in harness.h. */
template <enum dtype DTYPE> struct gradient {
    typedef typename element<DTYPE>::type T;
    const T *q, *k, *v, *o, *d_o;
    const float *lse, *bias, *sinks;
    struct strides bias_strides; /* of query i of a head: batch b + head h + row i, modulo 2^64 */
    struct strides o_strides;
    T *dq, *dk, *dv;
    float *dsinks;
    float *D, *lse2; /* [batch heads_q, padded] do . o, lse log2(e) */
    uint16_t *terms; /* Hopper: [2, batch heads_q, padded, 8] lse and D, each as three terms */
    size_t rows;     /* batch heads_q padded */
    float *dq_sum;   /* 16 bits: [batch heads_q, padded, D] dq so far, without scale */
    struct mask32 mask;
    int batch, heads_q, heads_kv, group, seqlen_q, seqlen_k, head_dim, head_dim_v;
    float scale, softcap;
    int rows_q, rows_k;         /* of a head in the arrays: of packed ones all sequences' */
    int key_tiles, query_tiles; /* of a head */
    int padded;                 /* queries of whole tiles */
    struct sequences all;       /* where packed ones begin */
};

/* A head's tiles of n rows, of sequences of `length` rows.  Packed ones begin with whole
 * tiles of their own: sequence s, whose first row is r, with tile r / n + s, so that the one
 * before has room. */
static inline size_t tiles_of_head(const struct problem *p, size_t length, size_t total, int n)
{
    return p->packed ? total / n + p->batch : (length + n - 1) / n;
}

/* The sequence that a tile of packed ones belongs to, the last that begins there or before. */
template <int ROWS>
static __device__ __forceinline__ int sequence_of_tile(const int *first, int n, int tile)
{
    int s = 0;
    for (int end = n; end - s > 1;) {
        const int middle = (s + end) / 2;
        if (first[middle] / ROWS + middle <= tile) s = middle;
        else end = middle;
    }
    return s;
}

/* The workspace of tiles of br queries: D, lse2 and, if asked for, dq_sum. */
static inline size_t padded_rows(const struct problem *p, int br)
{
    const size_t batch = p->packed ? 1 : p->batch;
    return batch * p->heads_q * tiles_of_head(p, p->seqlen_q, p->total_q, br) * br;
}

static inline size_t gradient_workspace(const struct problem *p, int br)
{
    const size_t rows = padded_rows(p, br);
    return (2 * rows + (p->dtype == F32 ? 0 : rows * p->head_dim)) * sizeof(float);
}

/* The argument for tiles of br queries and bc keys. */
template <enum dtype DTYPE>
static struct gradient<DTYPE> gradient_of(const struct problem *p, const struct arrays *a, int br,
                                          int bc)
{
    typedef typename element<DTYPE>::type T;
    struct gradient<DTYPE> x = {};
    x.q = (const T *)a->q, x.k = (const T *)a->k, x.v = (const T *)a->v;
    x.o = (const T *)a->o, x.d_o = (const T *)a->d_o, x.lse = a->lse;
    x.o_strides = strides_of_o(p);
    x.bias = p->has_bias ? a->bias : NULL;
    x.bias_strides = p->has_bias_strides ? p->bias_strides : (struct strides){0, 0, p->seqlen_k};
    x.sinks = p->has_sinks ? a->sinks : NULL;
    x.dq = (T *)a->dq, x.dk = (T *)a->dk, x.dv = (T *)a->dv;
    x.dsinks = a->dsinks;
    x.D = (float *)a->workspace;
    x.lse2 = x.D + padded_rows(p, br);
    x.dq_sum = x.lse2 + padded_rows(p, br);
    x.mask = problem_mask32(p);
    x.batch = p->packed ? 1 : (int)p->batch;
    x.heads_q = (int)p->heads_q, x.heads_kv = (int)p->heads_kv;
    x.group = (int)(p->heads_q / p->heads_kv);
    x.seqlen_q = (int)p->seqlen_q, x.seqlen_k = (int)p->seqlen_k;
    x.head_dim = (int)p->head_dim, x.head_dim_v = (int)p->head_dim_v;
    x.scale = p->scale, x.softcap = p->softcap;
    x.rows_q = (int)stored_queries(p), x.rows_k = (int)stored_keys(p);
    x.key_tiles = (int)tiles_of_head(p, p->seqlen_k, p->total_k, bc);
    x.query_tiles = (int)tiles_of_head(p, p->seqlen_q, p->total_q, br);
    x.all = sequences_of(p, a);
    x.padded = x.query_tiles * br;
    x.rows = padded_rows(p, br);
    return x;
}

/* What rungs 1 to 3 know beside it.  Kernels that have no register left do not get it. */
struct model_terms {
    struct dropout drops; /* w_ij = 0 or 1 / (1 - p): ds = p (w do . v - D), dv = sum w p do */
    float *dbias;         /* or NULL; lies as bias, and is 0 before the kernels add to it */
};

[[maybe_unused]] static struct model_terms begin_terms(const struct problem *p, const struct arrays *a)
{
    if (!p->has_bias_gradient) return {dropout_of(p), NULL};
    CUDA_CHECK(cudaMemsetAsync(a->dbias, 0, array_bytes(p, ARRAY_DBIAS), (cudaStream_t)a->stream));
    return {dropout_of(p), a->dbias};
}

/* NULL, or what an int or a grid cannot count. */
static inline const char *gradient_too_large(const struct problem *p)
{
    const size_t rows = p->packed ? p->total_q + p->total_k + 256 * p->batch
                                  : p->batch * (p->seqlen_q + p->seqlen_k + 256);
    if (stored_queries(p) > LONGEST || stored_keys(p) > LONGEST)
        return "more than 2^29 queries or keys";
    if (p->heads_q * rows > 1u << 31)
        return "2^31 rows of all heads";
    return NULL;
}

/* q, k, v, do and the gradients once, and for each further tile of bc keys the q and do
 * of the queries that see it, and a part of dq in float32 unless dq has a kernel of its
 * own.
 *   kernels  that compute p */
static inline struct cost gradient_cost(const struct problem *p, size_t bc, int kernels = 1)
{
    const double heads = (double)p->batch * (double)p->heads_q;
    const double d = (double)p->head_dim, dv = (double)p->head_dim_v;
    const double size = (double)dtype_size(p->dtype);
    double pairs;
    keys_of_tiles(p, 1, &pairs);
    struct cost c = {};
    const double once = heads * (double)p->seqlen_q * (2 * d + 2 * dv) +
                        (double)p->batch * (double)p->heads_kv * (double)p->seqlen_k * 2 * (d + dv);
    c.bytes = size * once + heads * pairs / (double)bc * (kernels > 1 ? 2 * size * (d + dv)
                                                          : size * (d + dv) + 8 * d);
    c.exps = kernels * heads * pairs;
    return c;
}

/* The queries that see at least one of the keys j .. end - 1. */
static __forceinline__ __device__ struct key_range32 queries_of(struct mask32 m, int seqlen_q,
                                                                int j, int end)
{
    return {max(0, min(seqlen_q, j - m.last)), max(0, min(seqlen_q, end - m.first))};
}

/* The element of the bias, and of dbias, of query 0 and key 0 of a head.   head  b * heads_q + h */
template <enum dtype T>
static __forceinline__ __device__ size_t bias_of_head(const struct gradient<T> &x, int head)
{
    return head / x.heads_q * x.bias_strides.batch + head % x.heads_q * x.bias_strides.head;
}

/* The exponent of a score, c tanh(s scale / c) + bias with a soft cap c, and *slope, that of the cap;
 * -inf where a bias hides the key, whatever q and k hold. */
template <enum dtype T>
static __forceinline__ __device__ float exponent_of(const struct gradient<T> &x, float s, float bias,
                                                    float *slope)
{
    float z = s * x.scale;
    *slope = 1.0f;
    if (x.softcap > 0.0f) {
        const float t = tanhf(z / x.softcap);
        z = capped(z, x.softcap);
        *slope = 1.0f - t * t;
    }
    return bias == -INFINITY ? bias : z + bias;
}

/* ---- before: D, eight lanes for each row; and the gradient of the sinks ---- */

constexpr int D_THREADS = 128, D_LANES = 8, D_ROWS = D_THREADS / D_LANES;
struct sums { float of_thread[D_THREADS]; };

/* The lane's part of x . y, n columns: 16 bits come eight at a time. */
template <enum dtype T>
static __forceinline__ __device__ float part_of_dot(const typename element<T>::type *x,
                                                    const typename element<T>::type *y, int n)
{
    constexpr int AT_A_TIME = T == F32 ? 1 : 8;
    float sum = 0.0f;
    for (int c = threadIdx.x % D_LANES * AT_A_TIME; c < n; c += D_LANES * AT_A_TIME) {
        if constexpr (T == F32) {
            sum = fmaf(x[c], y[c], sum);
        } else {
            const uint4 a = *(const uint4 *)(x + c), b = *(const uint4 *)(y + c);
            const uint32_t a_[4] = {a.x, a.y, a.z, a.w}, b_[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum = fmaf(as_float<T>((uint16_t)(a_[i / 2] >> i % 2 * 16)),
                           as_float<T>((uint16_t)(b_[i / 2] >> i % 2 * 16)), sum);
        }
    }
    return sum;
}

/* Writes y as a sum of three terms of 16 bits (hopper_tiles.h). */
template <enum dtype T> static __device__ void set_terms(uint16_t *to, float y);

/* A row without a key, and one that pads a tile, gets lse2 = inf: its p = 2^(s - inf) is 0.
 *   TERMS   writes -lse / scale and -D as terms, and 0 for such a row: q and do are 0 there, or
 *           every key is hidden
 *   PACKED  queries of a tile; 0: not packed */
template <enum dtype T, bool TERMS, int PACKED>
static __global__ void __launch_bounds__(D_THREADS) row_sums_kernel(const struct gradient<T> x)
{
    const int n = blockIdx.x * D_ROWS + threadIdx.x / D_LANES;
    const int head = n / x.padded;
    int i = n % x.padded, end = x.seqlen_q;
    if constexpr (PACKED > 0) {
        const int *first = x.all.cu_seqlens_q;
        const int s = sequence_of_tile<PACKED>(first, x.all.n, i / PACKED);
        i += first[s] - (first[s] / PACKED + s) * PACKED, end = first[s + 1];
    }
    const bool exists = head < x.batch * x.heads_q && i < end;
    const ptrdiff_t row = (ptrdiff_t)head * x.rows_q + i;
    const auto *o = x.o + head / x.heads_q * x.o_strides.batch + head % x.heads_q * x.o_strides.head +
                 i * x.o_strides.row;
    const float part =
        exists ? part_of_dot<T>(x.d_o + row * x.head_dim_v, o, x.head_dim_v) : 0.0f;
    const float sum = lanes_sum<D_LANES>(part);
    if (head >= x.batch * x.heads_q || threadIdx.x % D_LANES) return;
    const float lse = exists ? x.lse[row] : -INFINITY;
    if constexpr (TERMS) {
        set_terms<T>(x.terms + (size_t)n * 8, lse == -INFINITY ? 0.0f : -lse / x.scale);
        set_terms<T>(x.terms + (x.rows + n) * 8, -sum);
        return;
    }
    x.D[n] = sum;
    x.lse2[n] = lse == -INFINITY ? INFINITY : lse * 1.44269504f;
}

/* dsink_h = -sum_i exp(sink_h - lse_i) D_i over all batches: one block for each head. */
template <enum dtype T>
static __global__ void __launch_bounds__(D_THREADS) sinks_kernel(const struct gradient<T> x)
{
    struct sums &shared = dynamic_shared<struct sums>();
    const int h = blockIdx.x;
    const float sink = x.sinks[h];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < x.batch * x.seqlen_q && sink > -INFINITY; i += D_THREADS) {
        int head = i / x.seqlen_q * x.heads_q + h;
        float lse = x.lse[head * x.seqlen_q + i % x.seqlen_q];
        sum -= expf(sink - lse) * x.D[head * x.padded + i % x.seqlen_q];
    }
    shared.of_thread[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int t = 1; t < D_THREADS; t++) sum += shared.of_thread[t];
    x.dsinks[h] = sum;
}

template <enum dtype T, bool TERMS = false, int PACKED = 0>
static void launch_row_sums(const struct gradient<T> &x, void *stream)
{
    if (!x.rows) return;
    const size_t blocks = (x.rows + D_ROWS - 1) / D_ROWS;
    start(row_sums_kernel<T, TERMS, PACKED>, blocks, D_THREADS, 0, stream, x);
    if (x.sinks) start(sinks_kernel<T>, x.heads_q, D_THREADS, sizeof(struct sums), stream, x);
}
