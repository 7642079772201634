/* library_problem.h: attention problems for the C library's tests, with inputs in any of its
 * types, results by the definition (oracle.h), and memory that shows a write outside. */
#ifndef LIBRARY_PROBLEM_H
#define LIBRARY_PROBLEM_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library/five_steps.h"
#include "oracle.h"
#include "problem/half.h"

enum { CPU = FIVE_STEPS_CPU, GPU = FIVE_STEPS_GPU, N_TYPES = 3 };

/* Memory that begins at an odd multiple of 16 and is framed by what must stay. */
struct framed { char *base, *at; size_t bytes; };
enum { FRAME = 64 };

static inline struct framed framed_new(size_t bytes, size_t misalign)
{
    struct framed f = {.bytes = bytes};
    f.base = aligned_alloc(1024, (bytes + 2 * FRAME + misalign + 1023) / 1024 * 1024);
    memset(f.base, 0x5a, bytes + 2 * FRAME + misalign);
    f.at = f.base + FRAME + misalign;
    return f;
}

static inline void framed_free(struct framed f, const char *what)
{
    for (size_t i = 0; i < FRAME; i++)
        cr_assert(f.at[-1 - (ptrdiff_t)i] == 0x5a && f.at[f.bytes + i] == 0x5a,
                  "%s: written outside", what);
    free(f.base);
}

static inline size_t size_of(int type) { return type == FIVE_STEPS_F32 ? 4 : 2; }

static inline float load(int type, const void *array, size_t i)
{
    if (type == FIVE_STEPS_F32) return ((const float *)array)[i];
    uint16_t bits = ((const uint16_t *)array)[i];
    return type == FIVE_STEPS_F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

/* x (n) in the type, and x itself rounded to it. */
static inline void *converted(int type, float *x, size_t n)
{
    void *out = aligned_alloc(16, (n * size_of(type) + 31) / 16 * 16);
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = type == FIVE_STEPS_F16 ? float_to_half(x[i]) : float_to_bfloat(x[i]);
        if (type == FIVE_STEPS_F32) ((float *)out)[i] = x[i];
        else ((uint16_t *)out)[i] = bits;
        x[i] = load(type, out, i);
    }
    return out;
}

/* What the result of a 16-bit type may differ by from the definition on the same inputs. */
static inline double allowed_in(int type)
{
    return type == FIVE_STEPS_F32 ? 2e-5 : type == FIVE_STEPS_F16 ? 4e-3 : 3e-2;
}

/* An attention problem with its inputs. */
struct test {
    struct five_steps_attention_problem p;
    float *q, *k, *v, *bias;   /* as float, rounded to the type */
    size_t n_o, n_lse;
    long double *o, *lse;      /* by the definition */
};

static inline struct test test_new(int device, int type, const size_t shape[7], int causal, int bias)
{
    struct test t = {.p = {.size = sizeof t.p, .device = device, .type = type,
                           .batch = shape[0], .heads_q = shape[1], .heads_kv = shape[2],
                           .seqlen_q = shape[3], .seqlen_k = shape[4], .head_dim = shape[5],
                           .head_dim_v = shape[6], .causal = causal}};
    struct random r = {shape[3] * 1000 + shape[4]};
    size_t nq = shape[0] * shape[1] * shape[3], nk = shape[0] * shape[2] * shape[4];
    t.n_lse = nq, t.n_o = nq * shape[6];
    t.q = oracle_normals(&r, nq * shape[5], 1), t.k = oracle_normals(&r, nk * shape[5], 1);
    t.v = oracle_normals(&r, nk * shape[6], 1);
    t.p.q = converted(type, t.q, nq * shape[5]);
    t.p.k = converted(type, t.k, nk * shape[5]);
    t.p.v = converted(type, t.v, nk * shape[6]);
    if (bias) {
        t.p.bias = t.bias = oracle_normals(&r, shape[3] * shape[4], 1);
        t.bias[shape[4] / 2] = -INFINITY;
    }
    struct problem p = {.op = OP_ATTENTION, .batch = shape[0], .heads_q = shape[1],
                        .heads_kv = shape[2], .seqlen_q = shape[3], .seqlen_k = shape[4],
                        .head_dim = shape[5], .head_dim_v = shape[6], .causal = causal,
                        .has_bias = bias, .scale = 1 / sqrtf((float)shape[5])};
    t.o = malloc((t.n_o + 1) * sizeof *t.o), t.lse = malloc((t.n_lse + 1) * sizeof *t.lse);
    oracle_attention(&p, t.q, t.k, t.v, t.bias, t.o, t.lse);
    return t;
}

static inline void test_free(struct test *t)
{
    free((void *)t->p.q), free((void *)t->p.k), free((void *)t->p.v), free(t->bias);
    free(t->q), free(t->k), free(t->v), free(t->o), free(t->lse);
}

static const char *describe(const struct test *t)
{
    static char text[160];
    const struct five_steps_attention_problem *p = &t->p;
    snprintf(text, sizeof text, "%s type %d b%zu h%zu/%zu q%zu k%zu d%zu/%zu%s%s kernel %s",
             p->device == CPU ? "cpu" : "gpu", p->type, p->batch, p->heads_q, p->heads_kv,
             p->seqlen_q, p->seqlen_k, p->head_dim, p->head_dim_v, p->causal ? " causal" : "",
             p->bias ? " bias" : "", p->kernel ? p->kernel : "-");
    return text;
}

/* Runs t with a workspace of exactly the size asked for, at an odd address. */
static inline void attend(struct test *t, void *o, float *lse)
{
    struct five_steps_error error;
    size_t bytes = 0;
    t->p.o = o, t->p.lse = lse;
    int code = five_steps_attention_workspace(&t->p, &bytes, &error);
    cr_assert(code == 0 && !error.message[0], "%s: %d %s", describe(t), code, error.message);
    struct framed work = framed_new(bytes, 3);
    code = five_steps_attention(&t->p, work.at, bytes, &error);
    cr_assert(code == 0 && !error.message[0], "%s: %d %s", describe(t), code, error.message);
    framed_free(work, describe(t));
}

static inline void compare(const struct test *t, const void *o, const float *lse)
{
    double allowed = allowed_in(t->p.type);
    for (size_t i = 0; i < t->n_o; i++) {
        double got = (double)load(t->p.type, o, i), want = (double)t->o[i];
        cr_assert(fabs(got - want) <= allowed, "%s: o[%zu]: got %g, want %g", describe(t), i,
                  got, want);
    }
    for (size_t i = 0; lse && i < t->n_lse; i++) {
        double got = (double)lse[i], want = (double)t->lse[i];
        cr_assert(got == want || fabs(got - want) <= allowed, "%s: lse[%zu]: got %g, want %g",
                  describe(t), i, got, want);
    }
}

static inline void check(int device, int type, const size_t shape[7], int causal, int bias)
{
    struct test t = test_new(device, type, shape, causal, bias);
    struct framed o = framed_new(t.n_o * size_of(type), 0);
    struct framed lse = framed_new(t.n_lse * sizeof(float), 4);
    attend(&t, o.at, (float *)(void *)lse.at);
    compare(&t, o.at, (float *)(void *)lse.at);
    memset(o.at, 0x5a, o.bytes);
    attend(&t, o.at, NULL); /* nobody wants lse */
    compare(&t, o.at, NULL);
    framed_free(o, describe(&t)), framed_free(lse, describe(&t));
    test_free(&t);
}

#endif
