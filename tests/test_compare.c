/* test_compare.c: the rule of acceptance rejects what it must and nothing else: NaN, missing elements,
 * writes outside, errors above what is allowed; a lost term of a sum, key of lse, or moment, each of which
 * was once accepted. */
#include "attention_problem.h"

#include <math.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "verification/compare.h"

#define RIGHT 7.0 /* the reference stays as it is */
static const char missing[] = "element not written"; /* that one keeps the filling of outputs */

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
    cr_expect(isnan(dtypes[out.array[ARRAY_O].dtype].load(out.array[ARRAY_O].data, 0)));
    for (int k = ARRAY_O; k <= ARRAY_LSE; k++)
        for (size_t e = 0; e < s->answer[k].n; e++)
            dtypes[out.array[k].dtype].store(out.array[k].data, e, (float)s->answer[k].want[e]);
    const struct answer *of = &s->answer[f->array];
    const struct output *o = &out.array[f->array];
    char *at = (char *)o->data + f->at * (ptrdiff_t)dtype_size(o->dtype);
    if (f->want != RIGHT) of->want[f->at] = f->want;
    double got = f->share == 0 ? f->got : of->want[f->at] + f->share * of->allowed[f->at];
    dtypes[o->dtype].store(at, 0, (float)got);
    if (f->reason == missing) dtype_set_bits(o->dtype, at, 0, dtypes[o->dtype].filling);
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

