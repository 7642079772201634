/* test_compare_losses.c: the rule of acceptance sees what is lost: a term of a sum, a key of
 * lse, a moment, half of a 16-bit row.  Each loss was once accepted. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "oracle.h"
#include "problem/dtype.h"
#include "problem/xcalloc.h"
#include "verification/compare.h"

/* Is array i accepted when it holds the reference, each element times `factor` plus `more`? */
static int accepts(const struct problem *p, const struct arrays *a, enum array i, size_t from,
                   size_t step, double factor, double more)
{
    struct standard *s = standard_new(p, a);
    struct outputs out = outputs_new(p);
    for (int k = 0; k < N_ARRAYS; k++) {
        struct output *o = &out.array[k];
        for (size_t e = 0; e < o->n; e++) {
            int changed = k == (int)i && e % step == from;
            double x = s->answer[k].want[e];
            dtypes[o->dtype].store(o->data, e, (float)(changed ? x * factor + more : x));
        }
    }
    int ok = compare(s, &out).ok;
    outputs_free(&out);
    standard_free(s);
    return ok;
}

static float *constant(size_t n, float value)
{
    float *x = xcalloc(n, sizeof *x);
    for (size_t j = 0; j < n; j++) x[j] = value;
    return x;
}

/* Of n equal scores one lost: every probability is 1 / (n - 1). */
Test(losses, one_of_4096_terms_of_the_denominator)
{
    enum { N = 4096 };
    struct problem p = {.op = OP_SOFTMAX, .rows = 1, .cols = N};
    float *x = constant(N, 3.7f);
    struct arrays a = {.x = x};
    cr_expect(accepts(&p, &a, ARRAY_Y, 0, 1, 1, 0));
    cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 1, N / (N - 1.0), 0), "softmax");
    p.op = OP_LOGSOFTMAX;
    cr_expect(accepts(&p, &a, ARRAY_Y, 0, 1, 1, 0));
    cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 1, 1, log(N / (N - 1.0))), "log-softmax");
    free(x);
}

/* Of 2^20 scores one in 500 lost; it was one in three. */
Test(losses, one_in_500_of_a_million_terms)
{
    enum { N = 1 << 20 };
    struct problem p = {.op = OP_LOGSOFTMAX, .rows = 1, .cols = N};
    float *x = constant(N, -1);
    struct arrays a = {.x = x};
    cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 1, 1, 2e-3));
    p.op = OP_SOFTMAX;
    cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 1, 1.002, 0));
    free(x);
}

/* The last element of a random row: what it is worth is lost in l, not in itself. */
Test(losses, the_last_term_of_a_random_row)
{
    enum { N = 4095 };
    struct random g = {5};
    struct problem p = {.op = OP_SOFTMAX, .rows = 1, .cols = N};
    float *x = oracle_normals(&g, N, 1);
    x[N - 1] = 1; /* p = 4e-4 */
    struct arrays a = {.x = x};
    struct standard *s = standard_new(&p, &a);
    double last = s->answer[ARRAY_Y].want[N - 1];
    standard_free(s);
    cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 1, 1 / (1 - last), 0), "p = %g", last);
    free(x);
}

/* Of equal numbers the roundings of a sum go one way.  Up to 5,000 of them none may be lost: a sum
 * of n errs by at most n / 2 units of u = 2^-24 and 6 sqrt(n) are allowed beside, less than 1 / n. */
Test(losses, one_of_5000_equal_numbers_of_the_mean)
{
    static const size_t sizes[] = {2, 3, 17, 100, 997, 2048, 3931, 4097, 5000};
    static const float values[] = {3.7f, 0.1f, -1.99f, 1e-3f, 7e8f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            double n = (double)sizes[i];
            struct problem p = {.op = OP_MEAN, .rows = 1, .cols = sizes[i]};
            float *x = constant(sizes[i], values[k]), total = 0;
            struct arrays a = {.x = x};
            for (size_t j = 0; j < sizes[i]; j++) total += x[j];
            double more = (double)(total / (float)n) - (double)values[k];
            cr_expect(accepts(&p, &a, ARRAY_Y, 0, 1, 1, more), "%g x %g", n, (double)values[k]);
            cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 1, (n - 1) / n, 0), "%g x %g: one lost", n,
                      (double)values[k]);
            free(x);
        }
}

