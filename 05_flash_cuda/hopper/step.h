/* step.h: a consumer's step over one block of keys, as the kernels beside and behind the ladder
 * take it (14_tuned.cu, general.cu): rung 13's, with two things left open.
 *
 *   SCORES  scores.finish<C>(s, n, mask) turns products into scores of key block n, and
 *           scores.weigh<C>(s, rows, unit) scores into weights.  `late`: what finish() can leave to
 *           weigh().  scores.again() is the same, in a form that shares no result with the first
 *   KIND    what is done about the maximum */
#ifndef HOPPER_STEP_H
#define HOPPER_STEP_H

#include "pipeline.h"
#include "q_fragments.h"

/* What tiles take, as far as it follows from their size.
 *   PER_SM  blocks of threads on a multiprocessor */
template <class Type, int HEAD_DIM, int HEAD_DIM_V, int CONSUMERS, int KEYS, int STAGES,
          bool TRY_FIRST_MAX = true, int PER_SM = 1>
struct tiles {
    using T = Type;
    static constexpr int D = HEAD_DIM, DV = HEAD_DIM_V;
    static constexpr int WARPGROUPS = CONSUMERS, Br = 64 * WARPGROUPS, Bc = KEYS;
    static constexpr bool FIRST_BLOCK_MAX =
        TRY_FIRST_MAX && D <= 192 && std::is_same_v<T, __nv_bfloat16>;
    static constexpr int K_STAGES = STAGES, V_STAGES = STAGES;
    static constexpr int K_ARRIVALS = FIRST_BLOCK_MAX ? 4 : 1; /* by each warp, or one for all */
    static constexpr bool Q_IN_REGISTERS = D > 64 && D <= 128 && WARPGROUPS == 2;
    static constexpr int Q_STAGES = D == 64 || Q_IN_REGISTERS ? 2 : 1;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = PER_SM == 3 ? 24 : WARPGROUPS == 2 ? 40 : 32;
    static constexpr int REGISTERS = PER_SM == 3 ? 136
                                                 : WARPGROUPS == 2 ? 232 : WARPGROUPS == 3 ? 160 : 112;
    static constexpr bool LATE_TURN = WARPGROUPS > (FIRST_BLOCK_MAX ? 3 : 2);
    static constexpr bool TMA_STORE = D < 256; /* shared memory is left for a tile of o */
};

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

/* When a consumer passes its turn at the tensor cores on. */
enum turn_passes { WHEN_ISSUED, BEFORE_LAST_PRODUCT, WITH_SCORES };

/* WITH_SCORES waits for K a second time.  That needs FIRST_BLOCK_MAX, where each warp releases K
 * for itself: a release for all four would let K be loaded twice before a late warp has waited. */
template <class C>
constexpr turn_passes PASSES =
    !C::LATE_TURN ? WHEN_ISSUED : C::FIRST_BLOCK_MAX ? WITH_SCORES : BEFORE_LAST_PRODUCT;

/* Issues S = Q K^T of 64 columns as two groups: the last product is one of its own. */
template <class C>
static __device__ __forceinline__ void issue_qk_last_apart(float (&s)[C::Bc / 2], uint64_t q,
                                                           const typename C::T *k_tile)
{
    mark(QK);
    uint64_t k = descriptor_qk(k_tile);
    wgmma_qk<typename C::T, true>(s, q, k);
    for (int i = 1; i < 4; i++) {
        if (i == 3) wgmma_commit();
        wgmma_qk<typename C::T, false>(s, q + 2 * i, k + 2 * i);
    }
    wgmma_commit();
}

/* A turn is a named barrier for each consumer.  Its owner waits there for the one before. */
static __device__ __forceinline__ void acquire_turn(int w) { named_barrier_sync(1 + w, 256); }

template <class C> static __device__ __forceinline__ void release_turn(int w)
{
    asm("" : "+r"(w)); /* or the number below takes a register for the whole loop */
    named_barrier_arrive(w + 1 == C::WARPGROUPS ? 1 : 2 + w, 256);
}

template <class C> static __device__ __forceinline__ void pass_turn(int w)
{
    acquire_turn(w);
    release_turn<C>(w);
}

/* A block that only other consumers need. */
template <class C>
static __device__ __forceinline__ void pass(consumer<C> &x, kv_pipeline<C> &kv, int w)
{
    pass_turn<C>(w);
    skip_block(kv, x.k_at, x.v_at, 8 + w, C::K_ARRIVALS);
}

/* Block n again with its maximum; `l` is the rows' l without it.  It is not in o yet.  The warp
 * has read K by ordinary loads: the fence and the barrier put them before its release of K. */
template <class C, class SCORES>
static __device__ __forceinline__ void repair(consumer<C> &x, const typename C::T *k,
                                              const SCORES &scores, int n, bool mask,
                                              const float (&l)[2])
{
    float top[2], alpha[2];
    warp_scores<C>(x.s, x.q, x.q_rows, k);
    fence_proxy_async();
    __syncwarp();
    scores.again().template finish<C>(x.s, n, mask, false);
    row_maxima(x.s, top);
    repair_rows(x.rows, l, top, x.unit, alpha);
    exponentials(x.s, x.rows, x.unit);
    scale_rows(x.o, alpha);
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.o);
    warpgroup_fence_operand(x.p);
}

/* Key block n, and the output of the block before. */
template <class C, enum step_kind KIND, class SCORES>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const SCORES &scores, int w, int n, bool mask)
{
    constexpr turn_passes TURN = PASSES<C>;
    float top[2], alpha[2];
    const int k_index = x.k_at.index;
    mbarrier_wait(&kv.k_full[k_index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    if constexpr (TURN == BEFORE_LAST_PRODUCT) issue_qk_last_apart<C>(x.s, x.q, kv.k[k_index]);
    else issue_qk<C>(x.s, x.q, kv.k[k_index]);
    if (KIND != FIRST_BLOCK) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    if (TURN == BEFORE_LAST_PRODUCT) wgmma_wait<KIND == FIRST_BLOCK ? 1 : 2>();
    if (TURN != WITH_SCORES) release_turn<C>(w);
    wgmma_wait<KIND == FIRST_BLOCK ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    if (TURN == WITH_SCORES) {
        release_turn<C>(w);
        mbarrier_wait(&kv.k_full[k_index], x.k_at.phase); /* long over: a fence (notes) */
    }
    warpgroup_fence_operand(x.s);
    if (!C::FIRST_BLOCK_MAX) release(kv.k_empty, x.k_at);
    const bool late = KIND == FIXED && !mask; /* no maximum, no mask needs the scores */
    scores.template finish<C>(x.s, n, mask, late);
    bool grown = false;
    if (KIND != FIXED) {
        row_maxima(x.s, top);
        grown = KIND == FIRST_BLOCK || has_grown(x.rows, top, x.unit);
    }
    if (grown && C::FIRST_BLOCK_MAX) refer_to(x.rows, top, x.unit, alpha);
    else if (grown) raise_maxima(x.rows, top, x.unit, alpha);
    const float l[2] = {x.rows.l[0], x.rows.l[1]};
    scores.template weigh<C>(x.s, x.rows, x.unit, late);
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
        if (__any_sync(0xffffffffu, SOFTMAX && has_outgrown(x.rows)))
            repair<C>(x, kv.k[k_index], scores, n, mask, l);
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

#endif
