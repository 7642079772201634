/* 04_async_copies.cu: rung 4, the next tile is copied while this one is computed.
 *
 * In rung 3 a block loads a tile, waits, computes, and loads the next one.  Here shared memory
 * holds two tiles of K and V.  cp.async copies key block t + 1 into one of them while the warps
 * compute block t in the other: it is an instruction that starts a copy of 16 bytes and does not
 * wait for it (async_tile.h).
 *
 * sm_80 and later; head_dim and head_dim_v multiples of 8, because a copy has 16 bytes.  Everything
 * else is rung 3's. */
#include "portable/async_tile.h"
#include "portable/mma_variant.h"
#include "portable/scores.h"
#include "portable/swizzled_tile.h"

/* Tiles for heads of up to D columns.  Shared memory: 2 D (Br + 4 Bc) bytes, 96 KB at most,
 * as sm_86 has 99. */
template <int HEAD_DIM, int WITH_BIAS> struct tiling {
    static constexpr int D = HEAD_DIM, BIAS = WITH_BIAS;
    static constexpr int WARPS = 4, THREADS = 32 * WARPS;
    static constexpr int BLOCKS = D <= 64 && !BIAS ? 3 : 2; /* on a multiprocessor */
    static constexpr int MT = 1;               /* 16-query tiles of a warp */
    static constexpr int Br = 16 * MT * WARPS; /* queries of a block */
    static constexpr int Bc = D <= 128 ? 64 : 32; /* keys of it */
    static constexpr int Q_IN_REGISTERS = D <= 128; /* or loaded for each key block */
    static constexpr int BUFFERS = 2; /* tiles of K and V in shared memory */
    using shared = struct tile_memory<tiling>;
    using state = struct warp_state<tiling>;
    typedef float scores[MT][Bc / 8][4]; /* of a warp and a key block, as C fragments */
};

/* Folds the scores of a key block into m, l and o and turns them into P:
 *     m_new = max(m, max_j s_j),  alpha = 2^(c (m - m_new))
 *     p_j   = 2^(c s_j - c m_new),  l = l alpha + sum_j p_j (this lane's columns),  o = o alpha
 * While m_new is -inf no key was visible: alpha = 1, so that -inf - -inf never arises. */
template <class W>
static __forceinline__ __device__ void softmax_step(typename W::state &f,
                                                    typename W::scores &s, float c)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float m_new = f.m[i][r];
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
                m_new = fmaxf(m_new, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
            m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, 1));
            m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, 2));
            float alpha = m_new == -INFINITY ? 1.0f : exp2_fast((f.m[i][r] - m_new) * c);
            float base = base_of<W>(s[i], r, m_new, c);
            f.m[i][r] = m_new;
            f.l[i][r] *= alpha;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++) {
                f.o[i][n][2 * r] *= alpha;
                f.o[i][n][2 * r + 1] *= alpha;
            }
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
    async_copies_kernel(const struct attention x)
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

/* Calls use(tiles, why) with those for the problem. */
template <class F> static void with_tiling(const struct problem *p, F use)
{
    with_head_dim<HEADS>(p, [&](auto d) {
        if (p->has_bias) use(tiling<d, 1>(), "");
        else use(tiling<d, 0>(), "");
    });
}

static struct cost cost(const struct problem *p) { return attention_cost(p, 64); }

MMA_RUNG(async_copies, "copies run ahead", 80, async_refuses);
