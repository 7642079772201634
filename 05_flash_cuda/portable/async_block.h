/* async_block.h: a block of rungs 4 to 6.  They differ in their tiles W and in softmax_step(). */
#pragma once

#include "portable/async_tile.h"
#include "portable/mma_variant.h"
#include "portable/scores.h"

template <class W> /* the rung's */
static __forceinline__ __device__ void softmax_step(typename W::state &f,
                                                    typename W::scores &s, float c);

/* A block computes Br queries of a head (attention.h).  One barrier a key block: after it block t
 * is here for all warps, and all have finished block t - 1, whose buffer block t + 1 may take.
 * Causal: the blocks with most keys come first, so that short ones end the run. */
template <enum dtype T, class W>
static __forceinline__ __device__ void attend(const struct attention &x)
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
