/* attention_problem.h: small attention problems for tests, and a variant's answer held
 * against the reference by the rule that `check` uses. */
#ifndef ATTENTION_PROBLEM_H
#define ATTENTION_PROBLEM_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "verification/compare.h"
#include "problem/random.h"
#include "harness.h"

struct shape {
    size_t batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
};

static inline struct problem problem_of(enum op op, struct shape s, int causal,
                                        int has_bias)
{
    return (struct problem){
        .op = op, .dtype = F32, .batch = s.batch, .heads_q = s.heads_q,
        .heads_kv = s.heads_kv, .seqlen_q = s.seqlen_q, .seqlen_k = s.seqlen_k,
        .head_dim = s.head_dim, .head_dim_v = s.head_dim_v, .causal = causal,
        .has_bias = has_bias, .scale = 1.0f / sqrtf((float)s.head_dim)};
}

static inline float *random_floats(struct random *r, size_t n, float spread)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = spread * random_normal(r);
    return x;
}

/* Random inputs of p.  A quarter of the bias is -INFINITY: masked keys. */
static inline struct arrays random_arrays(const struct problem *p, uint64_t seed,
                                          float spread)
{
    struct random r = {seed};
    size_t keys = p->batch * p->heads_kv * p->seqlen_k;
    size_t queries = p->batch * p->heads_q * p->seqlen_q;
    size_t new_keys = p->batch * p->heads_kv * p->n_updates;
    float *bias = random_floats(&r, p->seqlen_q * p->seqlen_k, 1.0f);
    size_t *index = malloc((p->n_updates + 1) * sizeof *index);
    for (size_t i = 0; i < p->seqlen_q * p->seqlen_k; i++)
        if (random_below(&r, 4) == 0) bias[i] = -INFINITY;
    for (size_t u = 0; u < p->n_updates; u++) index[u] = random_below(&r, p->seqlen_k);
    return (struct arrays){.q = random_floats(&r, queries * p->head_dim, spread),
                           .k = random_floats(&r, keys * p->head_dim, spread),
                           .v = random_floats(&r, keys * p->head_dim_v, 1.0f),
                           .k_new = random_floats(&r, new_keys * p->head_dim, spread),
                           .v_new = random_floats(&r, new_keys * p->head_dim_v, 1.0f),
                           .bias = bias, .index = index};
}

static inline void free_arrays(struct arrays *a)
{
    const void *owned[] = {a->q, a->k, a->v, a->k_new, a->v_new, a->bias, a->index};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free((void *)owned[i]);
}

/* Runs v on a, whose outputs are bound. */
static inline void run_variant(const struct variant *v, const struct problem *p,
                               struct arrays *a)
{
    size_t bytes = variant_scratch(v, p);
    a->workspace = aligned_alloc(1024, (bytes + 2047) / 1024 * 1024);
    variant_call(v, p, a);
    free(a->workspace);
    a->workspace = NULL;
}

/* Fails unless v's answer is accepted; returns the largest error / allowed. */
static inline double expect_accepted(const struct variant *v, const struct problem *p,
                                     struct arrays *a, const char *what)
{
    struct standard *s = standard_new(p, a);
    struct outputs out = outputs_new(p);
    outputs_bind(&out, a);
    run_variant(v, p, a);
    struct verdict verdict = compare(s, &out);
    char index[64];
    verdict_index(&verdict, index, sizeof index);
    cr_assert(verdict.ok, "%s, %s: %s%s: %s: got %.9g, want %.9g, error %g, allowed %g",
              v->name, what, verdict.array ? verdict.array : "", index, verdict.reason,
              verdict.got, verdict.want, verdict.err, verdict.allowed);
    outputs_free(&out);
    standard_free(s);
    return verdict.worst;
}

#endif
