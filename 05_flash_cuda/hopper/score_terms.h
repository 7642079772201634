/* score_terms.h: what a model adds to the scores: a soft cap, a bias, a sink.
 *
 *     x = c tanh(s / c)        soft cap c (Gemma 2, 2024), s the scaled product
 *     x = x + bias[i, j]
 *     l = l + exp(sink)        a key without a value, for each head (gpt-oss, 2025)
 *
 * Scores stay in a unit of their own: log2(weight) = unit score + offset. */
#ifndef HOPPER_SCORE_TERMS_H
#define HOPPER_SCORE_TERMS_H

#include "merge_weights.h"
#include "store.h"

#define LOG2E 1.44269504f

struct score_terms {
    float c;           /* scale log2(e): log2 of the weight of a product, if nothing is added */
    float scale, cap, to_cap; /* to_cap: 2 scale log2(e) / cap */
    const float *bias;
    struct strides bias_strides; /* from batch to batch, head to head, query to query */
    int seqlen_k;                /* columns of the bias */
    int pairs;         /* two neighbours of the bias can be loaded as one */
    const float *sinks; /* [heads_q] or NULL */
};

/* The unit of the scores, and their offset.  With a bias they are what they are, so that the
 * least float, a usual mask, stays finite. */
template <class C> static __device__ __forceinline__ float score_unit(const score_terms &t)
{
    return C::BIAS ? LOG2E : C::SOFTCAP ? 2.0f * LOG2E * t.cap : t.c;
}

template <class C> static __device__ __forceinline__ float score_offset(const score_terms &t)
{
    return C::SOFTCAP && !C::BIAS ? LOG2E * t.cap : 0.0f;
}

/* tanh(x) = 1 - 2 r, r = 1 / (1 + e^(2 x)).  A score becomes -r: the 1 is in the offset, the 2
 * in the unit.  The error of r is 2^-23, so that of a score is 2^-22 of the soft cap, where
 * tanh.approx would have 2^-11.  e^(2 x) = inf gives r = 0, and NaN stays NaN. */
template <int N>
static __device__ __forceinline__ void cap_scores(float (&s)[N], const score_terms &t)
{
#pragma unroll
    for (int i = 0; i < N; i++) s[i] = -reciprocal_fast(1.0f + exp2_fast(s[i] * t.to_cap));
}

/* The bias of a work tile's head, from query 0 on. */
static __device__ __forceinline__ const float *bias_of_head(const score_terms &t,
                                                            const struct work_tile &tile)
{
    return t.bias + tile.batch * t.bias_strides.batch + tile.head * t.bias_strides.head;
}

/* Two neighbours of the bias.  Volatile: ptxas would issue the loads of a whole block ahead of
 * the first use, and spill what it then lacks. */
static __device__ __forceinline__ float2 load_pair(const float *p)
{
#ifdef __CUDACC__
    float2 x;
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(p));
    return x;
#else
    return *(const float2 *)p;
#endif
}

/* Adds the bias of query `row` and row + 8 and of key block n; `bias` is that of query 0.
 *   all  every key of the block exists: else a key beyond the last gets any number of the row,
 *        and is masked afterwards */
template <class C>
static __device__ __forceinline__ void add_bias(float (&s)[C::Bc / 2], const score_terms &t,
                                                const float *bias, int row, int seqlen_q, int n,
                                                bool all)
{
    asm("" : "+r"(row), "+r"(n)); /* addresses are computed here, not kept in registers */
    const float scale = C::SOFTCAP ? 2.0f * t.cap : t.scale, shift = C::SOFTCAP ? t.cap : 0.0f;
    const int first = n * C::Bc + 2 * (threadIdx.x % 4), last = t.seqlen_k - 1 - first;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float *b =
            bias + (ptrdiff_t)min(row + 8 * r, seqlen_q - 1) * (ptrdiff_t)t.bias_strides.row + first;
#pragma unroll
        for (int i = 2 * r; i < C::Bc / 2; i += 4) {
            float2 two;
            if (all && t.pairs) two = load_pair(b + 2 * (i - 2 * r));
            else two = make_float2(b[min(2 * (i - 2 * r), last)],
                                   b[min(2 * (i - 2 * r) + 1, last)]);
            s[i] = two.x == -INFINITY ? two.x : fmaf(s[i], scale, two.x + shift);
            s[i + 1] = two.y == -INFINITY ? two.y : fmaf(s[i + 1], scale, two.y + shift);
        }
    }
}

/* Far from 0 the rounding of m unit alone would make 2^0 overflow or vanish (a finite mask of
 * -1e30 in all of a row): there m is subtracted from the scores.  Returns the rows with the mc that
 * the exponentials then take. */
template <int N>
static __device__ __forceinline__ struct rows subtract_large(float (&s)[N], struct rows r)
{
    const bool large = fmaxf(fabsf(r.mc[0]), fabsf(r.mc[1])) > 0x1p20f;
    if (!__any_sync(0xffffffffu, large)) return r;
#pragma unroll
    for (int i = 0; i < N; i++) s[i] -= r.m[i / 2 % 2] == -INFINITY ? 0.0f : r.m[i / 2 % 2];
    r.mc[0] = r.mc[1] = 0.0f;
    return r;
}

/* ---- the host's side ---- */

static struct score_terms score_terms_of(const struct problem *p, const struct arrays *a)
{
    struct score_terms t = {};
    t.c = p->scale * LOG2E;
    t.scale = p->scale;
    t.cap = p->softcap;
    if (p->softcap > 0.0f) t.to_cap = 2.0f * t.c / t.cap;
    if (p->has_bias) t.bias = a->bias;
    t.seqlen_k = (int)p->seqlen_k;
    t.bias_strides = p->has_bias_strides ? p->bias_strides : strides{0, 0, p->seqlen_k};
    t.pairs = (t.bias_strides.batch | t.bias_strides.head | t.bias_strides.row) % 2 == 0 &&
              (uintptr_t)a->bias % 8 == 0;
    if (p->has_sinks) t.sinks = a->sinks;
    return t;
}

#endif