/* o in 16 bits has its own filling and its own guard; a share of what is allowed is no number there. */
Test(compare, names_what_is_wrong_and_where)
{
    enum { BEFORE = GUARD / 4 };
    static const char before[] = "written before the first element", off[] =
        "error above the allowed", behind[] = "written behind the last element";
    const double inf = INFINITY;
    const struct fault faults[] = {
        {ARRAY_O, 0, RIGHT, 0, 0.01, NULL, ""},
        {ARRAY_O, 7, RIGHT, NAN, 0, "NaN where a number is expected; outputs begin as NaN",
         "[0, 1, 0, 1]"},
        {ARRAY_LSE, 4, RIGHT, INFINITY, 0, "wrong infinity", "[0, 1, 1]"},
        {ARRAY_O, 11, RIGHT, 0, 0, missing, "[0, 1, 2, 1]"},
        {ARRAY_O, 0, NAN, NAN, 0, NULL, ""},
        {ARRAY_O, 0, NAN, 0, 0, missing, "[0, 0, 0, 0]"},
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
    for (int type = F32; type <= BF16; type += BF16) {
        struct inputs *in = inputs_of(
            problem_of(OP_ATTENTION, (struct shape){1, 2, 1, 3, 5, 4, 2}, 0, 0), RANDOM, (enum dtype)type);
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
            if (type == F32 || faults[i].share == 0) expect(in, &faults[i]);
        inputs_free(in);
    }
}

/* ---- what is lost ---- */

/* Elements from, from + step, ... of an array (step 0: all) become x + relative x + more. */
struct change { size_t from, step; double relative, more; };

/* Is the reference's answer to `answered`, with array i so changed, accepted as one to `in`? */
static int accepts_of(const struct inputs *in, const struct problem *answered, enum array i,
                      struct change c)
{
    struct standard *s = standard_new(&in->problem, &in->arrays);
    struct standard *t = standard_new(answered, &in->arrays);
    struct outputs out = outputs_new(&in->problem);
    for (int k = 0; k < N_ARRAYS; k++) {
        struct output *o = &out.array[k];
        for (size_t e = 0; e < o->n; e++) {
            double x = t->answer[k].want[e];
            if (k == (int)i && e % (c.step ? c.step : 1) == c.from) x += x * c.relative + c.more;
            dtypes[o->dtype].store(o->data, e, (float)x);
        }
    }
    int ok = compare(s, &out).ok;
    outputs_free(&out);
    standard_free(s), standard_free(t);
    return ok;
}
#define ACCEPTS(in, array, ...) \
    accepts_of(in, &(in)->problem, array, (struct change){__VA_ARGS__})

static struct problem heads(size_t n, size_t d)
{
    return problem_of(OP_ATTENTION, (struct shape){1, 1, 1, 1, n, d, 1}, 0, 0);
}

static void fill(const void *x, size_t n, float value)
{
    for (size_t j = 0; j < n; j++) ((float *)(size_t)x)[j] = value;
}

/* Of n equal scores one lost: every probability is 1 / (n - 1).  Of 2^20 one in 25: there the roundings
 * of a plain sum of e^s, all alike, are as much as one in 50. */
Test(losses, terms_of_the_denominator)
{
    static const struct { size_t n; double lost; } rows[] = {{4096, 1 / 4095.0}, {1 << 20, 0.04}};
    for (int i = 0; i < 2; i++)
        for (enum op op = OP_SOFTMAX; op <= OP_LOGSOFTMAX; op++) {
            struct inputs *in = inputs_of(rows_of(op, 1, rows[i].n), EQUAL, F32);
            int logarithm = op == OP_LOGSOFTMAX;
            cr_expect(ACCEPTS(in, ARRAY_Y, .more = 0));
            cr_expect(!ACCEPTS(in, ARRAY_Y, .relative = logarithm ? 0 : rows[i].lost,
                               .more = logarithm ? log1p(rows[i].lost) : 0),
                      "%zu columns, operation %d", rows[i].n, op);
            inputs_free(in);
        }
}

Test(losses, keys_of_lse_and_of_the_log_form)
{
    enum { N = 2050 };
    struct inputs *in = inputs_of(heads(N, 64), RANDOM, F32);
    fill(in->arrays.v, N, 1);
    cr_expect(ACCEPTS(in, ARRAY_LSE, .more = 0));
    cr_expect(!ACCEPTS(in, ARRAY_LSE, .more = -1.0 / N));
    inputs_free(in);
    in = inputs_of(heads(N, 64), RANDOM, F32);
    in->problem.op = OP_LOGSOFTMAX_ATTENTION;
    cr_expect(ACCEPTS(in, ARRAY_O, .more = 0));
    cr_expect(!ACCEPTS(in, ARRAY_O, .more = 8), "one key's share"); /* (s - lse) v */
    inputs_free(in);
}

/* Raw moments cancel at a mean of 1e4; zeros for y; both were once accepted. */
Test(losses, moments_and_zeros)
{
    enum { N = 1003 };
    struct inputs *in = inputs_of(rows_of(OP_FUSED_REDUCTION, 1, N), SHIFT_UP, F32);
    const float *x = in->arrays.x;
    float square = 0, sum = 0;
    for (size_t j = 0; j < N; j++) sum += x[j], square = fmaf(x[j], x[j], square);
    double raw = (double)(square / N - (sum / N) * (sum / N));
    cr_expect(ACCEPTS(in, ARRAY_Y, .more = 0));
    cr_expect(!ACCEPTS(in, ARRAY_Y, .from = FUSED_VARIANCE, .step = N_FUSED, .relative = -1,
                       .more = raw), "%g", raw);
    cr_expect(!ACCEPTS(in, ARRAY_Y, .from = FUSED_VARIANCE, .step = N_FUSED, .relative = -1));
    inputs_free(in);
    in = inputs_of(rows_of(OP_FUSED_REDUCTION, 1, N), RANDOM, F32);
    cr_expect(!ACCEPTS(in, ARRAY_Y, .from = FUSED_LOGSOFTMAX_DOT, .step = N_FUSED,
                       .relative = -1));
    in->problem.op = OP_MEAN;
    cr_expect(!ACCEPTS(in, ARRAY_Y, .relative = -1));
    inputs_free(in);
}

/* The right answer to a question that is slightly another one. */
Test(losses, a_key_or_a_hundred_thousandth_of_the_scale)
{
    static const size_t sizes[] = {127, 511, 2047, 8191};
    for (int type = F32; type <= BF16; type += BF16)
        for (size_t i = 0; i < (type ? 2 : 4); i++) {
            const struct shape shape = {1, 1, 1, 8, sizes[i], 64, 64};
            struct inputs *in = inputs_of(problem_of(OP_ATTENTION, shape, 1, 0), RANDOM,
                                          (enum dtype)type);
            struct problem fewer = in->problem, masked = fewer, scaled = fewer;
            fewer.seqlen_k--, fewer.shift = 1; /* the last query's last key */
            masked.shift = -1;
            scaled.scale *= 1 + 1e-5f;
            cr_expect(ACCEPTS(in, ARRAY_O, .more = 0));
            cr_expect(!accepts_of(in, &fewer, ARRAY_O, (struct change){0}), "%zu", sizes[i]);
            cr_expect(!accepts_of(in, &masked, ARRAY_O, (struct change){0}), "%zu", sizes[i]);
            cr_expect(type || i || !accepts_of(in, &scaled, ARRAY_O, (struct change){0}),
                      "beyond 127 keys, storing the scores errs as much");
            inputs_free(in);
        }
}

/* A thousandth of anything, where 16 bits hold the weights and ds exactly. */
Test(losses, a_thousandth_in_16_bits)
{
    static const struct { const char *name; enum array array; double share; } of[] = {
        {"attention-powers-20x256-d64-scale0.693147", ARRAY_O, 1e-3},
        {"attention-powers@2048-20x128-d64-scale0.693147", ARRAY_LSE, 1e-6}, /* 11 ulp */
        {"backward-powers-20x256-d64-scale0.125", ARRAY_DQ, 1e-3},
        {"backward-powers-20x256-d64-scale0.125", ARRAY_DK, 1e-3},
        {"backward-powers-20x256-d64-scale0.693147", ARRAY_DV, 4e-3}, /* few bits: half a spacing */
        {"backward-powers-21x128-d64-b1h2kv2-sinks", ARRAY_DSINKS, 1e-3}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int type = F16; type <= BF16; type++) {
            struct inputs *in = inputs_new(test_case_find(of[i].name), (enum dtype)type, 1);
            cr_expect(ACCEPTS(in, of[i].array, .more = 0));
            cr_expect(!ACCEPTS(in, of[i].array, .relative = of[i].share), "%s", of[i].name);
            inputs_free(in);
        }
}

/* The rule scales with v, and a large value without weight allows nothing. */
Test(losses, a_key_of_small_values_beside_a_large_one_without_weight)
{
    enum { N = 8192, D = 64 };
    static const float sizes[] = {1, 1e-3f, 1e-20f, 1e20f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int dead = 0; dead < 2; dead++) {
            struct inputs *in = inputs_of(heads(N, D), RANDOM, F32);
            struct problem *p = &in->problem, fewer;
            p->head_dim_v = 1;
            float *v = (float *)(size_t)in->arrays.v, *k = (float *)(size_t)in->arrays.k;
            for (size_t j = 0; j < N; j++) v[j] = sizes[i] * (j % 2 ? 1 : -1) * (1 + 1 / (1 + (float)j));
            for (size_t t = 0; dead && t < D; t++) k[t] = -100 * ((const float *)in->arrays.q)[t];
            if (dead) v[0] = 1e4f * sizes[i];
            fewer = *p, fewer.seqlen_k--;
            cr_expect(ACCEPTS(in, ARRAY_O, .more = 0));
            cr_expect(!accepts_of(in, &fewer, ARRAY_O, (struct change){0}), "%g", (double)sizes[i]);
            inputs_free(in);
        }
}
