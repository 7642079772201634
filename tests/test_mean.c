/* The streaming mean in its codings (03_online_softmax/variants/mean.c): each one's failure, and
 * each one's error against the bound proved in notes/streaming.md. */
#include <criterion/criterion.h>

#include "harness.h"
#include "problem/random.h"

extern const struct variant mean_total, mean_product_first, mean_weighted, mean_increment;
static const struct variant *const codings[] = {&mean_total, &mean_weighted, &mean_product_first,
                                                &mean_increment};

#define U 0x1p-24
enum { MILLION = 1000000 };
static float x[MILLION];

static float mean_of(const struct variant *v, size_t n)
{
    float y = -1.0f;
    struct problem p = {.op = OP_MEAN, .rows = 1, .cols = n};
    struct arrays a = {.x = x, .y = &y};
    variant_call(v, &p, &a);
    return y;
}

/* A million values between 0.99 and 1 times 3e38; returns their mean. */
static double near_max(void)
{
    struct random r = {1};
    double sum = 0; /* in units of 1e38, so that it stays small */
    for (size_t j = 0; j < MILLION; j++) {
        x[j] = 3e38f * (1.0f - 0.01f * random_uniform(&r));
        sum += x[j] / 1e38;
    }
    return sum / MILLION * 1e38;
}

Test(mean, total_overflows_on_a_million_values_near_3e38)
{
    near_max();
    cr_assert(mean_of(&mean_total, 1) == x[0] && mean_of(&mean_total, 2) == INFINITY);
    cr_assert(mean_of(&mean_total, MILLION) == INFINITY);
}

Test(mean, product_first_overflows_at_the_third_value)
{
    near_max();
    for (size_t n = 1; n <= 4; n++)
        cr_assert(isfinite(mean_of(&mean_product_first, n < 4 ? n : MILLION)) == (n < 3));
}

/* Equal values, so that any error is drift. */
Test(mean, weighted_form_drifts_by_a_quarter_percent)
{
    for (size_t j = 0; j < MILLION; j++) x[j] = 3e38f;
    double error = mean_of(&mean_weighted, MILLION) / 3e38 - 1;
    cr_assert(error < -0.0015 && error > -0.0035, "relative error %g", error);
    cr_assert(fabs(error) <= (MILLION / 2.0 + 2) * U, "relative error %g", error);
    cr_assert(mean_of(&mean_increment, MILLION) == 3e38f, "no increment, no error");
}

Test(mean, increment_form_is_right_to_2e_5_on_a_million_values_near_3e38)
{
    double mean = near_max(), drift = fabs(mean_of(&mean_weighted, MILLION) - mean);
    cr_assert(fabs(mean_of(&mean_increment, MILLION) - mean) <= 2e-5 * mean);
    cr_assert(drift > 1e-4 * mean && drift <= (1.5 * MILLION + 1) * U * 3e38, "weighted: %g", drift);
}

Test(mean, increment_form_overflows_for_opposite_signs)
{
    x[0] = 3e38f, x[1] = -3e38f;
    cr_assert(mean_of(&mean_increment, 2) == -INFINITY);
    cr_assert(mean_of(&mean_weighted, 2) == 0.0f && mean_of(&mean_total, 2) == 0.0f);
}

/* What they promise to `check`: not these inputs. */
Test(mean, codings_that_overflow_do_not_promise_3e38)
{
    for (int i = 0; i < 4; i++)
        cr_assert((codings[i]->max_score >= 3e38f) == (codings[i] == &mean_weighted));
}

/* (n - 1) u, (3n/2 + 1) u, (n/2 + 5) u times max|x|, at every length; NaN for no number. */
Test(mean, every_coding_is_within_its_bound)
{
    struct random r = {2};
    for (int kind = 0; kind < 4; kind++) {
        double sum = 0, most = 0;
        for (size_t n = 0; n <= 3000; n++) {
            double mean = sum / (double)n, k = (double)n;
            const double bound[] = {k, 1.5 * k + 1, 1.5 * k + 1, 0.5 * k + 5};
            for (int i = 0; i < 4 && (n <= 40 || n % 97 == 0); i++) {
                double error = fabs(mean_of(codings[i], n) - mean);
                cr_assert(n ? error <= bound[i] * U * most : isnan(error),
                          "%s, kind %d, n = %zu: %g > %g", codings[i]->name, kind, n, error,
                          bound[i] * U * most);
            }
            float z = random_normal(&r);
            x[n] = kind == 0 ? z : kind == 1 ? 1.0f : kind == 2 ? 100 + z : z * z * z;
            sum += x[n];
            most = fmax(most, fabs(x[n]));
        }
    }
}
