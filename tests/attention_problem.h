/* attention_problem.h: problems of the tests' own, with the inputs that a recipe of `check` makes
 * of them, and a variant's answer judged as `check` does. */
#pragma once

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "problem/random.h"
#include "verification/check_variant.h"

struct shape {
    size_t batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
};

static inline struct problem problem_of(enum op op, struct shape s, int causal, int has_bias)
{
    return (struct problem){
        .op = op, .batch = s.batch, .heads_q = s.heads_q, .heads_kv = s.heads_kv,
        .seqlen_q = s.seqlen_q, .seqlen_k = s.seqlen_k, .head_dim = s.head_dim,
        .head_dim_v = s.head_dim_v, .causal = causal, .has_bias = has_bias,
        .scale = 1.0f / sqrtf((float)s.head_dim)};
}

static inline struct problem rows_of(enum op op, size_t rows, size_t cols)
{
    return (struct problem){.op = op, .rows = rows, .cols = cols};
}

static inline struct inputs *inputs_of(struct problem p, enum recipe recipe, enum dtype dtype)
{
    return inputs_new(&(struct test_case){.problem = p, .recipe = recipe}, dtype, 1);
}

/* got is want up to a few roundings of double, the same infinity, or NaN as want is. */
static inline int near(double got, double want)
{
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= 1e-14 * (1 + fabs(want));
}

/* Runs v on a, whose outputs are bound. */
static inline void run_variant(const struct variant *v, const struct problem *p, struct arrays *a)
{
    size_t bytes = variant_scratch(v, p);
    a->workspace = aligned_alloc(1024, (bytes + 2047) / 1024 * 1024);
    variant_call(v, p, a);
    free(a->workspace);
    a->workspace = NULL;
}

/* Fails unless v's answer is accepted. */
static inline void judge(const struct variant *v, struct inputs *in)
{
    const struct problem *p = &in->problem;
    struct prepared prepared = {.inputs = in, .standard = standard_new(p, &in->arrays)};
    const char *could_not = NULL;
    struct verdict verdict = check_variant(v, &prepared, 0, &could_not);
    char index[64];
    verdict_index(&verdict, index, sizeof index);
    cr_expect(verdict.ok && !could_not, "%s: rows %zu, cols %zu, queries %zu, keys %zu: %s%s: got "
              "%.9g, want %.9g, allowed %g", v->name, p->rows, p->cols, p->seqlen_q, p->seqlen_k,
              verdict.reason, index, verdict.got, verdict.want, verdict.allowed);
    standard_free(prepared.standard);
}
