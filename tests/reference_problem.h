/* reference_problem.h: problems for the tests of the reference, and when a result is right. */
#ifndef REFERENCE_PROBLEM_H
#define REFERENCE_PROBLEM_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include "verification/cases.h"
#include "verification/compare.h"
#include "problem/half.h"
#include "oracle.h"
#include "verification/reference.h"
#include "problem/variant.h"

static inline struct problem rows_problem(enum op op, size_t rows, size_t cols)
{
    return (struct problem){.op = op, .rows = rows, .cols = cols};
}

static inline struct problem heads_problem(size_t b, size_t hq, size_t hkv, size_t nq, size_t nk,
                                    size_t d, size_t dv)
{
    return (struct problem){.op = OP_ATTENTION,
                            .batch = b,
                            .heads_q = hq,
                            .heads_kv = hkv,
                            .seqlen_q = nq,
                            .seqlen_k = nk,
                            .head_dim = d,
                            .head_dim_v = dv,
                            .scale = 1 / sqrtf((float)d)};
}

/* got is want up to a few roundings of double. */
#define NEAR(got, want, ...)                                                             \
    cr_expect(fabs((double)((got) - (want))) <= 1e-14 * (1 + fabs((double)(want))),      \
              __VA_ARGS__)

#endif
