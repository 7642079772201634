/* step8.h: a consumer's step over one block of keys in 8 bits: products, weights, sums in float. */
#pragma once

#include "hopper/first_block.h"
#include "hopper/turns.h"
#include "tiles8.h"

/* ---- products ---- */

/* Columns 32 i ... 32 i + 31 of the queries. */
template <class C>
static __device__ __forceinline__ auto q_part(const q_operand<C> &q, int i)
{
    if constexpr (C::Q_IN_REGISTERS) return q + 4 * i;
    else return q + i / 4 * (C::Br * 128 >> 4) + i % 4 * 2;
}

template <class C, class NUMBER>
static __device__ __forceinline__ void issue_qk8(NUMBER (&s)[C::Bc / 2],
                                                 const q_operand<C> &q,
                                                 const typename C::T *k_tile)
{
    const uint64_t k = descriptor_qk(k_tile);
    wgmma8<typename C::Scores, true>(s, q_part<C>(q, 0), k);
#pragma unroll
    for (int i = 1; i < C::D / 16; i++)
        wgmma8<typename C::Scores, false>(s, q_part<C>(q, i),
                                          k + i / 4 * (C::Bc * 128 >> 4) + i % 4 * 2);
    wgmma_commit();
}

template <class C>
static __device__ __forceinline__ void issue_pv8(float (&o)[C::DV / 2],
                                                 const uint32_t (&p)[C::WEIGHTS],
                                                 const typename C::T *v_tile)
{
    if constexpr (C::WIDE) {
        const uint64_t v = descriptor_v(v_tile, C::Bc);
#pragma unroll
        for (int i = 0; i < C::Bc / 16; i++) wgmma_pv<__half>(o, p + 4 * i, v + 128 * i);
    } else {
        const uint64_t v = descriptor_qk(v_tile);
#pragma unroll
        for (int i = 0; i < C::Bc / 32; i++) wgmma8<e4m3, false>(o, p + 4 * i, v + 2 * i);
    }
    wgmma_commit();
}

/* ---- weights ---- */

/* p = 2^(s c - mc) as the operand of P V, summed into l; s stays. */
template <class C>
static __device__ __forceinline__ void weigh(const float (&s)[C::Bc / 2], struct rows &r, float c,
                                             uint32_t (&p)[C::WEIGHTS])
{
#pragma unroll
    for (int i = 0; i < C::Bc / 2; i += 8) {
        float x[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            x[j] = exp2_fast(fmaf(s[i + j], c, -r.mc[j / 2 % 2]));
            r.l[j / 2 % 2] += x[j];
        }
        if constexpr (C::WIDE) {
#pragma unroll
            for (int j = 0; j < 8; j += 2) p[(i + j) / 2] = pack<__half>(x[j], x[j + 1]);
        } else {
            p[i / 4] = pack_e4m3(x[0], x[1], x[4], x[5]);
            p[i / 4 + 1] = pack_e4m3(x[2], x[3], x[6], x[7]);
        }
    }
}

/* Whether some weight of a row of the warp may not fit: the sum of a thread's weights is larger than
 * any of them.
 *   l  the rows' l before the block */
template <class C>
static __device__ __forceinline__ bool may_be_too_large(const struct rows &r, const float (&l)[2])
{
    return __any_sync(0xffffffffu, r.l[0] - l[0] > C::LIMIT_OF_SUM ||
                                       r.l[1] - l[1] > C::LIMIT_OF_SUM);
}

/* m = max(m, the block's), with a weight of 2^largest there, row by row.  alpha is the factor of what
 * was summed before. */
template <class C>
static __device__ __forceinline__ void refer_to_block(const float (&s)[C::Bc / 2], struct rows &r,
                                                      float c, const float (&largest)[2],
                                                      float (&alpha)[2])
{
    float top[2];
    row_maxima(s, top);
    for (int i = 0; i < 2; i++) {
        const float before = r.mc[i];
        r.m[i] = fmaxf(r.m[i], top[i]);
        r.mc[i] = r.m[i] == -INFINITY ? NO_SCORE : fmaf(r.m[i], c, -largest[i]);
        alpha[i] = exp2_fast(before - r.mc[i]);
        r.l[i] *= alpha[i];
    }
}

/* ---- sums in float (C::SUMS): in shared memory, where each thread has its own words ---- */

/* Four sums of the thread, those of o[4 i] ... o[4 i + 3].  They lie where the warpgroup stages its o,
 * and as much behind the staged o of all. */
template <class C> static __device__ __forceinline__ float4 &sum_at(memory8<C> &sm, int i)
{
    const int w = (int)threadIdx.x / 128 - 1, t = (int)threadIdx.x % 128;
    constexpr int HALF = C::DV / 16;
    return ((float4 *)(sm.o + (i / HALF * C::WARPGROUPS + w) * 64 * C::DV))[i % HALF * 128 + t];
}

/* sums = factor sums + o, row by row. */
template <class C>
static __device__ __forceinline__ void add_sums(memory8<C> &sm, const float (&o)[C::DV / 2],
                                                const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < C::DV / 8; i++) {
        float4 &sum = sum_at(sm, i);
        const float4 x = sum;
        sum = make_float4(fmaf(x.x, factor[0], o[4 * i]), fmaf(x.y, factor[0], o[4 * i + 1]),
                          fmaf(x.z, factor[1], o[4 * i + 2]), fmaf(x.w, factor[1], o[4 * i + 3]));
    }
}

