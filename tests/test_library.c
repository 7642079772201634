/* test_library.c: the C library as its callers meet it.  Expected values come from the
 * definition in long double (oracle.h).  FIVE_STEPS_GPU is the GPU's code executed on the
 * CPU here: the same kernels, the same launchers, the same checks. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "library/five_steps.h"
#include "oracle.h"
#include "problem/half.h"

TestSuite(library, .timeout = 120);

enum { CPU = FIVE_STEPS_CPU, GPU = FIVE_STEPS_GPU, N_TYPES = 3 };

/* Memory that begins at an odd multiple of 16 and is framed by what must stay. */
struct framed { char *base, *at; size_t bytes; };
enum { FRAME = 64 };

static struct framed framed_new(size_t bytes, size_t misalign)
{
    struct framed f = {.bytes = bytes};
    f.base = aligned_alloc(1024, (bytes + 2 * FRAME + misalign + 1023) / 1024 * 1024);
    memset(f.base, 0x5a, bytes + 2 * FRAME + misalign);
    f.at = f.base + FRAME + misalign;
    return f;
}

static void framed_free(struct framed f, const char *what)
{
    for (size_t i = 0; i < FRAME; i++)
        cr_assert(f.at[-1 - (ptrdiff_t)i] == 0x5a && f.at[f.bytes + i] == 0x5a,
                  "%s: written outside", what);
    free(f.base);
}

static size_t size_of(int type) { return type == FIVE_STEPS_F32 ? 4 : 2; }

static float load(int type, const void *array, size_t i)
{
    if (type == FIVE_STEPS_F32) return ((const float *)array)[i];
    uint16_t bits = ((const uint16_t *)array)[i];
    return type == FIVE_STEPS_F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

/* x (n) in the type, and x itself rounded to it. */
static void *converted(int type, float *x, size_t n)
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
static double allowed_in(int type)
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

static struct test test_new(int device, int type, const size_t shape[7], int causal, int bias)
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

static void test_free(struct test *t)
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
static void attend(struct test *t, void *o, float *lse)
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

static void compare(const struct test *t, const void *o, const float *lse)
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

static void check(int device, int type, const size_t shape[7], int causal, int bias)
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

static const size_t shapes[][7] = {
    {1, 1, 1, 1, 1, 8, 8},    {2, 4, 2, 17, 33, 16, 24}, {1, 3, 1, 70, 5, 64, 64},
    {1, 6, 6, 5, 130, 40, 8}, {2, 2, 2, 1, 200, 128, 128},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

Test(library, attention_is_the_definition_on_both_devices_in_every_type)
{
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++)
            for (int s = 0; s < N_SHAPES; s++)
                for (int mask = 0; mask < 4; mask++)
                    check(device, type, shapes[s], mask & 1, mask >> 1);
}

Test(library, odd_head_dims_find_a_kernel)
{
    const size_t shape[7] = {1, 2, 1, 9, 21, 5, 7};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++) check(device, type, shape, 1, 0);
}

/* The name of the kernel, and that it obeys. */
Test(library, kernels_are_taken_by_name)
{
    static const char *const names[2][2] = {{"tiled", "microkernel"},
                                            {"tiled", "register_tiled"}};
    const size_t shape[7] = {1, 2, 2, 33, 65, 64, 64};
    for (int device = CPU; device <= GPU; device++)
        for (int i = 0; i < 2; i++) {
            struct test t = test_new(device, FIVE_STEPS_F32, shape, 1, 0);
            struct framed o = framed_new(t.n_o * 4, 0);
            const char *name = NULL;
            double moved = 0;
            t.p.kernel = names[device][i];
            attend(&t, o.at, NULL);
            compare(&t, o.at, NULL);
            cr_assert(five_steps_attention_kernel(&t.p, &name, &moved, NULL) == 0);
            cr_assert(!strcmp(name, names[device][i]) && moved > 0, "%s, %g", name, moved);
            framed_free(o, names[device][i]);
            test_free(&t);
        }
}

Test(library, a_scale_is_obeyed_and_0_is_the_usual_one)
{
    const size_t shape[7] = {1, 1, 1, 3, 5, 16, 16};
    struct test t = test_new(CPU, FIVE_STEPS_F32, shape, 0, 0);
    _Alignas(16) float usual[48], given[48], other[48];
    attend(&t, usual, NULL);
    t.p.scale = 0.25f;
    attend(&t, given, NULL);
    t.p.scale = -1;
    attend(&t, other, NULL);
    cr_assert(!memcmp(usual, given, sizeof usual) && memcmp(usual, other, sizeof usual));
    test_free(&t);
}

