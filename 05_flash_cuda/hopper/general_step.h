/* general_step.h: a block of keys in the kernel `general`: rung 16's, with windows and with what
 * a model adds to the scores. */
#ifndef HOPPER_GENERAL_STEP_H
#define HOPPER_GENERAL_STEP_H

#include "key_blocks.h"
#include "q_fragments.h"
#include "score_terms.h"
#include "work_list.h"

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer {
    float s[C::Bc / 2], o[C::D / 2], unit; /* log2(weight) = unit s + an offset */
    uint32_t p[C::Bc / 4];
    q_operand<C> q;
    const typename C::T *q_rows;
    struct rows rows;
    struct pipeline_state k_at, v_at;
};

/* Which queries a consumer has, and what they see. */
struct block_at {
    const struct rows_of_sequence &sequence;
    const struct work_tile &tile;
    int w; /* the consumer */
};

/* The thread's first row in the sequence.  Computed where it is used: no register holds it. */
template <class C> static __device__ __forceinline__ int row_of(const struct block_at &at)
{
    return at.tile.tile * C::Br + 64 * at.w + first_row();
}

/* Steps of a tile.  FIRST: there is no output of a block before.  GROWING: the rows' maxima may
 * grow.  FIXED: weights refer to the maximum that is known (rung 15). */
enum step_kind { FIRST, GROWING, FIXED };

/* The kind of a block after the first that all rows see. */
template <class C> constexpr step_kind LATER = C::FIRST_BLOCK_MAX ? FIXED : GROWING;

/* A turn is a named barrier for each consumer.  Its owner waits there for the one before. */
static __device__ __forceinline__ void acquire_turn(int w) { named_barrier_sync(1 + w, 256); }
template <class C> static __device__ __forceinline__ void release_turn(int w)
{
    asm("" : "+r"(w)); /* or the number below takes a register for the whole loop */
    named_barrier_arrive(w + 1 == C::WARPGROUPS ? 1 : 2 + w, 256);
}

/* From products to scores: cap, bias, mask of key block n. */
template <class C>
static __device__ __forceinline__ void add_terms(float (&s)[C::Bc / 2],
                                                 const struct score_terms &terms,
                                                 const struct block_at &at, int n, bool mask)
{
    if (C::SOFTCAP) cap_scores(s, terms);
    if (C::BIAS) add_bias<C>(s, terms, row_of<C>(at), at.sequence.seqlen_q, n, !mask);
    if (mask) mask_both_ends<C>(s, at.sequence.mask, row_of<C>(at), n);
}

/* Block n again with its maximum (rung 15); `l` is the rows' l without it. */
template <class C>
static __device__ __forceinline__ void repair(consumer<C> &x, const typename C::T *k,
                                              const struct score_terms &terms,
                                              const struct block_at &at, int n, bool mask,
                                              const float (&l)[2])
{
    float top[2], alpha[2];
    /* as new, or step() stores its comparisons; with 64 keys it does not */
    const int w = C::Bc == 128 ? as_new(at.w) : at.w;
    warp_scores<C>(x.s, x.q, x.q_rows, k);
    add_terms<C>(x.s, terms, {at.sequence, at.tile, w}, n, mask);
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
                                            const struct score_terms &terms,
                                            const struct block_at &at, int w, int n, bool mask)
{
    constexpr bool LATE = C::GROUP > 0 && (KIND == FIRST || C::FIRST_BLOCK_MAX);
    float top[2], alpha[2];
    const int k_index = x.k_at.index;
    mbarrier_wait(&kv.k_full[k_index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    issue_qk<C, LATE ? 0 : C::GROUP>(x.s, x.q, kv.k[k_index]);
    if (KIND != FIRST) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    if (C::GROUP > 0 && !LATE) wgmma_wait<2>();
    if (!LATE) release_turn<C>(w);
    wgmma_wait<KIND == FIRST ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    if (LATE) release_turn<C>(w);
    if (LATE) mbarrier_wait(&kv.k_full[k_index], x.k_at.phase); /* long over: a fence (notes) */
    warpgroup_fence_operand(x.s);
    if (!C::FIRST_BLOCK_MAX) release(kv.k_empty, x.k_at);
    add_terms<C>(x.s, terms, at, n, mask);
    bool grown = false;
    if (KIND != FIXED) {
        row_maxima(x.s, top);
        grown = KIND == FIRST || has_grown(x.rows, top, x.unit);
    }
    if (grown && C::FIRST_BLOCK_MAX) refer_to(x.rows, top, x.unit, alpha);
    else if (grown) update_maximum(x.rows, top, x.unit, alpha);
    const float l[2] = {x.rows.l[0], x.rows.l[1]};
    exponentials(x.s, x.rows, x.unit);
    if (KIND != FIRST) {
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
        if (__any_sync(0xffffffffu, SOFTMAX && has_outgrown(x.rows)))
            repair(x, kv.k[k_index], terms, at, n, mask, l);
        mbarrier_arrive_if(&kv.k_empty[k_index], threadIdx.x % 32 == 0);
    }
}

/* The output of the last block. */
template <class C>
static __device__ __forceinline__ void last_pv(consumer<C> &x, kv_pipeline<C> &kv)
{
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    wgmma_fence();
    issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.o);
    release(kv.v_empty, x.v_at);
}

template <class C> static __device__ __forceinline__ void pass_turn(int w)
{
    acquire_turn(w);
    release_turn<C>(w);
}

/* A block that other consumers need. */
template <class C>
static __device__ __forceinline__ void pass(consumer<C> &x, kv_pipeline<C> &kv, int w)
{
    pass_turn<C>(w);
    skip_block(kv, x.k_at, x.v_at, 8 + w);
}

#endif
