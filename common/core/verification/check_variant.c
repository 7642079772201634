/* check_variant.c: one variant on one case. */
#include "verification/check_variant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "problem/execute.h"
#include "problem/variant.h"
#include "verification/compare.h"

struct prepared prepare(const struct test_case *c, enum dtype dtype, uint64_t seed)
{
    struct prepared p = {.test_case = c, .seed = seed};
    p.inputs = inputs_new(c, dtype, seed);
    p.standard = standard_new(&p.inputs->problem, &p.inputs->arrays);
    return p;
}

void prepared_free(struct prepared *p)
{
    inputs_free(p->inputs);
    standard_free(p->standard);
    memset(p, 0, sizeof *p);
}

const char *not_promised(const struct variant *v, const struct prepared *p)
{
    static char text[64];
    const struct standard *s = p->standard;
    if (isfinite(v->max_score) && !(s->max_score <= v->max_score)) {
        snprintf(text, sizeof text, "scores up to %.4g", s->max_score);
        return text;
    }
    if (v->max_keys && s->problem.seqlen_k > v->max_keys) return "that many keys";
    if (s->empty_rows && !v->masked_rows) return "a fully masked row";
    if (!s->v_is_finite && !v->isolates_v) return "NaN or inf in v";
    return NULL;
}

/* A number that changes when an input does. */
static uint64_t fingerprint(const struct inputs *in)
{
    uint64_t hash = 0;
    for (int i = 0; i < N_ARRAYS; i++) {
        const char *array = array_start(&in->problem, &in->arrays, i);
        size_t bytes = array ? array_bytes(&in->problem, i) : 0;
        if (array_role(&in->problem, i) != INPUT) continue;
        for (size_t k = 0; k < bytes; k += 2) {
            uint16_t word = 0;
            memcpy(&word, array + k, k + 1 < bytes ? 2 : 1);
            hash = hash * 0x100000001b3u + word + 1;
        }
    }
    return hash;
}

struct verdict check_variant(const struct variant *v, const struct prepared *p,
                             int repeat, const char **could_not)
{
    const struct problem *problem = &p->inputs->problem;
    struct outputs out = outputs_new(problem), again = {0};
    struct arrays a = p->inputs->arrays;
    uint64_t before = fingerprint(p->inputs);
    struct verdict verdict = {0};
    outputs_bind(&out, &a);
    *could_not = execution_once(v, problem, &a);
    if (!*could_not) verdict = compare(p->standard, &out);
    if (!*could_not && verdict.ok && repeat) {
        again = outputs_new(problem);
        outputs_bind(&again, &a);
        *could_not = execution_once(v, problem, &a);
        if (!*could_not && !outputs_equal(&out, &again)) {
            verdict.ok = 0;
            verdict.reason = "a second run gives other bits";
        }
    }
    if (verdict.ok && fingerprint(p->inputs) != before) {
        verdict.ok = 0;
        verdict.reason = "an input was overwritten";
    }
    outputs_free(&out);
    outputs_free(&again);
    return verdict;
}
