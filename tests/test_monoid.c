/* test_monoid.c: the laws of the SE monoid (04_monoid_tiled_cpu/monoid.h), bit for bit where
 * they hold so, else against the bound that notes/numerics.md proves.  There u = 2^-24, kappa is the
 * error of expf in units of u, d_mean = sum_j p_j (m - x_j).  Folds of keys in parts and in trees are
 * variants of stage 4, which `check` holds against that bound; that a shift of all scores changes no
 * bit is in test_claims.py. */
#include <criterion/criterion.h>
#include <string.h>

#include "../04_monoid_tiled_cpu/monoid.h"
#include "problem/random.h"

#define U 0x1p-24
#define KAPPA 1.1 /* the C library's expf, tested here on every score that is used */
enum { DV = 5 };

static int same_bits(const void *x, const void *y, size_t n)
{
    return memcmp(x, y, n * sizeof(float)) == 0;
}

static int se_same(struct se x, struct se y)
{
    return same_bits(&x.m, &y.m, 1) && same_bits(&x.l, &y.l, 1);
}

/* An element as it arises in use: m of any size, l >= 1. */
static struct se random_element(struct random *r, float spread)
{
    return (struct se){spread * random_normal(r), 1.0f + 40.0f * random_uniform(r)};
}

Test(monoid, unit_is_identity_bit_for_bit_on_both_sides)
{
    struct random r = {1};
    for (int i = 0; i < 10000; i++) {
        struct se x = random_element(&r, 30.0f);
        cr_assert(se_same(se_merge(x, se_unit()), x), "case %d: x . unit differs", i);
        cr_assert(se_same(se_merge(se_unit(), x), x), "case %d: unit . x differs", i);
    }
    for (int i = 0; i < 200; i++) {
        float o[DV], unit_o[DV], copy[DV];
        for (int c = 0; c < DV; c++) copy[c] = o[c] = random_normal(&r);
        struct se s = random_element(&r, 30.0f);
        struct aggregate x = {s.m, s.l, o, DV}, unit = {.o = unit_o, .d = DV};
        aggregate_unit(&unit);
        aggregate_merge(&x, &unit);
        cr_assert(se_same((struct se){x.m, x.l}, s) && same_bits(o, copy, DV), "x . unit");
        aggregate_merge(&unit, &x);
        cr_assert(se_same((struct se){unit.m, unit.l}, s) && same_bits(unit_o, copy, DV),
                  "unit . x");
    }
}

Test(monoid, unit_with_unit_is_the_unit_and_not_nan)
{
    struct se e = se_merge(se_unit(), se_unit());
    cr_assert(e.m == -INFINITY && e.l == 0.0f, "got (%g, %g)", e.m, e.l);
    float o[2][DV], lse;
    struct aggregate x = {.o = o[0], .d = DV}, y = {.o = o[1], .d = DV};
    aggregate_unit(&x);
    aggregate_unit(&y);
    aggregate_merge(&x, &y);
    aggregate_finish(&x, o[0], &lse);
    cr_assert(lse == -INFINITY, "lse %g", lse);
    for (int c = 0; c < DV; c++) cr_assert(o[0][c] == 0.0f, "o[%d] = %g", c, o[0][c]);
}

Test(monoid, masked_score_lifts_to_the_unit_whatever_its_value_holds)
{
    float o[DV], v[DV] = {NAN, INFINITY, -INFINITY, 1.0f, 0.0f};
    struct aggregate x = {.o = o, .d = DV};
    aggregate_unit(&x);
    aggregate_push(&x, -INFINITY, v);
    cr_assert(x.m == -INFINITY && x.l == 0.0f);
    for (int c = 0; c < DV; c++) cr_assert(o[c] == 0.0f, "o[%d] = %g", c, o[c]);
    aggregate_push(&x, -INFINITY, NULL);
    aggregate_push(&x, 3.0f, (float[DV]){1, 2, 3, 4, 5});
    aggregate_push(&x, -INFINITY, v);
    for (int c = 0; c < DV; c++) cr_assert(o[c] == c + 1.0f, "o[%d] = %g", c, o[c]);
}

Test(monoid, merge_is_commutative_bit_for_bit)
{
    struct random r = {2};
    for (int i = 0; i < 100000; i++) {
        struct se x = random_element(&r, 5.0f), y = random_element(&r, 5.0f);
        cr_assert(se_same(se_merge(x, y), se_merge(y, x)), "case %d: m %g %g l %g %g", i,
                  x.m, y.m, x.l, y.l);
    }
}

/* |l1 - l2| <= 2 (d_mean + 2 (kappa + 1) + 2) u l, with d_mean = sum_i w_i (m - m_i) and
 * w_i the share of part i in l. */
Test(monoid, merge_is_associative_within_the_proved_bound)
{
    struct random r = {3};
    double worst = 0;
    int differ = 0;
    for (int i = 0; i < 200000; i++) {
        struct se x[3];
        for (int t = 0; t < 3; t++) x[t] = random_element(&r, i % 2 ? 3.0f : 30.0f);
        struct se left = se_merge(se_merge(x[0], x[1]), x[2]);
        struct se right = se_merge(x[0], se_merge(x[1], x[2]));
        double m = fmax(fmax(x[0].m, x[1].m), x[2].m), l = 0, d_mean = 0;
        for (int t = 0; t < 3; t++) l += x[t].l * exp(x[t].m - m);
        for (int t = 0; t < 3; t++) d_mean += x[t].l * exp(x[t].m - m) / l * (m - x[t].m);
        double bound = 2 * (d_mean + 2 * (KAPPA + 1) + 2) * U * l;
        double error = fabs((double)left.l - right.l);
        cr_assert(left.m == m && right.m == m);
        cr_assert(error <= bound, "case %d: %g > %g", i, error, bound);
        worst = fmax(worst, error / bound);
        differ += left.l != right.l;
    }
    cr_assert(differ > 0 && worst > 0.05, "the bound was never approached: %g", worst);
}

Test(monoid, equal_maximum_multiplies_by_exactly_one)
{
    cr_assert(se_factor(3.5f, 3.5f) == 1.0f);
    cr_assert(se_factor(INFINITY, INFINITY) == 1.0f, "inf - inf");
    struct se x = {2.0f, 1.2345678f}, y = {2.0f, 3.0f};
    cr_assert(se_merge(x, y).l == 1.2345678f + 3.0f);
}

/* The claim behind KAPPA, on the range that a fold uses. */
Test(monoid, expf_is_within_kappa)
{
    struct random r = {60};
    for (int i = 0; i < 200000; i++) {
        float x = -87.0f * random_uniform(&r);
        double error = fabs(expf(x) - exp(x)) / exp(x);
        cr_assert(error <= KAPPA * U, "expf(%.9g) errs by %g u", x, error / U);
    }
}