/* Moves o to the sums; the first time of a tile, when the o of the tile before has been stored. */
template <class C>
static __device__ __forceinline__ void flush(consumer8<C> &x, memory8<C> &sm, int w, bool begins)
{
    const float one[2] = {1.0f, 1.0f};
    if (begins) {
        if (threadIdx.x % 128 == 0) tma_store_wait_read();
        named_barrier_sync(8 + w, 128);
#pragma unroll
        for (int i = 0; i < C::DV / 8; i++) sum_at(sm, i) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    add_sums(sm, x.o, one);
#pragma unroll
    for (int i = 0; i < C::DV / 2; i++) x.o[i] = 0.0f;
}

/* o += sums. */
template <class C>
static __device__ __forceinline__ void take_sums(consumer8<C> &x, memory8<C> &sm)
{
#pragma unroll
    for (int i = 0; i < C::DV / 8; i++) {
        const float4 sum = sum_at(sm, i);
        x.o[4 * i] += sum.x, x.o[4 * i + 1] += sum.y;
        x.o[4 * i + 2] += sum.z, x.o[4 * i + 3] += sum.w;
    }
}

/* Weighs the block again with its maximum.  That gets a large weight where it is alone in its row, so that
 * small weights survive beside it, and else one that leaves room: a row whose other weights add up would
 * soon be weighed again.  The rows of a warp differ.  `l` is the rows' l without the block.  It is not in
 * o yet. */
template <class C>
static __device__ __forceinline__ void weigh_again(consumer8<C> &x, memory8<C> &sm, int n,
                                                   const float (&l)[2], uint32_t (&p)[C::WEIGHTS])
{
    float alpha[2], all[2] = {1.0f, 1.0f}, largest[2] = {C::ALONE, C::ALONE};
    bool again;
    do {
        x.rows.l[0] = l[0] * all[0], x.rows.l[1] = l[1] * all[1];
        refer_to_block<C>(x.s, x.rows, x.c, largest, alpha);
        all[0] *= alpha[0], all[1] *= alpha[1];
        const float before[2] = {x.rows.l[0], x.rows.l[1]};
        weigh<C>(x.s, x.rows, x.c, p);
        again = false;
        for (int i = 0; i < 2; i++) { /* the four threads of a row agree */
            const float sum = quad_sum(x.rows.l[i] - before[i]);
            if (sum <= C::SUM_ALONE || largest[i] <= C::LARGEST) continue;
            largest[i] = C::LARGEST;
            again = true;
        }
    } while (__any_sync(0xffffffffu, again));
    scale_rows(x.o, all);
    if (C::SUMS > 0 && n >= C::SUMS) {
        const float nothing[C::DV / 2] = {};
        add_sums(sm, nothing, all);
    }
}

/* Key block n, and the output of block n - 1 (there is none before block 0). */
template <class C, bool FIRST>
static __device__ __forceinline__ void step8(consumer8<C> &x, memory8<C> &sm,
                                             const struct params &params, int w, int row, int n,
                                             bool mask)
{
    kv_pipeline<C> &kv = sm.kv;
    uint32_t p[C::WEIGHTS], raw[C::IS_INT8 ? C::Bc / 2 : 1];
    float alpha[2];
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    if constexpr (C::IS_INT8) issue_qk8<C>(raw, x.q, kv.k[x.k_at.index]);
    else issue_qk8<C>(x.s, x.q, kv.k[x.k_at.index]);
    if (!FIRST) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv8<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    if (!C::LATE_TURN) pass_turn_on<C>(w);
    wgmma_wait<FIRST ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    if (C::LATE_TURN) pass_turn_on<C>(w);
    if constexpr (C::IS_INT8) {
        warpgroup_fence_operand(raw);
#pragma unroll
        for (int i = 0; i < C::Bc / 2; i++) x.s[i] = (float)(int32_t)raw[i]; /* exact */
    }
    warpgroup_fence_operand(x.s);
    release(kv.k_empty, x.k_at);
    if (mask) mask_block<C>(x.s, params, row, n);
    const float first_largest[2] = {C::FIRST_LARGEST, C::FIRST_LARGEST};
    if (FIRST) refer_to_block<C>(x.s, x.rows, x.c, first_largest, alpha);
    const float l[2] = {x.rows.l[0], x.rows.l[1]};
    weigh<C>(x.s, x.rows, x.c, p);
    if (!FIRST) {
        wgmma_wait<0>();
        warpgroup_fence_operand(x.o);
        release(kv.v_empty, x.v_at);
        if (C::SUMS > 0 && n % (C::SUMS > 0 ? C::SUMS : 1) == 0) flush(x, sm, w, n == C::SUMS);
    }
    if (!FIRST && may_be_too_large<C>(x.rows, l)) weigh_again(x, sm, n, l, p);
#pragma unroll
    for (int i = 0; i < C::WEIGHTS; i++) x.p[i] = copied(p[i]);
    warpgroup_fence_operand(x.o);
    warpgroup_fence_operand(x.p);
}

/* The output of the last block. */
template <class C>
static __device__ __forceinline__ void last_pv8(consumer8<C> &x, kv_pipeline<C> &kv)
{
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    wgmma_fence();
    issue_pv8<C>(x.o, x.p, kv.v[x.v_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.o);
    release(kv.v_empty, x.v_at);
}