/* Causal with more queries than keys, no keys at all, and problems without elements. */
Test(library, edges_are_defined)
{
    const size_t masked[7] = {1, 1, 1, 6, 4, 8, 8}, none[7] = {1, 2, 1, 3, 0, 8, 16};
    const size_t empty[][7] = {{0, 1, 1, 3, 4, 8, 8}, {1, 0, 0, 3, 4, 8, 8},
                               {1, 1, 1, 0, 4, 8, 8}};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++) {
            check(device, type, masked, 1, 0);
            check(device, type, none, 0, 0);
            for (int i = 0; i < 3; i++) {
                struct test t = test_new(device, type, empty[i], 0, 0);
                struct five_steps_error error;
                size_t bytes = 1;
                cr_assert(!five_steps_attention_workspace(&t.p, &bytes, &error) && !bytes);
                cr_assert(!five_steps_attention(&t.p, NULL, 0, &error), "%s", error.message);
                test_free(&t);
            }
        }
}

/* ---- What is refused. ---- */

/* A sound problem, and one field that spoils it. */
struct spoiled {
    const char *word;
    int code;
    void (*spoil)(struct five_steps_attention_problem *p);
};

static void no_size(struct five_steps_attention_problem *p) { p->size = 0; }
static void bad_device(struct five_steps_attention_problem *p) { p->device = 7; }
static void bad_type(struct five_steps_attention_problem *p) { p->type = 3; }
static void negative_type(struct five_steps_attention_problem *p) { p->type = -1; }
static void bad_group(struct five_steps_attention_problem *p) { p->heads_kv = 3; }
static void no_kv_heads(struct five_steps_attention_problem *p) { p->heads_kv = 0; }
static void no_head_dim(struct five_steps_attention_problem *p) { p->head_dim = 0; }
static void no_head_dim_v(struct five_steps_attention_problem *p) { p->head_dim_v = 0; }
static void nan_scale(struct five_steps_attention_problem *p) { p->scale = NAN; }
static void inf_scale(struct five_steps_attention_problem *p) { p->scale = INFINITY; }
static void no_q(struct five_steps_attention_problem *p) { p->q = NULL; }
static void no_v(struct five_steps_attention_problem *p) { p->v = NULL; }
static void no_o(struct five_steps_attention_problem *p) { p->o = NULL; }
static void odd_k(struct five_steps_attention_problem *p) { p->k = (const char *)p->k + 1; }
static void no_such_kernel(struct five_steps_attention_problem *p) { p->kernel = "fast"; }
static void wraps(struct five_steps_attention_problem *p)
{
    p->batch = (size_t)1 << 62, p->seqlen_q = 16; /* times 4 heads: 0 modulo 2^64 */
}

static const struct spoiled anywhere[] = {
    {"size", FIVE_STEPS_INVALID, no_size},          {"device", FIVE_STEPS_INVALID, bad_device},
    {"type: 3", FIVE_STEPS_INVALID, bad_type},      {"type", FIVE_STEPS_INVALID, negative_type},
    {"heads_q", FIVE_STEPS_INVALID, bad_group},     {"heads_q", FIVE_STEPS_INVALID, no_kv_heads},
    {"head_dim:", FIVE_STEPS_INVALID, no_head_dim}, {"head_dim_v", FIVE_STEPS_INVALID, no_head_dim_v},
    {"scale", FIVE_STEPS_INVALID, nan_scale},       {"scale", FIVE_STEPS_INVALID, inf_scale},
    {"q: is NULL", FIVE_STEPS_INVALID, no_q},       {"v: is NULL", FIVE_STEPS_INVALID, no_v},
    {"o: is NULL", FIVE_STEPS_INVALID, no_o},       {"k: starts", FIVE_STEPS_INVALID, odd_k},
    {"'fast'", FIVE_STEPS_INVALID, no_such_kernel}, {"sizes", FIVE_STEPS_INVALID, wraps},
};

