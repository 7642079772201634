/* reference_sum.h: compensated sums, and the constants of the proved error bounds.
 *
 * Letters as in notes: u = 2^-24, m the maximum, d_j = m - x_j, p_j the exact softmax,
 * d_mean = sum_j p_j d_j (at most ln n, because it is at most the entropy of p), kappa
 * the relative error of exp in units of u (1 ulp is 2), D additions on the longest path
 * of a sum, R rescalings of what an element contributes.
 *
 * The bounds hold for any order of the keys and any tree of merges:
 *   D <= n - 1   adding an exact zero does not round, so padding does not count
 *   R <= n - 1   each rescaling by a factor other than 1 needs a larger score, and the
 *                roundings of the arguments m_t - m_(t-1) telescope to that of d_j */
#ifndef REFERENCE_SUM_H
#define REFERENCE_SUM_H

#include <math.h>
#include <stddef.h>
#include "verification/reference.h"

/* Any variant: an exp good to 2 ulp; its argument carries the subtraction, and (base 2,
 * or a fast exp of the GPU) the product with log2 e, the rounding of log2 e and of the
 * reduced argument: at most 4 d_j u in all. */
#define KAPPA 4.1
#define ARGUMENT 4.0

/* What flushing to zero below the least normal float costs: once for the exponential,
 * once for its quotient. */
#define FLUSH 0x1p-125

/* a + b rounded; what the rounding lost is added to *low (Knuth; no branch, so that loops
 * over it vectorise). */
static inline double two_sum(double a, double b, double *low)
{
    double s = a + b, b_part = s - a;
    *low += (a - (s - b_part)) + (b - b_part);
    return s;
}

/* Neumaier's sum: right to about one rounding of double, whatever the order. */
struct sum { double high, low; };

static inline void sum_add(struct sum *s, double x)
{
    double t = s->high + x;
    s->low += fabs(s->high) >= fabs(x) ? (s->high - t) + x : (x - t) + s->high;
    s->high = t;
}

static inline double sum_value(const struct sum *s)
{
    return s->high + s->low;
}

/* exp(x) - 1 <= x (1 + x) for 0 <= x <= 1: turns a first-order relative error into a
 * rigorous one.  Beyond 1 nothing is claimed. */
static inline double rigorous(double x)
{
    return x <= 1 ? x * (1 + x) : INFINITY;
}

/* Relative errors a and b of two factors together. */
static inline double both(double a, double b)
{
    return a + b + a * b;
}

/* Roundings of n additions or rescalings: all of them, or as many as are likely to add up
 * where their signs differ (Higham and Mary 2019: with 4 sqrt(n) all but one row in 1500). */
enum luck { WORST, LIKELY };
static inline double roundings(enum luck luck, double n)
{
    double root = 4 * sqrt(n);
    return luck == LIKELY && root < n ? root : n;
}

/* Relative error of l, first order, in units of 1 (not of u).  n: unmasked elements
 * (numerics: d_mean + kappa + D + R (kappa + 1)). */
static inline double exp_sum_error(double d_mean, size_t n, enum luck luck)
{
    double D = roundings(luck, (double)n - 1), R = D;
    return ROUNDOFF * (ARGUMENT * d_mean + KAPPA + D + R * (KAPPA + 1));
}

#endif
