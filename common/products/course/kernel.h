/* kernel.h: the kernel around the student's part in the exercises of stage 5.
 *
 * A block computes Br queries of one head, each thread one; the keys come in tiles of Bc.
 * An exercise defines Br, Bc, MAX_COLS and struct tile before this file, and ASKS_FOR_
 * the step of the kernel that is not here, because the student writes it. */
#ifndef KERNEL_H
#define KERNEL_H

/* The running state of a query; empty: m = -INFINITY, l = 0. */
struct state { float m, l; };

#ifndef ASKS_FOR_MASK
/* Does query i see key j?  The causal diagonal ends in the bottom right corner. */
static __device__ inline bool sees(const struct problem &p, int i, int j)
{
    return j < (int)p.seqlen_k &&
           !(p.causal && j + (int)p.seqlen_q > i + (int)p.seqlen_k);
}
#endif

#ifndef ASKS_FOR_LOAD
/* Copies n keys and values into shared memory, one row per thread, and multiplies the keys
 * by the scale.
 *   k (n, head_dim), v (n, head_dim_v)  the tile's rows in main memory; n <= Bc */
static __device__ inline void load_scaled(struct tile &shared, const float *k,
                                          const float *v, int n, int head_dim,
                                          int head_dim_v, float scale)
{
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += Br) {
        for (int d = 0; d < head_dim; d++) shared.k[j][d] = scale * k[j * head_dim + d];
        for (int d = 0; d < head_dim_v; d++) shared.v[j][d] = v[j * head_dim_v + d];
    }
    __syncthreads();
}

/* q_i times key j of the tile; the keys hold the scale. */
static __device__ inline float product(const struct tile &shared, const float *q_i, int j,
                                       int head_dim, float)
{
    float dot = 0.0f;
    for (int d = 0; d < head_dim; d++) dot = fmaf(q_i[d], shared.k[j][d], dot);
    return dot;
}
#endif

#ifndef ASKS_FOR_PUSH
/* Takes the keys of a tile one by one into the state of the thread's query.
 *   s (Bc)  scores; -INFINITY: masked    v (Bc, MAX_COLS)
 *   o (head_dim_v)  un-normalised so far */
static __device__ inline void push_keys(struct state *x, float *o, const float *s,
                                        const float (*v)[MAX_COLS], int head_dim_v)
{
    for (int j = 0; j < Bc; j++) {
        if (s[j] == -INFINITY) continue;
        float m_new = s[j] > x->m ? s[j] : x->m, weight = expf(s[j] - m_new);
        float correction = m_new == x->m ? 1.0f : expf(x->m - m_new);
        x->l = fmaf(x->l, correction, weight);
        for (int d = 0; d < head_dim_v; d++)
            o[d] = fmaf(o[d], correction, weight * v[j][d]);
        x->m = m_new;
    }
}
#endif

/* The four steps are its parameters. */
template <auto Load, auto Product, auto Sees, auto Push>
static __global__ void __launch_bounds__(Br)
    attention_kernel(struct problem p, struct arrays a)
{
    struct tile &shared = dynamic_shared<struct tile>();
    int q_blocks = ((int)p.seqlen_q + Br - 1) / Br, head_dim = p.head_dim;
    int head_dim_v = p.head_dim_v, seqlen_q = p.seqlen_q, seqlen_k = p.seqlen_k;
    size_t head = blockIdx.x / q_blocks, head_kv = head / (p.heads_q / p.heads_kv);
    int i_0 = blockIdx.x % q_blocks * Br, last = min(i_0 + Br, seqlen_q) - 1;
    int i = min(i_0 + (int)threadIdx.x, last);
    const float *q_i = (const float *)a.q + (head * seqlen_q + i) * head_dim;
    const float *k = (const float *)a.k + head_kv * seqlen_k * head_dim;
    const float *v = (const float *)a.v + head_kv * seqlen_k * head_dim_v;

    struct state x = {-INFINITY, 0.0f};
    float o[MAX_COLS] = {};
    for (int j_0 = 0; j_0 < seqlen_k && Sees(p, last, j_0); j_0 += Bc) {
        Load(shared, k + (size_t)j_0 * head_dim, v + (size_t)j_0 * head_dim_v,
             min(+Bc, seqlen_k - j_0), head_dim, head_dim_v, p.scale);
        float s[Bc];
        for (int j = 0; j < Bc; j++) {
            float bias = 0.0f;
            bool masked = !Sees(p, i, j_0 + j);
            if (p.has_bias && !masked) bias = a.bias[i * p.seqlen_k + j_0 + j];
            masked |= bias == -INFINITY;
            s[j] = masked ? -INFINITY : Product(shared, q_i, j, head_dim, p.scale) + bias;
        }
        Push(&x, o, s, shared.v, head_dim_v);
    }

    if (i_0 + (int)threadIdx.x >= seqlen_q) return; /* computed for company only */
    float *o_i = (float *)a.o + (head * seqlen_q + i) * head_dim_v;
    for (int d = 0; d < head_dim_v; d++) o_i[d] = x.l == 0.0f ? 0.0f : o[d] / x.l;
    a.lse[head * seqlen_q + i] = x.m + logf(x.l);
}

/* Launches it, a block for Br queries. */
template <auto Load, auto Product, auto Sees, auto Push>
static void attention(const struct problem *p, const struct arrays *a)
{
    cudaLaunchConfig_t config = {};
    size_t q_blocks = (p->seqlen_q + Br - 1) / Br;
    config.gridDim = dim3((unsigned)(p->batch * p->heads_q * q_blocks));
    config.blockDim = dim3(Br);
    config.dynamicSmemBytes = sizeof(struct tile);
    config.stream = (cudaStream_t)a->stream;
    CUDA_CHECK(
        cudaLaunchKernelEx(&config, attention_kernel<Load, Product, Sees, Push>, *p, *a));
    CUDA_CHECK(cudaGetLastError());
}

#endif