Test(losses, half_of_a_16_bit_row)
{
    enum { N = 1024 };
    struct random g = {6};
    for (int type = F16; type <= BF16; type++) {
        struct problem p = {.op = OP_SOFTMAX, .dtype = (enum dtype)type, .rows = 1, .cols = N};
        uint16_t x[N];
        for (size_t j = 0; j < N; j++)
            dtypes[type].store(x, j, 2 * random_normal(&g));
        struct arrays a = {.x = x};
        cr_expect(accepts(&p, &a, ARRAY_Y, 0, 1, 1, 0));
        cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 2, 0, 0), "%s", dtypes[type].name);
    }
}

static struct problem heads(size_t n, size_t d)
{
    return (struct problem){.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                            .seqlen_q = 1, .seqlen_k = n, .head_dim = d, .head_dim_v = 1,
                            .scale = 1 / sqrtf((float)d)};
}

Test(losses, one_of_2050_keys_of_lse)
{
    enum { N = 2050, D = 64 };
    struct random g = {7};
    struct problem p = heads(N, D);
    float *q = oracle_normals(&g, D, 1), *k = oracle_normals(&g, N * D, 1), *v = constant(N, 1);
    struct arrays a = {.q = q, .k = k, .v = v};
    cr_expect(accepts(&p, &a, ARRAY_LSE, 0, 1, 1, 0));
    cr_expect(!accepts(&p, &a, ARRAY_LSE, 0, 1, 1, -1.0 / N));
    free(q), free(k), free(v);
}

/* Scores 0, 2^30 - 2^30 - 20 and so on: a float program gives 0 for -20, and must pass. */
Test(losses, lse_of_a_score_that_cancels_is_not_held_against_a_program)
{
    struct problem p = heads(2, 3);
    float q[] = {1, 1, 1}, k[] = {0, 0, 0, 0x1p30f, -20, -0x1p30f}, v[] = {1, 2};
    struct arrays a = {.q = q, .k = k, .v = v};
    p.scale = 1;
    cr_expect(accepts(&p, &a, ARRAY_LSE, 0, 1, 1, log(2)));
    p.op = OP_LOGSOFTMAX_ATTENTION;
    cr_expect(accepts(&p, &a, ARRAY_O, 0, 1, 1, log(2)), "log form");
}

/* One score of 0 and many that are equal: the roundings of l = 1 + sum 0.3 go one way. */
Test(losses, lse_of_many_equal_scores_is_not_held_against_a_program)
{
    enum { N = 300000 };
    struct problem p = heads(N, 1);
    float q = 1, *k = constant(N, -1.2f), *v = constant(N, 1), l = 1;
    struct arrays a = {.q = &q, .k = k, .v = v};
    k[0] = 0;
    double exact = 1 + (N - 1) * exp((double)-1.2f);
    for (size_t j = 1; j < N; j++) l += expf(-1.2f);
    cr_expect(accepts(&p, &a, ARRAY_LSE, 0, 1, 1, (double)logf(l) - log(exact)));
    p.op = OP_LOGSOFTMAX_ATTENTION;
    float o = 0;
    for (size_t j = 0; j < N; j++) o += k[j] - logf(l);
    double more = (double)o - ((double)-1.2f * (N - 1) - N * log(exact));
    cr_expect(accepts(&p, &a, ARRAY_O, 0, 1, 1, more), "log form");
    free(k), free(v);
}

/* Below the least normal float a 16-bit program may take numbers for 0 (AVX512-BF16 does). */
Test(losses, denormal_values_in_bfloat16_may_be_flushed)
{
    struct problem p = heads(3, 1);
    uint16_t q = 0, k[3] = {0}, v[3] = {0x7f, 0x55, 0x11}; /* the largest denormal first */
    struct arrays a = {.q = &q, .k = k, .v = v};
    p.dtype = BF16;
    cr_expect(accepts(&p, &a, ARRAY_O, 0, 1, 0, 0));
    cr_expect(!accepts(&p, &a, ARRAY_O, 0, 1, 1, 1e-36));
}

