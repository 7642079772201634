/* general_step.h: what the kernel `general` computes of the products of a block of keys: caps, adds
 * a bias, masks both ends (SCORES of step.h); and the last block of a sequence that another follows
 * in memory. */
#ifndef HOPPER_GENERAL_STEP_H
#define HOPPER_GENERAL_STEP_H

#include "key_blocks.h"
#include "score_terms.h"
#include "step.h"
#include "work_list.h"

/* Which queries a consumer has, what they see, and what is added to their scores. */
struct general_scores {
    const struct score_terms &terms;
    const struct rows_of_sequence &sequence;
    const struct work_tile &tile;
    const float *bias; /* of the head; found once, because a block's loads wait for it */
    int w;             /* the consumer */

    /* The thread's first row in the sequence.  Computed where it is used: no register holds it. */
    template <class C> __device__ __forceinline__ int row() const
    {
        return tile.tile * C::Br + 64 * w + first_row();
    }
    template <class C>
    __device__ __forceinline__ void finish(float (&s)[C::Bc / 2], int n, bool mask,
                                           bool late) const
    {
        if (C::SOFTCAP && !late) cap_scores<C>(s, terms);
        if (C::BIAS) add_bias<C>(s, terms, bias, row<C>(), sequence.seqlen_q, n, !mask);
        if (mask) mask_both_ends<C>(s, sequence.mask, row<C>(), n);
    }
    /* The same consumer, or step() stores its comparisons. */
    __device__ __forceinline__ struct general_scores again() const
    {
        return {terms, sequence, tile, bias, as_new(w)};
    }
    template <class C>
    __device__ __forceinline__ void weigh(float (&s)[C::Bc / 2], struct rows &r, float unit,
                                          bool late) const
    {
        if constexpr (C::BIAS) {
            struct rows near = subtract_large(s, r);
            exponentials(s, near, unit);
            r.l[0] = near.l[0], r.l[1] = near.l[1];
        } else if (C::SOFTCAP && late) {
            capped_exponentials<C>(s, r, terms);
        } else {
            exponentials(s, r, unit);
        }
    }
};

/* The output of the last block, of whose rows of V `valid` belong to the sequence.  In a packed
 * array the next ones are another sequence's, and 0 NaN would be NaN.  So the 16 rows that are cut
 * are copied, zeros behind them, to rows of shared memory that are this consumer's own.
 *   own  32 rows of panels that are OWN_ROWS high */
template <class C, int OWN_ROWS>
static __device__ __forceinline__ void last_pv_of_sequence(consumer<C> &x, kv_pipeline<C> &kv,
                                                           typename C::T *own, int valid, int w)
{
    const typename C::T *v = kv.v[x.v_at.index];
    const int whole = min(valid, +C::Bc) / 16; /* products */
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    if (whole < C::Bc / 16) {
        if (threadIdx.x % 128 == 0) tma_store_wait_read(); /* of o of the tile before */
        named_barrier_sync(8 + w, 128);
        for (int i = threadIdx.x % 128; i < 32 * IN_PANELS<DV<C>> / 8; i += 128) { /* 8 columns each */
            const int panel = i / 256, row = i / 8 % 32, from = 16 * whole + row;
            uint4 eight = make_uint4(0, 0, 0, 0);
            if (from < valid) eight = ((const uint4 *)v)[(panel * C::Bc + from) * 8 + i % 8];
            ((uint4 *)own)[(panel * OWN_ROWS + row) * 8 + i % 8] = eight;
        }
        fence_proxy_async();
        named_barrier_sync(8 + w, 128);
    }
    const uint64_t in_block = descriptor_v(v, C::Bc), in_own = descriptor_v(own, OWN_ROWS);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::Bc / 16; i++)
        wgmma_pv<typename C::T>(x.o, x.p + 4 * i, i < whole ? in_block + 128 * i
                                                  : i == whole ? in_own : in_own + 128);
    wgmma_commit();
    wgmma_wait<0>();
    warpgroup_fence_operand(x.o);
    release(kv.v_empty, x.v_at);
}

#endif
