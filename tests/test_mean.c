/* The streaming mean in its codings (03_online_softmax/variants/mean.c): each one's failure, and
 * each one's error against the bound proved in notes/streaming.md. */
#include <criterion/criterion.h>
#include <float.h>
#include <stdlib.h>

#include "problem/random.h"
#include "harness.h"

extern const struct variant mean_total, mean_product_first, mean_weighted, mean_increment;

#define U 0x1p-24
enum { MILLION = 1000000 };

static float mean_of(const struct variant *v, const float *x, size_t n)
{
    float y = -1.0f;
    struct problem p = {.op = OP_MEAN, .rows = 1, .cols = n};
    struct arrays a = {.x = x, .y = &y};
    variant_call(v, &p, &a);
    return y;
}

/* A million values between 0.99 and 1 times 3e38; *mean is theirs, in units of 1e38 so
 * that the double sum stays small. */
static float *near_max(double *mean)
{
    struct random r = {1};
    float *x = malloc(MILLION * sizeof *x);
    double sum = 0;
    for (size_t j = 0; j < MILLION; j++) {
        x[j] = 3e38f * (1.0f - 0.01f * random_uniform(&r));
        sum += x[j] / 1e38;
    }
    *mean = sum / MILLION * 1e38;
    return x;
}

Test(mean, total_overflows_on_a_million_values_near_3e38)
{
    double mean;
    float *x = near_max(&mean);
    cr_assert(mean_of(&mean_total, x, MILLION) == INFINITY);
    cr_assert(mean_of(&mean_total, x, 1) == x[0]);
    cr_assert(mean_of(&mean_total, x, 2) == INFINITY, "3e38 + 3e38 > %g", FLT_MAX);
    free(x);
}

Test(mean, product_first_overflows_at_the_third_value)
{
    double mean;
    float *x = near_max(&mean);
    cr_assert(isfinite(mean_of(&mean_product_first, x, 1)));
    cr_assert(isfinite(mean_of(&mean_product_first, x, 2)));
    cr_assert(mean_of(&mean_product_first, x, 3) == INFINITY);
    cr_assert(mean_of(&mean_product_first, x, MILLION) == INFINITY);
    free(x);
}

/* Equal values, so that any error is drift. */
Test(mean, weighted_form_drifts_by_a_quarter_percent)
{
    float *x = malloc(MILLION * sizeof *x);
    for (size_t j = 0; j < MILLION; j++) x[j] = 3e38f;
    double error = mean_of(&mean_weighted, x, MILLION) / 3e38 - 1;
    cr_assert(error < -0.0015 && error > -0.0035, "relative error %g", error);
    cr_assert(fabs(error) <= (MILLION / 2.0 + 2) * U, "relative error %g", error);
    cr_assert(mean_of(&mean_increment, x, MILLION) == 3e38f, "no increment, no error");
    free(x);
}

Test(mean, weighted_form_is_within_its_bound_on_a_million_values_near_3e38)
{
    double mean;
    float *x = near_max(&mean);
    double error = fabs(mean_of(&mean_weighted, x, MILLION) - mean);
    cr_assert(error <= (1.5 * MILLION + 1) * U * 3e38, "error %g", error);
    cr_assert(error > 1e-4 * mean, "it did not drift: error %g", error);
    free(x);
}

Test(mean, increment_form_is_right_to_2e_5_on_a_million_values_near_3e38)
{
    double mean;
    float *x = near_max(&mean);
    double error = fabs(mean_of(&mean_increment, x, MILLION) - mean);
    cr_assert(error <= 2e-5 * mean, "relative error %g", error / mean);
    free(x);
}

Test(mean, increment_form_overflows_for_opposite_signs)
{
    const float x[] = {3e38f, -3e38f};
    cr_assert(mean_of(&mean_increment, x, 2) == -INFINITY);
    cr_assert(mean_of(&mean_weighted, x, 2) == 0.0f);
    cr_assert(mean_of(&mean_total, x, 2) == 0.0f);
}

/* What they promise to `check`: not these inputs. */
Test(mean, codings_that_overflow_do_not_promise_3e38)
{
    cr_assert(mean_total.max_score < 3e38f && mean_product_first.max_score < 3e38f);
    cr_assert(mean_increment.max_score < 3e38f && mean_weighted.max_score >= 3e38f);
}

/* (n - 1) u, (3n/2 + 1) u, (n/2 + 5) u times max|x|, at every length. */
Test(mean, every_coding_is_within_its_bound)
{
    struct random r = {2};
    static float x[3000];
    for (int kind = 0; kind < 4; kind++) {
        double sum = 0, most = 0;
        for (size_t n = 1; n <= 3000; n++) {
            float z = random_normal(&r);
            x[n - 1] = kind == 0 ? z : kind == 1 ? 1.0f : kind == 2 ? 100 + z : z * z * z;
            sum += x[n - 1];
            most = fmax(most, fabs(x[n - 1]));
            if (n > 40 && n % 97) continue;
            double mean = sum / (double)n, k = (double)n;
            const struct variant *const v[] = {&mean_total, &mean_weighted,
                                               &mean_product_first, &mean_increment};
            const double bound[] = {k, 1.5 * k + 1, 1.5 * k + 1, 0.5 * k + 5};
            for (int i = 0; i < 4; i++) {
                double error = fabs(mean_of(v[i], x, n) - mean);
                cr_assert(error <= bound[i] * U * most, "%s, kind %d, n = %zu: %g > %g",
                          v[i]->name, kind, n, error, bound[i] * U * most);
            }
        }
    }
}

Test(mean, mean_of_nothing_is_nan)
{
    const float nothing = 1.0f; /* not read */
    const struct variant *const v[] = {&mean_total, &mean_weighted, &mean_product_first,
                                       &mean_increment};
    for (int i = 0; i < 4; i++)
        cr_assert(isnan(mean_of(v[i], &nothing, 0)), "%s", v[i]->name);
}
