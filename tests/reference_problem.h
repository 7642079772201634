/* reference_problem.h: problems for the tests of the reference, and when a result is right. */
#ifndef REFERENCE_PROBLEM_H
#define REFERENCE_PROBLEM_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "oracle.h"
#include "problem/half.h"
#include "verification/cases.h"
#include "verification/reference.h"

static inline struct problem heads_problem(const size_t s[7])
{
    return (struct problem){.op = OP_ATTENTION, .batch = s[0], .heads_q = s[1], .heads_kv = s[2],
                            .seqlen_q = s[3], .seqlen_k = s[4], .head_dim = s[5], .head_dim_v = s[6],
                            .scale = 1 / sqrtf((float)s[5])};
}
#define HEADS(...) heads_problem((const size_t[7]){__VA_ARGS__})

/* got is want up to a few roundings of double, the same infinity, or NaN as want is. */
static inline int near(double got, double want)
{
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= 1e-14 * (1 + fabs(want));
}

#endif
