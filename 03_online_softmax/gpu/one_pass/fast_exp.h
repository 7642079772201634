/* fast_exp.h: exp(x - m) of many x and one m, with two instructions for each x.
 *
 *     exp(x - m) = 2^(x log2(e) - M),   M = m log2(e)
 *
 * The multiplication and the subtraction are one instruction, and M is computed once.  But M is
 * rounded, so every power of this m is 2^(m log2(e) - M) times too large.  A sum of such powers
 * has the same factor; `unscaled` removes it from the sum.
 *
 * The factor stays below 2^65 while |m| <= 2^30.  Beyond that, neighbouring floats are at least
 * 128 apart, so exp(x - m) is 1 or smaller than any float.  2^(x - m) is the same: there the
 * factor of x is 1 instead of log2(e). */
#pragma once

#include "gpu/exp2.h"
#include "gpu/state.h"

/* The powers of one m: 2^(x * unit - shift). */
struct powers { float unit, shift; };

static __device__ inline struct powers powers_of(float m)
{
    const float limit = 1 << 30;
    struct powers p;
    p.unit = fabsf(m) > limit ? 1.0f : LOG2E;
    p.shift = m * p.unit;
    return p;
}

static __device__ inline float power(struct powers p, float x)
{
    return exp2_fast(fmaf(x, p.unit, -p.shift));
}

/* What a sum of powers of m (or 1, for one power) has to be multiplied by. */
static __device__ inline float unscaled(struct powers p, float m)
{
    return exp2_fast(-fmaf(m, p.unit, -p.shift));
}

/* A state (m, l) whose l is a sum of powers of m.  Empty: shift = -INFINITY. */
struct power_sum { float m, l; struct powers of; };

static __device__ inline struct power_sum empty_sum(void)
{
    return (struct power_sum){-INFINITY, 0.0f, {LOG2E, -INFINITY}};
}

/* Takes the elements of N packs: one comparison for all of them, and a rescale only when the maximum
 * rises.  Four sums at a time, so that additions do not wait for each other.  When m passes the limit
 * of powers_of(), it rises by at least 128, and nothing is left of the sum so far. */
template <class T, int W, int N>
static __device__ inline void push(struct power_sum *s, const struct packed<T, W> (&x)[N])
{
    float m_new = pack_max(x[0]);
    for (int k = 1; k < N; k++) m_new = fmaxf(m_new, pack_max(x[k]));
    if (m_new > s->m) {
        const struct powers now = powers_of(m_new);
        s->l *= now.unit == s->of.unit ? exp2_fast(s->of.shift - now.shift) : 0.0f;
        s->m = m_new;
        s->of = now;
    }
    const struct powers p = {s->of.unit, s->m == -INFINITY ? 0.0f : s->of.shift};
    float sum[4] = {s->l, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < N; k++)
        for (int e = 0; e < W; e++) sum[e % 4] += power(p, (float)x[k].e[e]);
    s->l = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static __device__ inline struct state state_of(struct power_sum s)
{
    struct state all = {s.m, s.l};
    if (s.m != -INFINITY) all.l *= unscaled(s.of, s.m);
    return all;
}

/* From the state of a row to its results: softmax is power(p, x) * scale, logsoftmax x - shift -
 * log_l.  A row that is all -inf gives 0, or -inf. */
struct division { struct powers p; float scale, shift, log_l; int log; };

static __device__ inline struct division division_of(struct state s, int log)
{
    const struct normaliser f = normaliser_of(s, log);
    struct division d;
    d.p = powers_of(f.shift);
    d.scale = f.scale * unscaled(d.p, f.shift);
    d.shift = f.shift;
    d.log_l = f.log_l;
    d.log = log;
    return d;
}

static __device__ inline float divided(const struct division &d, float x)
{
    return d.log ? x - d.shift - d.log_l : power(d.p, x) * d.scale;
}

/* *y = the results of the pack x. */
template <class T, int W>
static __device__ inline void divide(struct packed<T, W> *y, const struct packed<T, W> &x,
                                     const struct division &d)
{
    float v[W];
    for (int e = 0; e < W; e++) v[e] = divided(d, (float)x.e[e]);
    store(y, v);
}
