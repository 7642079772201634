/* test_compare.c: the rule of acceptance rejects what it must and nothing else: NaN, missing
 * elements, writes outside, errors above what is allowed. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "problem/half.h"
#include "problem/xcalloc.h"
#include "verification/compare.h"
#include "verification/reference.h"
#include "verification/yardstick.h"

static const struct problem small = {
    .op = OP_ATTENTION, .batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 3,
    .seqlen_k = 5, .head_dim = 4, .head_dim_v = 2, .scale = 0.5f};

/* The problem `small` with random inputs, its standard, and outputs that are right. */
struct fixture {
    float *q, *k, *v;
    struct arrays a;
    struct standard *s;
    struct outputs out;
};

static struct fixture fixture_new(void)
{
    struct random g = {1};
    struct fixture f = {oracle_normals(&g, array_count(&small, ARRAY_Q), 1), oracle_normals(&g, array_count(&small, ARRAY_K), 1),
                        oracle_normals(&g, array_count(&small, ARRAY_V), 1), {0}, NULL, outputs_new(&small)};
    f.a = (struct arrays){.q = f.q, .k = f.k, .v = f.v};
    f.s = standard_new(&small, &f.a);
    for (size_t i = 0; i < array_count(&small, ARRAY_O); i++)
        ((float *)f.out.array[ARRAY_O].data)[i] = (float)f.s->answer[ARRAY_O].want[i];
    for (size_t i = 0; i < array_count(&small, ARRAY_LSE); i++)
        ((float *)f.out.array[ARRAY_LSE].data)[i] = (float)f.s->answer[ARRAY_LSE].want[i];
    return f;
}

static void fixture_free(struct fixture *f)
{
    standard_free(f->s);
    outputs_free(&f->out);
    free(f->q), free(f->k), free(f->v);
}

static void expect_rejected(struct fixture *f, const char *reason, const char *where)
{
    struct verdict v = compare(f->s, &f->out);
    char index[64];
    verdict_index(&v, index, sizeof index);
    cr_expect(!v.ok, "accepted: %s", reason);
    cr_expect(v.reason && !strcmp(v.reason, reason), "reason: %s, not %s", v.reason,
              reason);
    cr_expect(!strcmp(index, where), "index: %s, not %s", index, where);
}

Test(compare, accepts_the_rounded_reference)
{
    struct fixture f = fixture_new();
    struct verdict v = compare(f.s, &f.out);
    cr_expect(v.ok, "%s", v.reason);
    cr_expect(v.worst < 1);
    fixture_free(&f);
}

static void put(struct fixture *f, enum array i, size_t at, float x)
{
    ((float *)f->out.array[i].data)[at] = x;
}

