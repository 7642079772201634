/* test_reference.c: the reference of the operations on rows, and what holds of every
 * reference, against closed forms. */
#include "reference_problem.h"
#include "problem/feature.h"
#include "problem/part.h"

Test(reference, softmax_of_logarithms_is_their_numbers)
{
    float x[] = {0, 1, 2, 3};
    struct problem p = rows_problem(OP_SOFTMAX, 1, 4);
    struct arrays a = {.x = x};
    struct standard *r = standard_new(&p, &a);
    long double l = 1 + expl(1) + expl(2) + expl(3);
    for (int j = 0; j < 4; j++)
        NEAR(r->answer[ARRAY_Y].want[j], expl(j) / l, "element %d: %.17g", j, r->answer[ARRAY_Y].want[j]);
    standard_free(r);
}

Test(reference, softmax_of_equal_scores_is_one_over_n)
{
    static float x[3 * 100003];
    for (size_t j = 0; j < 3 * 100003; j++) x[j] = j < 100003 ? 88.5f : -1e30f;
    struct problem p = rows_problem(OP_SOFTMAX, 3, 100003);
    struct arrays a = {.x = x};
    struct standard *r = standard_new(&p, &a);
    double worst = 0;
    for (size_t j = 0; j < 3 * 100003; j++)
        worst = fmax(worst, fabs(r->answer[ARRAY_Y].want[j] * 100003 - 1));
    cr_expect(worst < 1e-15, "off by %.3g", worst);
    standard_free(r);
}

Test(reference, logsoftmax_keeps_its_digits_at_large_scores)
{
    float x[] = {10000, 10000, 9999, -INFINITY};
    struct problem p = rows_problem(OP_LOGSOFTMAX, 1, 4);
    struct arrays a = {.x = x};
    struct standard *r = standard_new(&p, &a);
    long double l = logl(2 + expl(-1));
    NEAR(r->answer[ARRAY_Y].want[0], -l, "%.17g", r->answer[ARRAY_Y].want[0]);
    NEAR(r->answer[ARRAY_Y].want[2], -1 - l, "%.17g", r->answer[ARRAY_Y].want[2]);
    cr_expect(r->answer[ARRAY_Y].want[3] == -INFINITY);
    standard_free(r);
}

Test(reference, masked_row_gives_zero_and_its_logarithm)
{
    float x[] = {-INFINITY, -INFINITY, 1, -INFINITY};
    struct arrays a = {.x = x};
    struct problem p = rows_problem(OP_SOFTMAX, 2, 2);
    struct standard *r = standard_new(&p, &a);
    cr_expect(r->answer[ARRAY_Y].want[0] == 0 && r->answer[ARRAY_Y].want[1] == 0 && r->answer[ARRAY_Y].want[2] == 1 && r->answer[ARRAY_Y].want[3] == 0);
    cr_expect(r->empty_rows == 1);
    standard_free(r);
    p.op = OP_LOGSOFTMAX;
    r = standard_new(&p, &a);
    cr_expect(r->answer[ARRAY_Y].want[0] == -INFINITY && r->answer[ARRAY_Y].want[1] == -INFINITY);
    cr_expect(r->answer[ARRAY_Y].want[2] == 0 && r->answer[ARRAY_Y].want[3] == -INFINITY);
    standard_free(r);
}

Test(reference, nan_or_inf_spoils_its_row_only)
{
    float x[] = {1, NAN, 2, INFINITY, 1, 2};
    struct arrays a = {.x = x};
    struct problem p = rows_problem(OP_SOFTMAX, 3, 2);
    struct standard *r = standard_new(&p, &a);
    cr_expect(isnan(r->answer[ARRAY_Y].want[0]) && isnan(r->answer[ARRAY_Y].want[1]) && isnan(r->answer[ARRAY_Y].want[2]) && isnan(r->answer[ARRAY_Y].want[3]));
    NEAR(r->answer[ARRAY_Y].want[4] + r->answer[ARRAY_Y].want[5], 1.0, "row 2 is %g %g", r->answer[ARRAY_Y].want[4], r->answer[ARRAY_Y].want[5]);
    cr_expect(r->max_score == INFINITY);
    standard_free(r);
}

Test(reference, mean_survives_totals_beyond_float)
{
    float x[] = {3e38f, 3e38f, 3e38f, 1, 2, 6};
    struct arrays a = {.x = x};
    struct problem p = rows_problem(OP_MEAN, 2, 3);
    struct standard *r = standard_new(&p, &a);
    NEAR(r->answer[ARRAY_Y].want[0] / 3e38f, 1.0, "%g", r->answer[ARRAY_Y].want[0]);
    cr_expect(r->answer[ARRAY_Y].want[1] == 3);
    standard_free(r);
}

/* In plain double the 1 drowns in 1e30. */
Test(reference, sums_are_compensated)
{
    float x[] = {1e30f, 1, -1e30f};
    struct arrays a = {.x = x};
    struct problem p = rows_problem(OP_MEAN, 1, 3);
    struct standard *r = standard_new(&p, &a);
    NEAR(r->answer[ARRAY_Y].want[0], 1 / 3.0, "%g", r->answer[ARRAY_Y].want[0]);
    standard_free(r);
    float q[] = {1, 1, 1, 1}, k[] = {1e30f, 1, 0, -1e30f}, v[] = {1}; /* s = scale * 1 */
    a = (struct arrays){.q = q, .k = k, .v = v};
    p = heads_problem(1, 1, 1, 1, 1, 4, 1);
    r = standard_new(&p, &a);
    cr_expect(r->answer[ARRAY_LSE].want[0] == 0.5, "%g", r->answer[ARRAY_LSE].want[0]);
    standard_free(r);
}

