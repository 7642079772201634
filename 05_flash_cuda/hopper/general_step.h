/* general_step.h: a consumer's step over one block of keys in the kernel `general`: rung 13's, with
 * more in three places.  Products become scores by a cap, a bias and a mask at both ends.  Maxima
 * may also grow in later blocks, where rows see their first keys.  And another sequence may follow
 * in memory behind the last block. */
#pragma once

#include "first_block.h"
#include "key_blocks.h"
#include "late_turns.h"
#include "leaves.h"
#include "q_fragments.h"
#include "score_terms.h"
#include "turns.h"
#include "work_list.h"

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer {
    float s[C::Bc / 2], o[DV<C> / 2], unit; /* log2(weight) = unit s */
    uint32_t p[C::Bc / 4];
    q_operand<C> q;
    const typename C::T *q_rows;
    struct rows rows;
    struct pipeline_state k_at, v_at;
};

/* FIRST_BLOCK: there is no output of a block before.  GROWING: the rows' maxima may grow.  FIXED:
 * weights refer to the maximum that is known (rung 13). */
enum step_kind { FIRST_BLOCK, GROWING, FIXED };

/* The kind of a block after the first that all rows see. */
template <class C> constexpr step_kind LATER = C::FIRST_BLOCK_MAX ? FIXED : GROWING;

template <class C> static __device__ __forceinline__ void pass_turn(int w)
{
    acquire_turn(w);
    pass_turn_on<C>(w);
}

/* A block that only other consumers need. */
template <class C>
static __device__ __forceinline__ void pass(consumer<C> &x, kv_pipeline<C> &kv, int w)
{
    pass_turn<C>(w);
    skip_block(kv, x.k_at, x.v_at, 8 + w, C::K_ARRIVALS);
}

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
    __device__ __forceinline__ void weigh(float (&s)[C::Bc / 2], struct rows &r, float unit, int n,
                                          bool late) const
    {
        if constexpr (C::BIAS) {
            struct rows near = subtract_large(s, r);
            exponentials(s, near, unit);
            r.l[0] = near.l[0], r.l[1] = near.l[1];
            if constexpr (C::DROPS) drop<C>(s, terms, tile, row<C>(), n);
        } else if (C::SOFTCAP && late) {
            capped_exponentials<C>(s, r, terms);
        } else {
            exponentials(s, r, unit);
        }
    }
};

/* m = top in each row where that has grown (leaves.h): no row's bits depend on another. */
static __device__ __forceinline__ void raise_maxima(struct rows &r, const float (&top)[2], float c,
                                                    float (&alpha)[2])
{
    for (int i = 0; i < 2; i++) {
        const float m = grown_maximum(r.m[i], top[i], c);
        alpha[i] = factor_of(r.m[i], m, c);
        r.m[i] = m, r.mc[i] = reference_of(m, c);
        r.l[i] = __fmul_rn(r.l[i], alpha[i]); /* never fused with the next sum */
    }
}

/* Block n again with its maximum; `l` is the rows' l without it.  It is not in o yet.  The warp
 * has read K by ordinary loads: the fence and the barrier put them before its release of K. */
template <class C>
static __device__ __forceinline__ void repair(consumer<C> &x, const typename C::T *k,
                                              const struct general_scores &scores, int n, bool mask,
                                              const float (&l)[2])
{
    float top[2], alpha[2];
    warp_scores<C>(x.s, x.q, x.q_rows, k);
    fence_proxy_async();
    __syncwarp();
    scores.again().finish<C>(x.s, n, mask, false);
    row_maxima(x.s, top);
    repair_rows(x.rows, l, top, x.unit, alpha);
    exponentials(x.s, x.rows, x.unit);
    scale_rows(x.o, alpha);
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.o);
    warpgroup_fence_operand(x.p);
}

/* Key block n, and the output of the block before. */
template <class C, enum step_kind KIND>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct general_scores &scores, int w, int n,
                                            bool mask)
{
    float top[2], alpha[2];
    const int k_index = x.k_at.index;
    mbarrier_wait(&kv.k_full[k_index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    if constexpr (C::TURN == BEFORE_LAST_PRODUCT) issue_qk_last_apart<C>(x.s, x.q, kv.k[k_index]);
    else issue_qk<C>(x.s, x.q, kv.k[k_index]);
    if (KIND != FIRST_BLOCK) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    if (C::TURN == BEFORE_LAST_PRODUCT) wgmma_wait<KIND == FIRST_BLOCK ? 1 : 2>();
    if (C::TURN != WITH_SCORES) pass_turn_on<C>(w);
    wgmma_wait<KIND == FIRST_BLOCK ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    if (C::TURN == WITH_SCORES) {
        pass_turn_on<C>(w);
        mbarrier_wait(&kv.k_full[k_index], x.k_at.phase); /* long over: a fence (notes) */
    }
    warpgroup_fence_operand(x.s);
    if (!C::FIRST_BLOCK_MAX) release(kv.k_empty, x.k_at);
    const bool late = KIND == FIXED && !mask; /* no maximum, no mask needs the scores */
    scores.finish<C>(x.s, n, mask, late);
    bool grown = false;
    if (KIND != FIXED) {
        row_maxima(x.s, top);
        grown = KIND == FIRST_BLOCK || has_grown(x.rows, top, x.unit);
    }
    if (grown && C::FIRST_BLOCK_MAX) refer_to(x.rows, top, x.unit, alpha);
    else if (grown) raise_maxima(x.rows, top, x.unit, alpha);
    const float l[2] = {x.rows.l[0], x.rows.l[1]};
    scores.weigh<C>(x.s, x.rows, x.unit, n, late);
    if (KIND != FIRST_BLOCK) {
        wgmma_wait<0>();
        warpgroup_fence_operand(x.o);
        release(kv.v_empty, x.v_at);
        if (grown) scale_rows(x.o, alpha);
        warpgroup_fence_operand(x.o);
    }
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.p);
    if (C::FIRST_BLOCK_MAX) {
        advance<C::K_STAGES>(x.k_at);
        if (any_has_outgrown(x.rows))
            repair<C>(x, kv.k[k_index], scores, n, mask, l);
        mbarrier_arrive_if(&kv.k_empty[k_index], threadIdx.x % 32 == 0);
    }
}

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
