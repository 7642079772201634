/* 06_lazy_rescaling.cu: rung 6, o and l are rescaled only when it is needed.
 *
 *     P = 2^(c S - c m),  c = scale log2(e);    m, l, O = fold over key blocks;    O / l
 *
 * The numerator O and the denominator l use the same m, which cancels in O / l.  So m need
 * not be the maximum: any m will do for which 2^(c S - c m) neither overflows nor vanishes.
 * Rung 5 multiplied O by 2^(c (m - m_new)) at every key block.  Here m stays until the maximum
 * of some row of the warp exceeds it by more than 8 / c.  P then stays below 2^8, which
 * float16 holds too.  On random data m changes a few times in a whole row.  The idea is that
 * of FlashAttention-4's conditional rescaling.
 *
 * Everything else is rung 5's. */
#include "portable/async_tile.h"
#include "portable/mma_variant.h"
#include "portable/scores.h"
#include "portable/swizzled_tile.h"

/* Tiles for heads of up to D columns.  They decide registers (o has 4 MT D / 8, s has
 * 4 MT Bc / 8; the addresses of a bias want some too) and shared memory (2 D (Br + 4 Bc)
 * bytes: 96 KB, as sm_86 has 99, or LARGE, 192 KB). */
template <int HEAD_DIM, int WITH_BIAS, int LARGE = 0> struct tiling {
    static constexpr int D = HEAD_DIM, BIAS = WITH_BIAS;
    static constexpr int WARPS = LARGE ? 8 : 4, THREADS = 32 * WARPS;
    static constexpr int BLOCKS = LARGE ? 1 : 2;  /* on a multiprocessor */
    static constexpr int MT = D <= 128 ? 2 : 1;   /* 16-query tiles of a warp */
    static constexpr int Br = 16 * MT * WARPS;    /* queries of a block */
    static constexpr int Bc = (D <= 128 && !BIAS) || LARGE ? 64 : 32; /* keys of it */
    static constexpr int Q_IN_REGISTERS = D <= 64; /* or loaded for each key block */
    static constexpr int BUFFERS = 2; /* tiles of K and V in shared memory */
    using shared = struct tile_memory<tiling>;
    using state = struct warp_state<tiling>;
    typedef float scores[MT][Bc / 8][4]; /* of a warp and a key block, as C fragments */
};

/* o, l *= 2^(c (m - m_new)),  m = m_new = max(m, top).  While m_new is -inf (no
 * visible key yet) 0 takes its place in the difference: -inf - -inf never arises. */
template <class W>
static __forceinline__ __device__ void rescale(typename W::state &f,
                                               const float (&top)[W::MT][2], float c)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float m_new = fmaxf(f.m[i][r], top[i][r]);
            float base = m_new == -INFINITY ? 0.0f : m_new;
            float alpha = exp2_fast((f.m[i][r] - base) * c);
            f.m[i][r] = m_new;
            f.l[i][r] *= alpha;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++) {
                f.o[i][n][2 * r] *= alpha;
                f.o[i][n][2 * r + 1] *= alpha;
            }
        }
}

/* Folds the scores of a key block into m and l and turns them into P:
 *     m = max(m, max_j s_j) if some row of the warp grew by more than 8 / c, else m stays
 *     p_j = 2^(c s_j - c m),  l += sum_j p_j (this lane's columns) */
template <class W>
static __forceinline__ __device__ void softmax_step(typename W::state &f,
                                                    typename W::scores &s, float c)
{
    float top[W::MT][2];
    int grown = 0;
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = fmaxf(s[i][0][2 * r], s[i][0][2 * r + 1]);
#pragma unroll
            for (int n = 1; n < W::Bc / 8; n++)
                x = fmaxf(x, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
            top[i][r] = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
            grown |= (top[i][r] - f.m[i][r]) * c > 8.0f;
        }
    if (__any_sync(~0u, grown)) rescale<W>(f, top, c);
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float base = base_of<W>(s[i], r, f.m[i][r], c);
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++)
                    f.l[i][r] += s[i][n][e] = exp2_fast(fmaf(s[i][n][e], c, -base));
        }
}

/* A block computes Br queries of a head (attention.h).  One barrier a key block: after it block t
 * is here for all warps, and all have finished block t - 1, whose buffer block t + 1 may take.
 * Causal: the blocks with most keys come first, so that short ones end the run. */
template <enum dtype T, class W>
__global__ void __launch_bounds__(W::THREADS, W::BLOCKS)
    lazy_rescaling_kernel(const struct attention x)
{
    typename W::shared &shared = dynamic_shared<typename W::shared>();
    int i = blockIdx.x % x.q_blocks;
    const struct head_block h =
        head_block_of(x, blockIdx.x + (x.causal ? x.q_blocks - 1 - 2 * i : 0), W::Br);
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * W::MT; /* of this warp */
    int n_blocks = (h.keys + W::Bc - 1) / W::Bc, first = h.q0 + row0;
    /* key blocks that all queries see, and keys that a query of this warp sees */
    int n_open = all_rows_see(x.mask, h.q0, h.q0 + W::Br).end / W::Bc;
    int end = some_row_sees(x.mask, first, first + 16 * W::MT).end;

    typename W::state f = {};
#pragma unroll
    for (int i = 0; i < W::MT; i++) f.m[i][0] = f.m[i][1] = -INFINITY;

    issue_copy<W, W::Br>(shared.q, q_row(x, h, h.q0), x.seqlen_q - h.q0, x.head_dim);
    issue_kv<W>(shared, h, x, 0);
    shared_address q0 =
        address_of(shared.q + swizzled<W::Br>(row0 + lane % 16, lane / 16));
    if (W::Q_IN_REGISTERS) {
        copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < W::D / 16; d++) load_q<W>(f, q0, d);
    }
    for (int t = 0; t < n_blocks; t++) {
        int j0 = t * W::Bc, row = first + lane / 4;
        copies_wait<0>();
        __syncthreads();
        if (t + 1 < n_blocks) issue_kv<W>(shared, h, x, t + 1);
        if (j0 >= end) continue; /* masked for this warp */
        typename W::scores s;
        multiply_qk<T, W>(s, f, q0, shared.k[t % 2]);
        if (W::BIAS) add_bias<W>(s, x, row, j0);
        if (t >= n_open) mask_block<W>(s, x, row, j0);
        softmax_step<W>(f, s, unit_of<W>(x) * 1.44269504f);
        add_pv<T, W>(f, s, shared.v[t % 2]);
    }
    copies_wait<0>(); /* Q, should there be no key block */
    __syncthreads();
    store<T, W>(f, shared, h, x, unit_of<W>(x));
}

/* Calls use(tiles, why) with those for the problem; above 128 the large ones where they fit. */
template <class F> static void with_tiling(const struct problem *p, F use)
{
    with_head_dim<HEADS>(p, [&](auto d) {
        using large = tiling<d, 0, (d > 128)>;
        if (p->has_bias) use(tiling<d, 1>(), ", with a bias");
        else if (sizeof(typename large::shared) <= shared_memory_limit())
            use(large(), d > 128 ? ", shared memory has room for large tiles" : ", no bias");
        else use(tiling<d, 0>(), ", shared memory has no room for large tiles");
    });
}

static struct cost cost(const struct problem *p)
{
    return attention_cost(p, p->head_dim <= 128 && p->head_dim_v <= 128 ? 128 : 64);
}

#ifndef BESIDE_RUNG_6 /* general_mma.cu takes what stands above */
MMA_RUNG(lazy_rescaling, "rescale rarely: over 2^8", 80, async_refuses);
#endif
