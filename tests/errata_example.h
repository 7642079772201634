/* errata_example.h: the example on which a printed formula gives a wrong answer and the right
 * form the exact one.  The algebra is done in double, so that a difference is the formula's and
 * not rounding; where overflow is the matter, in float. */
#ifndef ERRATA_EXAMPLE_H
#define ERRATA_EXAMPLE_H

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "../04_monoid_tiled_cpu/monoid.h"
#include "problem/half.h"

enum { N = 6, HALF = 3, DV = 2 };

/* Scores whose maximum lies in the second half and rises in each, values without
 * symmetry. */
static const double s[N] = {0.3, -1.1, 0.9, 1.4, 0.2, 2.6};
static const double v[N][DV] = {{1, -2}, {0.5, 3}, {-1, 0.25},
                                {2, 2},  {4, -1},  {-3, 1.5}};

#define CLOSE 1e-12 /* rounding of a dozen double operations */
#define FAR 1e-3    /* what a wrong formula must miss by */

static inline void right(double got, double want)
{
    cr_assert(fabs(got - want) <= CLOSE, "the right form gives %.15g, want %.15g", got,
              want);
}

static inline void wrong(double got, double want)
{
    cr_assert(!(fabs(got - want) <= FAR),
              "the printed form gives %.15g, as it should not", got);
}

static inline double maximum(int first, int last)
{
    double m = -INFINITY;
    for (int j = first; j < last; j++) m = fmax(m, s[j]);
    return m;
}

/* sum_{j = first}^{last - 1} e^{s_j - m} v_jc; c = -1: of ones. */
static inline double sum(int first, int last, double m, int c)
{
    double total = 0;
    for (int j = first; j < last; j++) total += exp(s[j] - m) * (c < 0 ? 1 : v[j][c]);
    return total;
}

static inline double exact_lse(int first, int last)
{
    return log(sum(first, last, 0, -1));
}

static inline double exact_attention(int c)
{
    return sum(0, N, 0, c) / sum(0, N, 0, -1);
}

static inline double exact_log_attention(int c)
{
    double total = 0;
    for (int j = 0; j < N; j++) total += (s[j] - exact_lse(0, N)) * v[j][c];
    return total;
}

#endif