/* A soft cap far above the scores changes nothing, and allows nothing. */
Test(losses, a_large_soft_cap_allows_no_more_than_none)
{
    struct random g = {8};
    struct problem p = heads(70, 64);
    float *q = oracle_normals(&g, 64, 1), *k = oracle_normals(&g, 70 * 64, 1);
    float *v = oracle_normals(&g, 70, 1);
    struct arrays a = {.q = q, .k = k, .v = v};
    for (float cap = 1e2f; cap < 1e9f; cap *= 100) {
        p.softcap = cap;
        cr_expect(accepts(&p, &a, ARRAY_O, 0, 1, 1, 0));
        cr_expect(!accepts(&p, &a, ARRAY_O, 0, 1, 1, 1e-4), "cap %g", (double)cap);
        cr_expect(!accepts(&p, &a, ARRAY_LSE, 0, 1, 1, 1e-4), "cap %g", (double)cap);
    }
    free(q), free(k), free(v);
}

/* A row at -1e30 everywhere is a row like another: o is the mean of v, not 0. */
Test(losses, a_row_at_a_finite_mask_is_no_empty_row)
{
    float q[4] = {0}, k[3 * 4], v[] = {1, 2, 6}, bias[] = {-1e30f, -1e30f, -1e30f};
    for (int i = 0; i < 12; i++) k[i] = (float)i;
    struct problem p = heads(3, 4);
    p.has_bias = 1;
    struct arrays a = {.q = q, .k = k, .v = v, .bias = bias};
    cr_expect(accepts(&p, &a, ARRAY_O, 0, 1, 1, 0));
    cr_expect(!accepts(&p, &a, ARRAY_O, 0, 1, 0, 0));
    cr_expect(!accepts(&p, &a, ARRAY_LSE, 0, 1, 0, 0));
}

/* Raw moments cancel at a mean of 1e4; zeros for y; both were once accepted. */
Test(losses, moments_and_zeros)
{
    enum { N = 1003 };
    struct random g = {9};
    struct problem p = {.op = OP_FUSED_REDUCTION, .rows = 1, .cols = N};
    float *x = oracle_normals(&g, N, 1), *w = oracle_normals(&g, N, 1), square = 0, sum = 0;
    for (size_t j = 0; j < N; j++) x[j] += 1e4f;
    struct arrays a = {.x = x, .w = w};
    for (size_t j = 0; j < N; j++) sum += x[j], square = fmaf(x[j], x[j], square);
    double raw = (double)(square / N - (sum / N) * (sum / N));
    cr_expect(accepts(&p, &a, ARRAY_Y, 0, N_FUSED, 1, 0));
    cr_expect(!accepts(&p, &a, ARRAY_Y, FUSED_VARIANCE, N_FUSED, 0, raw), "%g", raw);
    cr_expect(!accepts(&p, &a, ARRAY_Y, FUSED_VARIANCE, N_FUSED, 0, 0));
    for (size_t j = 0; j < N; j++) x[j] -= 1e4f;
    cr_expect(!accepts(&p, &a, ARRAY_Y, FUSED_LOGSOFTMAX_DOT, N_FUSED, 0, 0));
    p.op = OP_MEAN;
    cr_expect(!accepts(&p, &a, ARRAY_Y, 0, 1, 0, 0));
    free(x), free(w);
}

Test(losses, the_log_form_is_held_to_its_sums)
{
    enum { N = 2050, D = 64 };
    struct random g = {10};
    struct problem p = heads(N, D);
    p.op = OP_LOGSOFTMAX_ATTENTION;
    float *q = oracle_normals(&g, D, 1), *k = oracle_normals(&g, N * D, 1);
    float *v = oracle_normals(&g, N, 1);
    struct arrays a = {.q = q, .k = k, .v = v};
    cr_expect(accepts(&p, &a, ARRAY_O, 0, 1, 1, 0));
    cr_expect(!accepts(&p, &a, ARRAY_O, 0, 1, 1, 8), "one key's share"); /* (s - lse) v */
    free(q), free(k), free(v);
}
