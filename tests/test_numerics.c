/* The experiments of notes/numerics.md that need no stage. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "problem/random.h"

#define U 0x1p-24
#define KAPPA 1.1

enum { MOST = 20000, KINDS = 9 };

/* Rows that are hard in different ways. */
static void fill(float *x, size_t n, int kind, uint64_t seed)
{
    struct random r = {seed};
    for (size_t j = 0; j < n; j++) {
        float z = random_normal(&r), t = (float)j / (float)n;
        switch (kind) {
        case 0: x[j] = z; break;
        case 1: x[j] = 30 * z; break;
        case 2: x[j] = 1e4f + z; break;
        case 3: x[j] = -1e4f + 5 * z; break;
        case 4: x[j] = 60 * t; break;
        case 5: x[j] = -60 * t; break;
        case 6: x[j] = 1.5f; break;
        case 7: x[j] = j == n / 2 ? 50.0f : z; break;
        default: x[j] = 80 * random_uniform(&r); break;
        }
    }
}

/* m, l, mean distance and entropy in double. */
static void exact(const float *x, size_t n, double *m, double *l, double *d_mean,
                  double *h)
{
    *m = -INFINITY;
    *l = *d_mean = *h = 0;
    for (size_t j = 0; j < n; j++) *m = fmax(*m, x[j]);
    for (size_t j = 0; j < n; j++) *l += exp(x[j] - *m);
    for (size_t j = 0; j < n; j++) {
        double p = exp(x[j] - *m) / *l;
        *d_mean += p * (*m - x[j]);
        *h += p > 0 ? -p * log(p) : 0;
    }
}

Test(numerics, mean_distance_is_at_most_the_entropy)
{
    static float x[MOST];
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t n = 1; n <= MOST; n = n * 3 + 1) {
            double m, l, d_mean, h;
            fill(x, n, kind, n);
            exact(x, n, &m, &l, &d_mean, &h);
            cr_assert(d_mean <= h + 1e-9 && h <= log((double)n) + 1e-9,
                      "kind %d, n = %zu: %g, %g, %g", kind, n, d_mean, h, log((double)n));
        }
}

/* p_j (d_j + d_mean + 2 kappa + D + 2) u + 2^-126 with D = n - 1 and a division. */
Test(numerics, three_passes_stay_within_their_bound)
{
    static float x[MOST], p[MOST];
    double worst = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t n = 1; n <= MOST; n = n * 3 + 1) {
            double m, l, d_mean, h;
            float m_f = -INFINITY, l_f = 0;
            fill(x, n, kind, 7 * n);
            exact(x, n, &m, &l, &d_mean, &h);
            for (size_t j = 0; j < n; j++) m_f = x[j] > m_f ? x[j] : m_f;
            for (size_t j = 0; j < n; j++) l_f += p[j] = expf(x[j] - m_f);
            for (size_t j = 0; j < n; j++) {
                double want = exp(x[j] - m) / l, error = fabs(p[j] / l_f - want);
                double steps = m - x[j] + d_mean + 2 * KAPPA + (double)n + 1;
                double bound = want * steps * U + 0x1p-126;
                cr_assert(error <= bound, "kind %d, n = %zu, j = %zu: %g > %g", kind, n,
                          j, error, bound);
                worst = fmax(worst, error / bound);
            }
        }
    cr_assert(worst > 0.05, "the bound was never approached: %g", worst);
}

Test(numerics, absolute_error_does_not_depend_on_the_range)
{
    static float x[MOST], p[MOST];
    for (float spread = 1; spread <= 1e6f; spread *= 10) {
        double m, l, d_mean, h;
        float m_f = -INFINITY, l_f = 0;
        size_t n = 1000;
        fill(x, n, 0, 3);
        for (size_t j = 0; j < n; j++) x[j] *= spread;
        exact(x, n, &m, &l, &d_mean, &h);
        for (size_t j = 0; j < n; j++) m_f = x[j] > m_f ? x[j] : m_f;
        for (size_t j = 0; j < n; j++) l_f += p[j] = expf(x[j] - m_f);
        for (size_t j = 0; j < n; j++) {
            double want = exp(x[j] - m) / l, error = fabs(p[j] / l_f - want);
            double steps = log((double)n) + 2 * KAPPA + (double)n + 1;
            cr_assert(error <= (0.37 + want * steps) * U, "spread %g", spread);
        }
    }
}

/* At m = 1e4 the sum m + log l is rounded to a multiple of 2^-10. */
Test(numerics, log_softmax_must_subtract_the_maximum_first)
{
    const float x[] = {1e4f, 1e4f - 1.0f, 1e4f - 2.5f};
    double want = -log(1 + exp(-1) + exp(-2.5));
    float l = 1.0f + expf(-1.0f) + expf(-2.5f);
    float right = (x[0] - 1e4f) - logf(l), wrong = x[0] - (1e4f + logf(l));
    cr_assert(fabs(right - want) < 1e-6, "%g", right - want);
    cr_assert(fabs(wrong - want) > 1e-5, "%g", wrong - want);
}

Test(numerics, a_float_sum_of_ones_stops_at_2_to_the_24)
{
    volatile float sum = 16777215.0f;
    sum = sum + 1.0f;
    cr_assert(sum == 16777216.0f);
    sum = sum + 1.0f;
    cr_assert(sum == 16777216.0f, "%.9g", sum);
    float halves = 16777216.0f + 16777216.0f; /* two accumulators get there */
    cr_assert(halves == 33554432.0f);
}
