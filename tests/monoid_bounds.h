/* monoid_bounds.h: the letters of the bounds that notes/numerics.md proves.
 *
 * u = 2^-24, kappa the error of expf in units of u, d_mean = sum_j p_j (m - x_j),
 * R how often the maximum rises, D the additions on the longest path of a sum. */
#ifndef MONOID_BOUNDS_H
#define MONOID_BOUNDS_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../04_monoid_tiled_cpu/monoid.h"
#include "problem/random.h"

#define U 0x1p-24
#define KAPPA 1.1 /* the C library's expf, tested here on every score that is used */
enum { DV = 5 };

static inline int same_bits(const void *x, const void *y, size_t n)
{
    return memcmp(x, y, n * sizeof(float)) == 0;
}

#endif
