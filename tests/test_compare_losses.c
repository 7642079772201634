/* test_compare_losses.c: the rule of acceptance sees what is lost: a term of a sum, a key of
 * lse, a moment, half of a 16-bit row; and it takes what an honest program gives.  Each loss
 * was once accepted. */
#include "attention_problem.h"

#include <math.h>

#include "problem/dtype.h"
#include "verification/compare.h"

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