static void with_bias_in_wgmma(struct five_steps_attention_problem *p)
{
    static const float bias[64];
    p->type = FIVE_STEPS_BF16, p->kernel = "tuned", p->bias = bias;
}
static void wide_head(struct five_steps_attention_problem *p)
{
    p->type = FIVE_STEPS_F16, p->head_dim = 300, p->kernel = "tensor_cores";
}
static void long_keys(struct five_steps_attention_problem *p)
{
    p->seqlen_k = (size_t)1 << 31;
}
static void f32_in_tensor_cores(struct five_steps_attention_problem *p)
{
    p->kernel = "tensor_cores";
}
static void hopper_elsewhere(struct five_steps_attention_problem *p)
{
    p->type = FIVE_STEPS_BF16, p->kernel = "tuned";
}
static void unaligned_rows(struct five_steps_attention_problem *p)
{
    p->q = (const char *)p->q + 4;
}

static const struct spoiled on_gpu[] = {
    {"does not support a bias", FIVE_STEPS_UNSUPPORTED, with_bias_in_wgmma},
    {"head_dim above 256", FIVE_STEPS_UNSUPPORTED, wide_head},
    {"more than 2^29", FIVE_STEPS_UNSUPPORTED, long_keys},
    {"tensor_cores does not support f32", FIVE_STEPS_UNSUPPORTED, f32_in_tensor_cores},
    {"sm_90", FIVE_STEPS_UNSUPPORTED, hopper_elsewhere},
    {"q: starts", FIVE_STEPS_INVALID, unaligned_rows},
};

static void expect_refusal(int device, const struct spoiled *s)
{
    const size_t shape[7] = {1, 4, 2, 3, 5, 16, 16};
    struct test t = test_new(device, FIVE_STEPS_F32, shape, 0, 0);
    struct framed o = framed_new(t.n_o * 4, 0);
    struct five_steps_error error = {.code = 99};
    size_t bytes;
    t.p.o = o.at;
    cr_assert(!five_steps_attention_workspace(&t.p, &bytes, NULL));
    void *work = malloc(bytes + 1);
    struct five_steps_attention_problem p = t.p;
    s->spoil(&p);
    int code = five_steps_attention(&p, work, bytes, &error);
    cr_assert(code == s->code && error.code == code, "%s: code %d, %d: %s", s->word, code,
              error.code, error.message);
    cr_assert(strstr(error.message, s->word) && !strchr(error.message, '\n'), "'%s': '%s'",
              s->word, error.message);
    cr_assert(five_steps_attention(&p, work, bytes, NULL) == code, "without an error");
    for (size_t i = 0; i < o.bytes; i++) cr_assert(o.at[i] == 0x5a, "%s: touched o", s->word);
    framed_free(o, s->word);
    free(work);
    test_free(&t);
}

Test(library, wrong_arguments_are_codes_with_a_message)
{
    for (int device = CPU; device <= GPU; device++)
        for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++)
            expect_refusal(device, &anywhere[i]);
    for (size_t i = 0; i < sizeof on_gpu / sizeof *on_gpu; i++) expect_refusal(GPU, &on_gpu[i]);
    struct five_steps_error error;
    cr_expect(five_steps_attention(NULL, NULL, 0, &error) == FIVE_STEPS_INVALID);
    cr_expect(five_steps_softmax(NULL, NULL, 0, &error) == FIVE_STEPS_INVALID);
    cr_expect(five_steps_merge(NULL, &error) == FIVE_STEPS_INVALID);
}

Test(library, a_workspace_that_is_too_small_is_refused)
{
    const size_t shape[7] = {1, 4, 2, 3, 5, 16, 16};
    struct test t = test_new(CPU, FIVE_STEPS_BF16, shape, 0, 0);
    struct five_steps_error error;
    uint16_t o[192];
    size_t bytes;
    t.p.o = o;
    cr_assert(!five_steps_attention_workspace(&t.p, &bytes, &error) && bytes > 0);
    void *work = malloc(bytes);
    cr_expect(five_steps_attention(&t.p, work, bytes - 1, &error) == FIVE_STEPS_WORKSPACE);
    cr_expect(strstr(error.message, "are needed"), "%s", error.message);
    cr_expect(five_steps_attention(&t.p, NULL, bytes, &error) == FIVE_STEPS_WORKSPACE);
    free(work);
    test_free(&t);
}