/* `untouched` stands for the filling of outputs. */
Test(compare, names_what_is_wrong_and_where)
{
    const float untouched = f32_from_bits(0x7fc0dead);
    const double right = 7; /* the reference stays as it is */
    const struct {
        enum array array; size_t at; double want; float got; const char *reason, *where;
    } rows[] = {
        {ARRAY_O, 7, right, NAN, "NaN where a number is expected", "[0, 1, 0, 1]"},
        {ARRAY_LSE, 4, right, INFINITY, "wrong infinity", "[0, 1, 1]"},
        {ARRAY_O, 11, right, untouched, "element not written", "[0, 1, 2, 1]"},
        {ARRAY_O, 0, NAN, NAN, NULL, ""},
        {ARRAY_O, 0, NAN, untouched, "element not written", "[0, 0, 0, 0]"},
        {ARRAY_O, 0, NAN, 1, "NaN expected", "[0, 0, 0, 0]"},
        {ARRAY_LSE, 0, -INFINITY, -INFINITY, NULL, ""},
        {ARRAY_LSE, 0, -INFINITY, INFINITY, "wrong infinity", "[0, 0, 0]"},
        {ARRAY_LSE, 0, -INFINITY, -3.4e38f, "wrong infinity", "[0, 0, 0]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f = fixture_new();
        if (rows[i].want != right) f.s->answer[rows[i].array].want[rows[i].at] = rows[i].want;
        put(&f, rows[i].array, rows[i].at, rows[i].got);
        if (rows[i].reason) expect_rejected(&f, rows[i].reason, rows[i].where);
        else cr_expect(compare(f.s, &f.out).ok, "row %zu", i);
        fixture_free(&f);
    }
}

Test(compare, rejects_write_outside)
{
    for (int k = 0; k < 4; k++) {
        struct fixture f = fixture_new();
        unsigned char *o = f.out.array[ARRAY_O].data, *lse = f.out.array[ARRAY_LSE].data;
        size_t end = f.out.array[ARRAY_LSE].n * sizeof(float);
        if (k == 0) o[-1] = 0;
        if (k == 1) o[-GUARD] = 0;
        if (k == 2) lse[end] = 0;
        if (k == 3) lse[end + GUARD - 1] = 0;
        expect_rejected(&f, k < 2 ? "written before the first element"
                                  : "written behind the last element", "");
        fixture_free(&f);
    }
}

Test(compare, draws_the_line_at_the_allowed_error)
{
    static const struct { enum array array; double share; const char *where; } rows[] = {
        {ARRAY_O, 0.97, NULL}, {ARRAY_O, 1.03, "[0, 0, 2, 1]"}, {ARRAY_O, -1.03, "[0, 0, 2, 1]"},
        {ARRAY_LSE, 1.03, "[0, 1, 2]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f = fixture_new();
        const struct answer *of = &f.s->answer[rows[i].array];
        put(&f, rows[i].array, 5, (float)(of->want[5] + rows[i].share * of->allowed[5]));
        if (rows[i].where) expect_rejected(&f, "error above the allowed", rows[i].where);
        else cr_expect(compare(f.s, &f.out).ok, "just below");
        fixture_free(&f);
    }
}

Test(compare, rejects_everything_by_a_broken_yardstick)
{
    struct fixture f = fixture_new();
    f.s->broken = xcalloc(8, 1);
    strcpy(f.s->broken, "broken");
    cr_expect(!compare(f.s, &f.out).ok);
    fixture_free(&f);
}

/* A 16-bit output has its own filling and its own guard. */
Test(compare, half_outputs_are_guarded_too)
{
    struct problem p = {.op = OP_SOFTMAX, .rows = 1, .cols = 3};
    for (int d = F16; d <= BF16; d++) {
        p.dtype = (enum dtype)d;
        uint16_t x[3] = {0, 0, 0}, third = d == F16 ? float_to_half(1 / 3.0f)
                                                    : float_to_bfloat(1 / 3.0f);
        struct arrays a = {.x = x};
        struct standard *s = standard_new(&p, &a);
        struct outputs out = outputs_new(&p);
        uint16_t *y = out.array[ARRAY_Y].data;
        cr_expect(d == F16 ? isnan(half_to_float(y[0])) : isnan(bfloat_to_float(y[0])));
        y[0] = y[1] = y[2] = third;
        cr_expect(compare(s, &out).ok, "%s", compare(s, &out).reason);
        y[1] = (uint16_t)(third + 2);
        cr_expect(!compare(s, &out).ok, "two units off");
        y[1] = third;
        y[3] = 0;
        cr_expect(!compare(s, &out).ok, "a write behind");
        outputs_free(&out);
        standard_free(s);
    }
}

/* Eleven equal keys, v = 1: p = 1/11 rounded to f16 is 1489 / 2^14, and o = 16379 / 2^14,
 * next to which f16 has 1 - 2^-11.  A kernel may err twice as much, and by one rounding
 * of p and of o. */
Test(compare, half_yardstick_rounds_p)
{
    uint16_t q[1] = {0}, k[11] = {0}, v[11];
    for (int j = 0; j < 11; j++) v[j] = float_to_half(1);
    struct problem p = {.op = OP_ATTENTION, .dtype = F16, .batch = 1, .heads_q = 1,
                        .heads_kv = 1, .seqlen_q = 1, .seqlen_k = 11, .head_dim = 1,
                        .head_dim_v = 1, .scale = 1};
    struct arrays a = {.q = q, .k = k, .v = v};
    float lse, *o = yardstick_attention(&p, &a, 0, &lse);
    cr_expect(o[0] == 1 - 0x1p-11f, "%.9g", o[0]);
    struct standard *s = standard_new(&p, &a);
    double want = 2 * (1 - (double)o[0]) + 2 * 0x1p-11;
    cr_expect(fabs(s->answer[ARRAY_O].allowed[0] / want - 1) < 1e-3, "%g, not %g", s->answer[ARRAY_O].allowed[0],
              want);
    standard_free(s);
    free(o);
}
