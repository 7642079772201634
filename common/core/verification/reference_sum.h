/* reference_sum.h: compensated sums, and the constants of the proved error bounds.
 *
 * Letters as in notes: u = 2^-24, m the maximum, d_j = m - x_j, p_j the exact softmax,
 * d_mean = sum_j p_j d_j (at most ln n, because it is at most the entropy of p), kappa
 * the relative error of exp in units of u (1 ulp is 2), D additions on the longest path
 * of a sum, R rescalings of what an element contributes.
 *
 * The one theorem (notes/numerics.md, "One theorem"): what a sum may err by is
 *     LAMBDA sqrt(sum of squares)   of roundings that are independent: with n of them, each within
 *                                   its bound, more with a probability below 2 exp(-LAMBDA^2 / 2)
 *     + sum of absolute values      of those that may all point one way
 */
#pragma once

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

static inline double sum_value(const struct sum *s) { return s->high + s->low; }

/* exp(x) - 1 <= x (1 + x) for 0 <= x <= 1: turns a first-order relative error into a
 * rigorous one.  Beyond 1 nothing is claimed. */
static inline double rigorous(double x) { return x <= 1 ? x * (1 + x) : INFINITY; }

/* Relative errors a and b of two factors together. */
static inline double both(double a, double b) { return a + b + a * b; }

#define LAMBDA 4.0

/* A tensor core of sm_90 adds products of e4m3 with 13 fraction bits, not with 23. */
#define E4M3_SUM 0x1p-13

/* fmin() of numbers, without a call. */
static inline double smaller(double a, double b) { return a < b ? a : b; }

/* The roundings of a sum of n terms x (in units of u): in the order of the keys or against it, one
 * addition a term.  An addition rounds by at most u |partial sum| and by at most |term|.  Where
 * three terms in a row lie on a line, closer than the spacing of the sum's floats, their roundings
 * are alike: those count in full, the others as independent.
 *   s   (n) scores, or NULL: where one is a new maximum the partial sum is rescaled, which costs
 *       an exponential and a product
 *   more   what errs by as much as the sum's own additions: 1, or 4 for all forms of a mean */
double sum_roundings(const double *x, const double *s, size_t n, double more);

/* Relative error of l = sum p_j, p_j (n) of sum 1 with scores s, in units of 1: of its terms (key
 * error: kappa + ARGUMENT d_j) and of its additions. */
static inline double exp_sum_error(double d_mean, const double *p, const double *s, size_t n)
{
    return ROUNDOFF * (ARGUMENT * d_mean + KAPPA + sum_roundings(p, s, n, 1));
}

/* What rounding x to the type costs, in shares of x: at most its roundoff; but an x that errs by less than
 * `error` of itself, and is so near a number of the type that no other can be the nearest, costs no
 * more than its distance. */
static inline double rounding_of(enum dtype dtype, double x, double error)
{
    double h = dtypes[dtype].roundoff;
    if (h == 0 || x == 0) return 0;
    double away = fabs((double)dtype_round(dtype, (float)x) / x - 1);
    return away + error + ROUNDOFF < h / 2 ? away : h;
}

/* 4 sqrt(n), where that is less than n. */
static inline double roundings(double n) { return LAMBDA * sqrt(n) < n ? LAMBDA * sqrt(n) : n; }