/* With isolate_v a kernel is taken in which a hidden NaN stays hidden. */
Test(library, nan_in_a_hidden_value_stays_there_when_asked_for)
{
    const size_t shape[7] = {1, 1, 1, 40, 40, 64, 64};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++) {
            struct test t = test_new(device, type, shape, 1, 0);
            struct framed o = framed_new(t.n_o * size_of(type), 0);
            struct five_steps_error error;
            size_t bytes;
            t.p.isolate_v = 1, t.p.o = o.at;
            memset((char *)t.p.v + 39 * 64 * size_of(type), 0xff, 64 * size_of(type));
            int code = five_steps_attention_workspace(&t.p, &bytes, &error);
            cr_assert(!code, "%s: %s", describe(&t), error.message);
            attend(&t, o.at, NULL);
            t.n_o = 39 * 64; /* the last query sees the NaN */
            compare(&t, o.at, NULL);
            cr_assert(isnan(load(type, o.at, 39 * 64)));
            framed_free(o, "isolate_v");
            test_free(&t);
        }
}

/* ---- Softmax. ---- */

static void check_softmax(int device, int type, size_t rows, size_t cols, int log)
{
    struct random r = {rows + cols};
    float *x = oracle_normals(&r, rows * cols, 5);
    if (rows > 1) for (size_t j = 0; j < cols; j++) x[cols + j] = -INFINITY;
    struct framed y = framed_new(rows * cols * size_of(type), 0);
    struct five_steps_softmax_problem p = {.size = sizeof p, .device = device, .type = type,
                                           .rows = rows, .cols = cols, .log = log};
    struct five_steps_error error;
    size_t bytes;
    p.x = converted(type, x, rows * cols), p.y = y.at;
    cr_assert(!five_steps_softmax_workspace(&p, &bytes, &error), "%s", error.message);
    struct framed work = framed_new(bytes, 5);
    cr_assert(!five_steps_softmax(&p, work.at, bytes, &error), "%s", error.message);
    for (size_t i = 0; i < rows; i++) {
        long double l = 0;
        for (size_t j = 0; j < cols; j++) l += expl(x[i * cols + j]);
        for (size_t j = 0; j < cols; j++) {
            double want = l == 0 ? (log ? -INFINITY : 0)
                        : log ? (double)(x[i * cols + j] - logl(l))
                              : (double)(expl(x[i * cols + j]) / l);
            double got = (double)load(type, y.at, i * cols + j);
            double allowed = allowed_in(type) * fmax(1, log ? fabs(want) : 0);
            cr_assert(got == want || fabs(got - want) <= allowed,
                      "device %d type %d [%zu, %zu] log %d: y[%zu][%zu]: got %g, want %g",
                      device, type, rows, cols, log, i, j, got, want);
        }
    }
    framed_free(y, "y"), framed_free(work, "softmax's workspace");
    free((void *)p.x), free(x);
}

Test(library, softmax_is_the_definition_on_both_devices_in_every_type)
{
    static const size_t sizes[][2] = {{1, 1}, {3, 7}, {2, 300}, {5, 1000}, {2, 20000}};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++)
            for (int i = 0; i < 5; i++)
                for (int log = 0; log < 2; log++)
                    check_softmax(device, type, sizes[i][0], sizes[i][1], log);
}

Test(library, softmax_refuses_what_is_wrong)
{
    float x[8] = {0}, y[8];
    struct five_steps_error error;
    struct five_steps_softmax_problem p = {.size = sizeof p, .rows = 2, .cols = 4, .y = y};
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_INVALID &&
              strstr(error.message, "x: is NULL"), "%s", error.message);
    p.x = x, p.y = NULL;
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_INVALID &&
              strstr(error.message, "y: is NULL"), "%s", error.message);
    p.rows = (size_t)1 << 62;
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_INVALID &&
              strstr(error.message, "sizes"), "%s", error.message);
    p.rows = 0;
    cr_expect(five_steps_softmax(&p, NULL, 0, &error) == FIVE_STEPS_OK);
}

/* ---- Merge. ---- */

/* Attention of keys first .. end - 1 of t. */
static void attend_part(const struct test *t, size_t first, size_t end, void *o, float *lse)
{
    struct test part = *t;
    size_t element = size_of(t->p.type);
    part.p.seqlen_k = end - first;
    part.p.k = (const char *)t->p.k + first * t->p.head_dim * element;
    part.p.v = (const char *)t->p.v + first * t->p.head_dim_v * element;
    attend(&part, o, lse);
}

