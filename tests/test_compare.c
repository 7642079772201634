/* test_compare.c: the rule of acceptance rejects what it must and nothing else: NaN, missing
 * elements, writes outside, errors above what is allowed. */
#include "attention_problem.h"

#include <math.h>
#include <string.h>

#include "problem/host_memory.h"
#include "vector/half.h"
#include "verification/compare.h"
#include "verification/yardstick.h"

#define RIGHT 7.0 /* the reference stays as it is */

/* Element `at` of o [1, 2, 3, 2] or lse [1, 2, 3] is changed, or what lies beside the array. */
struct fault {
    enum array array;
    ptrdiff_t at;
    double want;
    float got;    /* or, if not 0: */
    double share; /* so many allowed errors beside the reference */
    const char *reason, *where;
};

/* What compare() says of the rounded reference with that fault. */
static void expect(const struct inputs *in, const struct fault *f)
{
    struct standard *s = standard_new(&in->problem, &in->arrays);
    struct outputs out = outputs_new(&in->problem);
    for (int k = ARRAY_O; k <= ARRAY_LSE; k++)
        for (size_t e = 0; e < s->answer[k].n; e++)
            ((float *)out.array[k].data)[e] = (float)s->answer[k].want[e];
    const struct answer *of = &s->answer[f->array];
    float *at = (float *)out.array[f->array].data + f->at;
    if (f->want != RIGHT) of->want[f->at] = f->want;
    *at = f->share == 0 ? f->got : (float)(of->want[f->at] + f->share * of->allowed[f->at]);
    struct verdict v = compare(s, &out);
    char index[64];
    verdict_index(&v, index, sizeof index);
    cr_expect(v.ok == !f->reason, "%s, element %td: %s", array_list[f->array].name, f->at, v.reason);
    cr_expect(v.ok || (!strcmp(v.reason, f->reason) && !strcmp(index, f->where)), "%s at %s, not %s",
              v.reason, index, f->reason);
    s->broken = xcalloc(8, 1); /* by a broken yardstick nothing is accepted */
    cr_expect(!compare(s, &out).ok);
    standard_free(s);
    outputs_free(&out);
}

Test(compare, names_what_is_wrong_and_where)
{
    enum { BEFORE = GUARD / 4 };
    static const char before[] = "written before the first element", off[] =
        "error above the allowed", behind[] = "written behind the last element";
    const float untouched = f32_from_bits(0x7fc0dead); /* the filling of outputs */
    const double inf = INFINITY;
    const struct fault faults[] = {
        {ARRAY_O, 0, RIGHT, 0, 0.01, NULL, ""},
        {ARRAY_O, 7, RIGHT, NAN, 0, "NaN where a number is expected; outputs begin as NaN",
         "[0, 1, 0, 1]"},
        {ARRAY_LSE, 4, RIGHT, INFINITY, 0, "wrong infinity", "[0, 1, 1]"},
        {ARRAY_O, 11, RIGHT, untouched, 0, "element not written", "[0, 1, 2, 1]"},
        {ARRAY_O, 0, NAN, NAN, 0, NULL, ""},
        {ARRAY_O, 0, NAN, untouched, 0, "element not written", "[0, 0, 0, 0]"},
        {ARRAY_O, 0, NAN, 1, 0, "NaN expected", "[0, 0, 0, 0]"},
        {ARRAY_LSE, 0, -inf, -INFINITY, 0, NULL, ""},
        {ARRAY_LSE, 0, -inf, INFINITY, 0, "wrong infinity", "[0, 0, 0]"},
        {ARRAY_LSE, 0, -inf, -3.4e38f, 0, "wrong infinity", "[0, 0, 0]"},
        {ARRAY_O, 5, RIGHT, 0, 0.97, NULL, ""},
        {ARRAY_O, 5, RIGHT, 0, 1.03, off, "[0, 0, 2, 1]"},
        {ARRAY_O, 5, RIGHT, 0, -1.03, off, "[0, 0, 2, 1]"},
        {ARRAY_LSE, 5, RIGHT, 0, 1.03, off, "[0, 1, 2]"},
        {ARRAY_O, -1, RIGHT, 0, 0, before, ""},
        {ARRAY_O, -BEFORE, RIGHT, 0, 0, before, ""},
        {ARRAY_LSE, 6, RIGHT, 0, 0, behind, ""},
        {ARRAY_LSE, 5 + BEFORE, RIGHT, 0, 0, behind, ""}};
    struct inputs *in = inputs_of(
        problem_of(OP_ATTENTION, (struct shape){1, 2, 1, 3, 5, 4, 2}, 0, 0), RANDOM, F32);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) expect(in, &faults[i]);
    inputs_free(in);
}

/* A 16-bit output has its own filling and its own guard. */
Test(compare, half_outputs_are_guarded_too)
{
    struct problem p = rows_of(OP_SOFTMAX, 1, 3);
    p.dtype = BF16;
    uint16_t x[3] = {0}, third = float_to_bfloat(1 / 3.0f);
    struct standard *s = standard_new(&p, &(struct arrays){.x = x});
    struct outputs out = outputs_new(&p);
    uint16_t *y = out.array[ARRAY_Y].data;
    cr_expect(isnan(bfloat_to_float(y[0])));
    y[0] = y[1] = y[2] = third;
    cr_expect(compare(s, &out).ok, "%s", compare(s, &out).reason);
    y[1] = (uint16_t)(third + 2);
    cr_expect(!compare(s, &out).ok, "two units off");
    y[1] = third, y[3] = 0;
    cr_expect(!compare(s, &out).ok, "a write behind");
    outputs_free(&out), standard_free(s);
}
