/* monoid.h: partial results of attention and how two are merged.  Included by stage 4 (C) and by
 * the kernels of stage 5 (CUDA).
 *
 *     (o1, l1, m1) . (o2, l2, m2) = (f1 o1 + f2 o2, f1 l1 + f2 l2, m)
 *     m = max(m1, m2),   f1 = e^(m1 - m),   f2 = e^(m2 - m);      unit (0, 0, -INFINITY)
 *
 * "Computing Attention via Monoid Aggregates" (there SE(R^d) x SE(R)).  The triple stands for the
 * sums e^m o and e^m l over some keys, and merging adds such sums; m only keeps exp small.
 *
 * Kept by every function here:
 *   - m = -INFINITY if and only if there is no visible key (then l = 0, o = 0): the unit;
 *   - else l >= 1, because the term of the largest score is exp(0) = 1;
 *   - NaN, once in l, stays; NaN in a column of o stays in that column.
 * The laws hold bit for bit for the unit, and up to rounding for the rest (notes/numerics.md;
 * tests/test_monoid.c). */
#pragma once

#include <math.h>
#include <stddef.h>

/* A function of the host, and in CUDA also of the device. */
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#elif !defined(HOST_DEVICE)
#define HOST_DEVICE
#endif

/* Kernels for speed add at most so many keys one after the other, from a multiple of it on,
 * and merge the results: the longer a chain of additions, the larger its error. */
#define CHAIN_KEYS 4096

/* The partial result of some keys: m the largest of their scores, l = sum exp(s - m),
 * o (d) = sum exp(s - m) v, in memory of the caller. */
struct aggregate { float m, l; float *o; size_t d; };

/* x = the unit: no key. */
static inline HOST_DEVICE void aggregate_unit(struct aggregate *x)
{
    x->m = -INFINITY;
    x->l = 0;
    for (size_t d = 0; d < x->d; d++) x->o[d] = 0;
}

/* x = x . (v, 1, s), one key more: the step of stage 3, which merges with a single key.  A masked
 * key (s = -INFINITY) is the unit, and its v (d) is not read.  Returns the correction of the old
 * l and o. */
static inline HOST_DEVICE float aggregate_push(struct aggregate *x, float s, const float *v)
{
    if (s == -INFINITY) return 1;
    float m_new = x->m > s ? x->m : s, correction = expf(x->m - m_new), weight = expf(s - m_new);
    x->l = x->l * correction + weight;
    for (size_t d = 0; d < x->d; d++) x->o[d] = x->o[d] * correction + weight * v[d];
    x->m = m_new;
    return correction;
}

/* What sums with maximum m are multiplied by when the maximum becomes m_new >= m.  Exactly 1 when
 * it stays: no correction may change a bit then, and inf - inf does not arise. */
static inline HOST_DEVICE float se_factor(float m, float m_new)
{
    return m == m_new ? 1.0f : expf(m - m_new);
}

/* x = x . y.  Both have the same d.  Merging with the unit computes nothing: not a bit may
 * change, and 0 times an infinity would be NaN. */
static inline HOST_DEVICE void aggregate_merge(struct aggregate *x, const struct aggregate *y)
{
    if (y->m == -INFINITY) return;
    if (x->m == -INFINITY) {
        x->m = y->m;
        x->l = y->l;
        for (size_t d = 0; d < x->d; d++) x->o[d] = y->o[d];
        return;
    }
    float m_new = x->m > y->m ? x->m : y->m;
    float f_x = se_factor(x->m, m_new), f_y = se_factor(y->m, m_new);
    x->l = x->l * f_x + y->l * f_y;
    for (size_t d = 0; d < x->d; d++) x->o[d] = x->o[d] * f_x + y->o[d] * f_y;
    x->m = m_new;
}

/* o (d) = x.o / x.l, the attention of the keys of x, and lse; o may be x->o.  The unit gives
 * o = 0, lse = -INFINITY. */
static inline HOST_DEVICE void aggregate_finish(const struct aggregate *x, float *o, float *lse)
{
    for (size_t d = 0; d < x->d; d++) o[d] = x->l == 0 ? 0 : x->o[d] / x->l;
    *lse = x->m + logf(x->l);
}

/* The same without o: the denominator of some scores, an element of SE(R). */
struct se { float m, l; };

static inline HOST_DEVICE struct se se_unit(void)
{
    struct se x;
    x.m = -INFINITY;
    x.l = 0.0f;
    return x;
}

/* One score.  A masked one is the unit; that of +INFINITY or NaN has l = NaN, as
 * exp(score - score) would be. */
static inline HOST_DEVICE struct se se_lift(float score)
{
    if (score == -INFINITY) return se_unit();
    struct se x;
    x.m = score;
    x.l = score < INFINITY ? 1.0f : NAN;
    return x;
}

/* x . y */
static inline HOST_DEVICE struct se se_merge(struct se x, struct se y)
{
    if (x.m == -INFINITY) return y;
    if (y.m == -INFINITY) return x;
    struct se z;
    z.m = x.m > y.m ? x.m : y.m;
    z.l = x.l * se_factor(x.m, z.m) + y.l * se_factor(y.m, z.m);
    return z;
}

/* log sum exp(score); -INFINITY for the unit. */
static inline HOST_DEVICE float se_lse(struct se x) { return x.m + logf(x.l); }

/* value / l; 0 for the unit, the answer of a row without visible keys. */
static inline HOST_DEVICE float se_divide(struct se x, float value)
{
    return x.l == 0.0f ? 0.0f : value / x.l;
}