/* x = w = 1 .. n: variance and covariance are (n^2 - 1) / 12. */
Test(reference, fused_reductions_of_one_to_n)
{
    enum { N = 40 };
    float x[N];
    long double l = 0, dot = 0, log_dot = 0;
    for (int j = 0; j < N; j++) x[j] = (float)(j + 1);
    for (int j = 0; j < N; j++) l += expl(x[j] - N);
    for (int j = 0; j < N; j++) {
        dot += expl(x[j] - N) / l * x[j];
        log_dot += (x[j] - (N + logl(l))) * x[j];
    }
    struct arrays a = {.x = x, .w = x};
    struct problem p = rows_problem(OP_FUSED_REDUCTION, 1, N);
    struct standard *r = standard_new(&p, &a);
    NEAR(r->answer[ARRAY_Y].want[FUSED_LSE], N + logl(l), "lse %.17g", r->answer[ARRAY_Y].want[FUSED_LSE]);
    NEAR(r->answer[ARRAY_Y].want[FUSED_SOFTMAX_DOT], dot, "dot %.17g", r->answer[ARRAY_Y].want[FUSED_SOFTMAX_DOT]);
    NEAR(r->answer[ARRAY_Y].want[FUSED_VARIANCE], (N * N - 1) / 12.0, "variance %.17g",
         r->answer[ARRAY_Y].want[FUSED_VARIANCE]);
    NEAR(r->answer[ARRAY_Y].want[FUSED_COVARIANCE], (N * N - 1) / 12.0, "covariance %.17g",
         r->answer[ARRAY_Y].want[FUSED_COVARIANCE]);
    NEAR(r->answer[ARRAY_Y].want[FUSED_LOGSOFTMAX_DOT], log_dot, "log dot %.17g",
         r->answer[ARRAY_Y].want[FUSED_LOGSOFTMAX_DOT]);
    standard_free(r);
}

Test(reference, half_inputs_are_widened_exactly)
{
    uint16_t x[] = {float_to_half(1.5f), float_to_half(0.1f)};
    struct arrays a = {.x = x};
    struct problem p = rows_problem(OP_SOFTMAX, 1, 2);
    p.dtype = F16;
    struct standard *r = standard_new(&p, &a);
    long double d = expl((long double)half_to_float(x[1]) - 1.5L);
    NEAR(r->answer[ARRAY_Y].want[0], 1 / (1 + d), "%.17g", r->answer[ARRAY_Y].want[0]);
    standard_free(r);
}

Test(reference, result_does_not_depend_on_the_thread_count)
{
    size_t n;
    const struct test_case *c = test_cases(&n);
    for (size_t i = 0; i < n; i += 37) {
        if (c[i].only_gpu || problem_features(&c[i].problem) & LAYOUTS) continue; /* in parts */
        struct inputs *in = inputs_new(&c[i], F32, 1);
        struct standard *first = standard_new(&in->problem, &in->arrays);
        for (int threads = 1; threads <= 3; threads++) {
            extern void omp_set_num_threads(int);
            omp_set_num_threads(threads);
            struct standard *r = standard_new(&in->problem, &in->arrays);
            cr_expect(!r->answer[ARRAY_O].n || !memcmp(r->answer[ARRAY_O].want, first->answer[ARRAY_O].want, r->answer[ARRAY_O].n * sizeof *r->answer[ARRAY_O].want), "%s",
                      c[i].name);
            cr_expect(!r->answer[ARRAY_Y].n || !memcmp(r->answer[ARRAY_Y].want, first->answer[ARRAY_Y].want, r->answer[ARRAY_Y].n * sizeof *r->answer[ARRAY_Y].want), "%s",
                      c[i].name);
            standard_free(r);
        }
        standard_free(first);
        inputs_free(in);
    }
}

/* What the bounds are worth: on random numbers they are no larger than a textbook would
 * give, and every element of every case has one. */
Test(reference, bounds_are_finite_and_small)
{
    float x[64];
    struct random g = {3};
    for (int j = 0; j < 64; j++) x[j] = random_normal(&g);
    struct arrays a = {.x = x};
    struct problem p = rows_problem(OP_SOFTMAX, 1, 64);
    struct standard *r = standard_new(&p, &a);
    for (int j = 0; j < 64; j++) {
        cr_expect(r->answer[ARRAY_Y].bound[j] < 500 * ROUNDOFF * r->answer[ARRAY_Y].want[j], "%g",
                  r->answer[ARRAY_Y].bound[j] / r->answer[ARRAY_Y].want[j]);
        cr_expect(r->answer[ARRAY_Y].bound_safe[j] < r->answer[ARRAY_Y].bound[j] && r->answer[ARRAY_Y].bound_safe[j] > 0);
    }
    standard_free(r);
}
