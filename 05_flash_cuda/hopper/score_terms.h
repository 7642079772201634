/* score_terms.h: what a model adds to the scores: a soft cap, a bias, a sink, dropout.
 *
 *     x = c tanh(s / c)        soft cap c (Gemma 2, 2024), s the scaled product
 *     x = x + bias[i, j]
 *     l = l + exp(sink)        a key without a value, for each head (gpt-oss, 2025)
 *     p = 0 or p / (1 - q)     dropout with probability q (dropout.h); l is that of all p
 *
 * log2(weight) = unit score; the unit is 1 where scores change anyway, and there is no bias.
 * Dropout takes the kernels for a bias, which have the registers. */
#pragma once

#include "drop_weights.h"
#include "merge_weights.h"
#include "store.h"

struct score_terms {
    float unit;                  /* of scores without a cap: scale, and without a bias log2(e) */
    float cap, to_cap;           /* the cap in that unit, to_cap: 2 scale log2(e) / cap */
    float far, series[6], short_series[3]; /* tanh of scores up to far, and a quarter: cap_some() */
    const float *bias;
    struct strides bias_strides; /* from batch to batch, head to head, query to query */
    int seqlen_k;                /* columns of the bias */
    int pairs;          /* two neighbours of the bias can be loaded as one */
    const float *sinks; /* [heads_q] or NULL */
    struct dropout drops;
    int heads_q;
};

/* What a score is multiplied by to be the logarithm of a weight to base 2.  With a bias scores are
 * what they are, so that the least float, a usual mask, stays finite. */
template <class C> static __device__ __forceinline__ float score_unit(const score_terms &t)
{
    return C::BIAS ? LOG2E : C::SOFTCAP ? 1.0f : t.unit;
}

/* cap tanh(scale s / c) - reference, in the scores' unit: s times a polynomial in s^2. */
template <int N>
static __device__ __forceinline__ float cap_by_series(float s, const float (&series)[N],
                                                      float reference)
{
    float square = s * s, sum = series[N - 1];
#pragma unroll
    for (int k = N - 2; k >= 0; k--) sum = fmaf(sum, square, series[k]);
    return fmaf(s, sum, -reference);
}

/* N products s become cap tanh(scale s / c), c the soft cap, less the reference of their row.  Then
 * then(): in each branch, so that the units work on both at once.
 *
 *     |scale s| <= c / 4   a short series with a relative error of 2^-20.  Nearly all scores are
 *                          so small, and the multiply-add units have time for it
 *     |scale s| <= c       a longer one
 *     else                 tanh(x) = 1 - 2 / (1 + e^(2 x)) with an error of 2^-22 of the cap,
 *                          twice more in the exponential unit, which has none
 *
 * The instruction tanh.approx errs by 2^-11.  e^(2 x) = inf gives 1, and NaN stays NaN. */
template <bool HAS_SERIES, int N, class THEN>
static __device__ __forceinline__ void cap_some(float *s, const score_terms &t,
                                                const float (&reference)[2], THEN then)
{
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) largest = fmaxf(largest, fabsf(s[i]));
    if (!HAS_SERIES || __any_sync(0xffffffffu, largest > t.far)) {
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] = fmaf(-2.0f * t.cap, reciprocal_fast(1.0f + exp2_fast(s[i] * t.to_cap)),
                        t.cap - reference[i / 2 % 2]);
        then();
    } else if (__any_sync(0xffffffffu, largest > 0.25f * t.far)) {
#pragma unroll
        for (int i = 0; i < N; i++) s[i] = cap_by_series(s[i], t.series, reference[i / 2 % 2]);
        then();
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] = cap_by_series(s[i], t.short_series, reference[i / 2 % 2]);
        then();
    }
}

/* Scores capped together: the assembler works on all of them between two branches at once, and
 * lacks registers for more. */
template <class C> constexpr int TOGETHER = C::D <= 64 && C::FIRST_BLOCK_MAX ? 32 : 16;

/* At d = 256 the exponential unit has time, and the series is slower. */
template <class C, int N>
static __device__ __forceinline__ void cap_scores(float (&s)[N], const score_terms &t)
{
    const float none[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < N; i += TOGETHER<C>)
        cap_some<C::D <= 128, TOGETHER<C>>(s + i, t, none, [] {});
}

/* Their weights, without a step between cap and exponential. */
template <class C, int N>
static __device__ __forceinline__ void capped_exponentials(float (&s)[N], struct rows &r,
                                                           const score_terms &t)
{
    struct rows less = r;
    less.mc[0] = less.mc[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += TOGETHER<C>) {
        float (&some)[TOGETHER<C>] = *(float (*)[TOGETHER<C>])(s + i);
        cap_some<true, TOGETHER<C>>(some, t, r.mc, [&] { exponentials(some, less, 1.0f); });
    }
    r.l[0] = less.l[0], r.l[1] = less.l[1];
}

/* The bias of a work tile's head, from query 0 on. */
static __device__ __forceinline__ const float *bias_of_head(const score_terms &t,
                                                            const struct work_tile &tile)
{
    return t.bias + tile.batch * t.bias_strides.batch + tile.head * t.bias_strides.head;
}

/* Drops weights of key block n; `row` is the thread's first. */
template <class C>
static __device__ __forceinline__ void drop(float (&p)[C::Bc / 2], const score_terms &t,
                                            const struct work_tile &tile, int row, int n)
{
    drop_weights<C::Bc / 2>(p, t.drops, tile.batch * t.heads_q + tile.head, row,
                            n * C::Bc + 2 * (threadIdx.x % 4));
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
    if (C::DROPS && !bias) {
#pragma unroll
        for (int i = 0; i < C::Bc / 2; i++) s[i] *= unit;
        return;
    }
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

/* Does it take a kernel for a bias? */
static bool takes_bias(const struct problem *p) { return p->has_bias || p->dropout > 0.0f; }

static struct score_terms score_terms_of(const struct problem *p, const struct arrays *a)
{
    struct score_terms t = {};
    t.unit = takes_bias(p) ? p->scale : p->scale * LOG2E;
    t.drops = dropout_of(p);
    t.heads_q = (int)p->heads_q;
    if (p->softcap > 0.0f) {
        /* tanh(x) / x in x^2, the least relative error for |x| <= 1, and for |x| <= 1/4 */
        static const double tanh_series[6] = {0.999999414,   -0.333290424, 0.13281434,
                                              -0.0516056761, 0.016743116,  -0.00306706023};
        static const double short_series[3] = {0.999999604, -0.333219082, 0.128416134};
        const double to_x = (double)p->scale / (double)p->softcap;
        for (int k = 0; k < 6; k++) t.series[k] = t.unit * tanh_series[k] * pow(to_x, 2 * k);
        for (int k = 0; k < 3; k++)
            t.short_series[k] = t.unit * short_series[k] * pow(to_x, 2 * k);
        t.far = fmin(1.0 / to_x, 0x1p60); /* its square is finite */
        if (!isfinite(t.series[5])) t.far = -1.0f; /* a tiny cap: all scores are beyond it */
        t.cap = takes_bias(p) ? p->softcap : p->softcap * LOG2E;
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