Test(library, merged_parts_are_the_whole)
{
    const size_t shape[7] = {1, 1, 1, 7, 100, 32, 40};
    for (int device = CPU; device <= GPU; device++)
        for (int type = 0; type < N_TYPES; type++)
            for (int cut = 0; cut <= 100; cut += 25) {
                struct test t = test_new(device, type, shape, 0, 0);
                struct framed o1 = framed_new(t.n_o * size_of(type), 0);
                struct framed o2 = framed_new(t.n_o * size_of(type), 0);
                float lse1[7], lse2[7];
                if (type) cut = cut ? 100 : 0; /* 16 bits: the unit alone, exactly */
                attend_part(&t, 0, (size_t)cut, o1.at, lse1);
                attend_part(&t, (size_t)cut, 100, o2.at, lse2);
                struct five_steps_error error;
                struct five_steps_merge_problem m = {
                    .size = sizeof m, .device = device, .type = type, .rows = 7,
                    .head_dim_v = 40, .o1 = o1.at, .o2 = o2.at, .lse1 = lse1, .lse2 = lse2,
                    .o = o2.at, .lse = lse2}; /* in place */
                struct framed kept = framed_new(o1.bytes, 0);
                memcpy(kept.at, cut ? o1.at : o2.at, kept.bytes);
                cr_assert(!five_steps_merge(&m, &error), "%s", error.message);
                compare(&t, o2.at, lse2);
                if (cut == 0 || cut == 100)
                    cr_assert(!memcmp(o2.at, kept.at, kept.bytes), "the unit moved a bit");
                framed_free(o1, "o1"), framed_free(o2, "o2"), framed_free(kept, "kept");
                test_free(&t);
            }
}

Test(library, merging_nothing_with_nothing_is_nothing)
{
    for (int device = CPU; device <= GPU; device++) {
        float nan[4] = {NAN, NAN, NAN, NAN}, o[4], lse, none = -INFINITY;
        struct five_steps_merge_problem m = {
            .size = sizeof m, .device = device, .type = FIVE_STEPS_F32, .rows = 1,
            .head_dim_v = 4, .o1 = nan, .o2 = nan, .lse1 = &none, .lse2 = &none, .o = o,
            .lse = &lse};
        cr_assert(!five_steps_merge(&m, NULL));
        cr_assert(lse == -INFINITY && o[0] == 0 && o[3] == 0);
        m.lse2 = NULL;
        struct five_steps_error error;
        cr_assert(five_steps_merge(&m, &error) == FIVE_STEPS_INVALID &&
                  strstr(error.message, "lse2"));
        m.rows = 0;
        cr_assert(!five_steps_merge(&m, NULL));
    }
}

/* ---- Threads. ---- */

struct caller {
    struct test t;
    _Alignas(16) float o[33 * 64], want[33 * 64];
    int wrong;
};

static void *call_often(void *context)
{
    struct caller *c = context;
    for (int i = 0; i < 20; i++) {
        struct five_steps_error error;
        size_t bytes = 0;
        c->t.p.o = c->o, c->t.p.lse = NULL;
        int code = five_steps_attention_workspace(&c->t.p, &bytes, &error);
        void *work = malloc(bytes + 1);
        if (!code) code = five_steps_attention(&c->t.p, work, bytes, &error);
        free(work);
        c->wrong += code != 0 || memcmp(c->o, c->want, sizeof c->o) != 0;
    }
    return NULL;
}

Test(library, threads_do_not_meet)
{
    enum { N = 6 };
    static struct caller callers[N];
    pthread_t threads[N];
    const size_t shape[7] = {1, 1, 1, 33, 65, 64, 64};
    for (int i = 0; i < N; i++) {
        callers[i].t = test_new(i % 2 ? GPU : CPU, FIVE_STEPS_F32, shape, i & 1, 0);
        if (i == 4) callers[i].t.p.scale = 3;
        attend(&callers[i].t, callers[i].want, NULL);
    }
    for (int i = 0; i < N; i++)
        cr_assert(!pthread_create(&threads[i], NULL, call_often, &callers[i]));
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(callers[i].wrong == 0, "caller %d: %d wrong", i, callers[i].wrong);
        test_free(&callers[i].t);
    }
}

Test(library, version_is_the_headers)
{
    cr_assert(!strcmp(five_steps_version(), FIVE_STEPS_VERSION));
    cr_assert(five_steps_built_with()[0]);
}
