/* monoid.h: the SE monoid, included by stage 4 (C) and by the kernels of stage 5 (CUDA).
 *
 *     SE(V) = V x (R + {-inf}),   unit (0, -inf),
 *     (v1, m1) . (v2, m2) = (exp(m1 - m) v1 + exp(m2 - m) v2, m),   m = max(m1, m2)
 *
 * "Computing Attention via Monoid Aggregates".  The pair (v, m) stands for the number
 * exp(m) v, and the operation is the addition of such numbers; m only keeps exp small.
 * `struct se` is an element of SE(R), the denominator; `struct aggregate` is one of the
 * product SE(R^d) x SE(R), output and denominator with their common m.
 *
 * Kept by every function here:
 *   - m = -INFINITY if and only if the element is the unit (l = 0, o = 0);
 *   - else l >= 1, because the term of the largest score is exp(0) = 1;
 *   - NaN, once in l, stays; NaN in a column of o stays in that column.
 * The laws hold bit for bit for the unit, and up to rounding for the rest; the bounds are
 * proved in notes/numerics.md; tests/test_monoid.c has the laws. */
#ifndef MONOID_H
#define MONOID_H

#include <math.h>
#include <stddef.h>

/* A function of the host, and in CUDA also of the device. */
#ifndef HOST_DEVICE
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif
#endif

/* m: largest score so far, l: sum of exp(score - m) so far. */
struct se { float m, l; };

/* The same with o (d): sum of exp(score - m) v so far, in memory of the caller. */
struct aggregate { float m, l; float *o; size_t d; };

/* What an element with maximum m is multiplied by when the maximum becomes m_new >= m.
 * Exactly 1 when the maximum stays: no rescale may change a bit then, and
 * inf - inf does not arise. */
static inline HOST_DEVICE float se_factor(float m, float m_new)
{
    return m == m_new ? 1.0f : expf(m - m_new);
}

static inline HOST_DEVICE struct se se_unit(void)
{
    struct se x;
    x.m = -INFINITY;
    x.l = 0.0f;
    return x;
}

/* One score as an element: (1, score).  A masked score (-INFINITY) is the unit.  The
 * denominator of +INFINITY or NaN is NaN, as exp(score - score) would be. */
static inline HOST_DEVICE struct se se_lift(float score)
{
    if (score == -INFINITY) return se_unit();
    struct se x;
    x.m = score;
    x.l = score < INFINITY ? 1.0f : NAN;
    return x;
}

/* x . y.  With the unit the other element is returned, not computed: not a bit of it may
 * change, and 0 times an infinity would be NaN. */
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
static inline HOST_DEVICE float se_lse(struct se x)
{
    return x.m + logf(x.l);
}

/* value / l; 0 for the unit, the answer of a row without visible keys. */
static inline HOST_DEVICE float se_divide(struct se x, float value)
{
    return x.l == 0.0f ? 0.0f : value / x.l;
}

static inline HOST_DEVICE struct se aggregate_se(const struct aggregate *x)
{
    struct se s;
    s.m = x->m;
    s.l = x->l;
    return s;
}

/* x = the unit. */
static inline HOST_DEVICE void aggregate_unit(struct aggregate *x)
{
    x->m = -INFINITY;
    x->l = 0.0f;
    for (size_t c = 0; c < x->d; c++) x->o[c] = 0.0f;
}

/* x = one key as an element: (v, 1, score).  v (d) is not read when score is -INFINITY,
 * so that what lies in a masked row does not matter. */
static inline HOST_DEVICE void aggregate_lift(struct aggregate *x, float score,
                                              const float *v)
{
    struct se s = se_lift(score);
    x->m = s.m;
    x->l = s.l;
    for (size_t c = 0; c < x->d; c++) x->o[c] = score == -INFINITY ? 0.0f : v[c];
}

/* x = x . y.  Both have the same d; x and y may be the same element. */
static inline HOST_DEVICE void aggregate_merge(struct aggregate *x,
                                               const struct aggregate *y)
{
    if (y->m == -INFINITY) return;
    if (x->m == -INFINITY) {
        x->m = y->m;
        x->l = y->l;
        for (size_t c = 0; c < x->d; c++) x->o[c] = y->o[c];
        return;
    }
    float m_new = x->m > y->m ? x->m : y->m;
    float f_x = se_factor(x->m, m_new), f_y = se_factor(y->m, m_new);
    x->l = x->l * f_x + y->l * f_y;
    for (size_t c = 0; c < x->d; c++) x->o[c] = x->o[c] * f_x + y->o[c] * f_y;
    x->m = m_new;
}

/* x = x . (v, 1, score) without storing the lifted key: the step of stage 3.  Returns the
 * factor of the old l and o: 1 when nothing was to be corrected, 0 at the first visible key. */
static inline HOST_DEVICE float aggregate_push(struct aggregate *x, float score,
                                               const float *v)
{
    if (score == -INFINITY) return 1.0f;
    if (x->m == -INFINITY) {
        aggregate_lift(x, score, v);
        return 0.0f;
    }
    float m_new = x->m > score ? x->m : score;
    float f_x = se_factor(x->m, m_new);
    float p = se_lift(score).l * se_factor(score, m_new);
    x->l = x->l * f_x + p;
    for (size_t c = 0; c < x->d; c++) x->o[c] = x->o[c] * f_x + v[c] * p;
    x->m = m_new;
    return f_x;
}

/* x = x . (0, 1, logit): a sink, an element with the weight of a key and without a value.
 * It takes part in l, so all weights of the row shrink.  A logit of -INFINITY is none. */
static inline HOST_DEVICE void aggregate_push_sink(struct aggregate *x, float logit)
{
    struct se s = aggregate_se(x), with_sink = se_merge(s, se_lift(logit));
    float f = s.m == -INFINITY ? 0.0f : se_factor(s.m, with_sink.m);
    if (logit == -INFINITY) return;
    for (size_t c = 0; c < x->d; c++) x->o[c] *= f;
    x->m = with_sink.m;
    x->l = with_sink.l;
}

/* o (d) = x.o / x.l, the attention of the keys that x stands for, and its lse.  The unit
 * gives o = 0, lse = -INFINITY.  o may be x->o. */
static inline HOST_DEVICE void aggregate_finish(const struct aggregate *x, float *o,
                                                float *lse)
{
    struct se s = aggregate_se(x);
    for (size_t c = 0; c < x->d; c++) o[c] = se_divide(s, x->o[c]);
    *lse = se_lse(s);
}

#endif
