/* score_terms.h: what a model adds to the scores: a soft cap, a bias, a sink.
 *
 *     x = c tanh(s / c)        soft cap c (Gemma 2, 2024), s the scaled product
 *     x = x + bias[i, j]
 *     l = l + exp(sink)        a key without a value, for each head (gpt-oss, 2025)
 *
 * log2(weight) = unit score; the unit is 1 where scores change anyway, and there is no bias. */
#ifndef HOPPER_SCORE_TERMS_H
#define HOPPER_SCORE_TERMS_H

#include "merge_weights.h"
#include "store.h"

#define LOG2E 1.44269504f

struct score_terms {
    float unit;                  /* of scores without a cap: scale, and without a bias log2(e) */
    float cap, to_cap;           /* the cap in that unit, to_cap: 2 scale log2(e) / cap */
    float near, series[6];       /* tanh near 0: see cap_scores() */
    const float *bias;
    struct strides bias_strides; /* from batch to batch, head to head, query to query */
    int seqlen_k;                /* columns of the bias */
    int pairs;          /* two neighbours of the bias can be loaded as one */
    const float *sinks; /* [heads_q] or NULL */
};

/* What a score is multiplied by to be the logarithm of a weight to base 2.  With a bias scores are
 * what they are, so that the least float, a usual mask, stays finite. */
template <class C> static __device__ __forceinline__ float score_unit(const score_terms &t)
{
    return C::BIAS ? LOG2E : C::SOFTCAP ? 1.0f : t.unit;
}

/* 16 products s become cap tanh(scale s / c), c the soft cap, cap = c in the scores' unit.
 *
 *     near 0, |scale s| <= c   s times a polynomial in s^2 with a relative error of 2^-20.  Nearly
 *                              all scores are, and the multiply-add units have time for it
 *     else                     tanh(x) = 1 - 2 / (1 + e^(2 x)) with an error of 2^-22 of the cap,
 *                              twice more in the exponential unit, which has none
 *
 * The instruction tanh.approx errs by 2^-11.  e^(2 x) = inf gives 1, and NaN stays NaN. */
template <bool HAS_SERIES>
static __device__ __forceinline__ void cap_16_scores(float *s, const score_terms &t)
{
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; i++) largest = fmaxf(largest, fabsf(s[i]));
    if (!HAS_SERIES || __any_sync(0xffffffffu, largest > t.near)) {
#pragma unroll
        for (int i = 0; i < 16; i++)
            s[i] = fmaf(-2.0f * t.cap, reciprocal_fast(1.0f + exp2_fast(s[i] * t.to_cap)), t.cap);
    } else {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float square = s[i] * s[i], sum = t.series[5];
#pragma unroll
            for (int k = 4; k >= 0; k--) sum = fmaf(sum, square, t.series[k]);
            s[i] *= sum;
        }
    }
}

/* By 16: the assembler works on all scores between two branches at once, and lacks registers for
 * more.  At d = 256 the exponential unit has time, and the series is slower. */
template <class C, int N>
static __device__ __forceinline__ void cap_scores(float (&s)[N], const score_terms &t)
{
#pragma unroll
    for (int i = 0; i < N; i += 16) cap_16_scores<C::D <= 128>(s + i, t);
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
    const float unit = C::SOFTCAP ? 1.0f : t.unit;
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
            s[i] = two.x == -INFINITY ? two.x : fmaf(s[i], unit, two.x);
            s[i + 1] = two.y == -INFINITY ? two.y : fmaf(s[i + 1], unit, two.y);
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
    t.unit = p->has_bias ? p->scale : p->scale * LOG2E;
    if (p->softcap > 0.0f) {
        /* tanh(x) / x in x^2, the least relative error for |x| <= 1 */
        static const double tanh_series[6] = {0.999999414,   -0.333290424, 0.13281434,
                                              -0.0516056761, 0.016743116,  -0.00306706023};
        const double to_x = (double)p->scale / (double)p->softcap;
        for (int k = 0; k < 6; k++) t.series[k] = t.unit * tanh_series[k] * pow(to_x, 2 * k);
        t.near = fmin(1.0 / to_x, 0x1p60); /* its square is finite */
        if (!isfinite(t.series[5])) t.near = -1.0f; /* a tiny cap: no score is near 0 */
        t.cap = p->has_bias ? p->softcap : p->softcap * LOG2E;
        t.to_cap = fmin(2.0 * LOG2E * to_x, 0x1p127); /* finite: 0 stays 0 */
    }
    if (p->has_bias) t.bias = a->bias;
    t.seqlen_k = (int)p->seqlen_k;
    t.bias_strides = p->has_bias_strides ? p->bias_strides : strides{0, 0, p->seqlen_k};
    t.pairs = (t.bias_strides.batch | t.bias_strides.head | t.bias_strides.row) % 2 == 0 &&
              (uintptr_t)a->bias % 8 == 0;
    if (p->has_sinks) t.sinks = a->sinks;
    return t;
}

#endif
