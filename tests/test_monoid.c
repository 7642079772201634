/* test_monoid.c: the laws of the SE monoid (04_monoid_tiled_cpu/monoid.h), bit for bit where
 * they hold so, else against the bounds that notes/numerics.md proves.  There u = 2^-24, kappa is the
 * error of expf in units of u, d_mean = sum_j p_j (m - x_j), R how often the maximum rises, and D
 * the additions on the longest path of a sum. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
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
        cr_assert(se_same(aggregate_se(&x), s) && same_bits(o, copy, DV), "x . unit");
        aggregate_merge(&unit, &x);
        cr_assert(se_same(aggregate_se(&unit), s) && same_bits(unit_o, copy, DV),
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
    aggregate_lift(&x, -INFINITY, v);
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

/* ---- rows folded in parts and in any order; the exact values come from double sums of the
 * definition, never from the code under test ---- */

enum { MOST = 3000 };

struct row_case { size_t n; float x[MOST], v[MOST][DV]; };

/* What the fold must be, in double.  mass = sum e^{x - m} |v|; mass_d: times m - x. */
struct exact { double m, l, d_mean, lse, o[DV], mass[DV], mass_d[DV], v_max[DV]; };

static struct exact exact_fold(const struct row_case *c, size_t n)
{
    struct exact e = {.m = -INFINITY};
    for (size_t j = 0; j < n; j++) e.m = fmax(e.m, c->x[j]);
    for (size_t j = 0; j < n; j++) {
        double p = exp(c->x[j] - e.m);
        e.l += p;
        e.d_mean += p > 0 ? p * (e.m - c->x[j]) : 0;
        for (int k = 0; k < DV; k++) {
            e.o[k] += p * c->v[j][k];
            e.mass[k] += p * fabs(c->v[j][k]);
            e.mass_d[k] += p > 0 ? p * fabs(c->v[j][k]) * (e.m - c->x[j]) : 0;
            e.v_max[k] = fmax(e.v_max[k], fabs(c->v[j][k]));
        }
    }
    e.d_mean /= e.l;
    e.lse = e.m + log(e.l);
    return e;
}

enum kind {
    RANDOM, ASCENDING, DESCENDING, EQUAL, OUTLIER_FIRST, OUTLIER_LAST, FAR, KINDS
};

static struct row_case *row_case(enum kind kind, size_t n, uint64_t seed)
{
    struct row_case *c = calloc(1, sizeof *c);
    struct random r = {seed};
    c->n = n;
    for (size_t j = 0; j < n; j++) {
        c->x[j] = kind == RANDOM       ? 4.0f * random_normal(&r)
                  : kind == ASCENDING  ? 0.05f * (float)j
                  : kind == DESCENDING ? -0.05f * (float)j
                  : kind == EQUAL      ? 7.0f
                  : kind == FAR        ? random_normal(&r) - 1e4f
                                       : random_normal(&r);
        for (int k = 0; k < DV; k++) c->v[j][k] = random_normal(&r);
    }
    if (kind == OUTLIER_FIRST) c->x[0] = 50.0f;
    if (kind == OUTLIER_LAST) c->x[n - 1] = 50.0f;
    return c;
}

/* Checks one fold of c against numerics 5.3, 5.5 and 5.6 with exact scores:
 *     l      (d_mean + kappa + D + R (kappa + 1)) u l
 *     o / l  u sum p|v| (d_j + d_mean + 2 kappa + 2 R (kappa + 1) + 2 D + R + 3)
 * D and R are at most n - 1, and also at most `depth`, whatever tree made the fold. */
static void check_fold(const struct aggregate *x, const struct exact *e, double depth,
                       const char *what)
{
    float o[DV], lse;
    aggregate_finish(x, o, &lse);
    double relative = (e->d_mean + KAPPA + depth + depth * (KAPPA + 1)) * U;
    cr_assert(x->m == e->m, "%s: m %.9g, want %.9g", what, x->m, e->m);
    cr_assert(x->l >= 1.0f, "%s: l = %.9g < 1", what, x->l);
    cr_assert(fabs(x->l - e->l) <= relative * e->l, "%s: l %.9g, want %.9g, allowed %g",
              what, x->l, e->l, relative * e->l);
    double allowed = relative + (2 * (1 + fabs(log(e->l))) + fabs(e->lse)) * U;
    cr_assert(fabs(lse - e->lse) <= allowed, "%s: lse %.9g, want %.9g, allowed %g", what,
              lse, e->lse, allowed);
    double steps = e->d_mean + 2 * KAPPA + 2 * depth * (KAPPA + 1) + 3 * depth + 3;
    for (int k = 0; k < DV; k++) {
        double bound = U * (steps * e->mass[k] + e->mass_d[k]) / e->l;
        double error = fabs(o[k] - e->o[k] / e->l);
        cr_assert(error <= bound, "%s: o[%d] %.9g, want %.9g, allowed %g", what, k, o[k],
                  e->o[k] / e->l, bound);
        cr_assert(fabs(o[k]) <= e->v_max[k] * (1 + 2 * (steps + 2) * U),
                  "%s: o[%d] = %g outside the values", what, k, o[k]);
    }
}

static void fold_range(const struct row_case *c, size_t first, size_t last,
                       struct aggregate *x)
{
    aggregate_unit(x);
    for (size_t j = first; j < last; j++) aggregate_push(x, c->x[j], c->v[j]);
}

/* x = the fold of keys first .. last - 1 by a random tree of parentheses. */
static void fold_random_tree(const struct row_case *c, size_t first, size_t last,
                             struct random *r, struct aggregate *x)
{
    float o[DV];
    struct aggregate right = {.o = o, .d = DV};
    if (last - first <= 1 || random_below(r, 4) == 0) {
        fold_range(c, first, last, x);
        return;
    }
    size_t middle = first + random_below(r, last - first + 1);
    if (middle == last) { /* an empty part is allowed, but not twice in a row */
        fold_range(c, first, last, x);
        aggregate_unit(&right);
    } else {
        fold_random_tree(c, first, middle, r, x);
        fold_random_tree(c, middle, last, r, &right);
    }
    aggregate_merge(x, &right);
}

Test(monoid, every_partition_gives_the_same_answer)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        struct row_case *c = row_case(kind, 300, 10 + kind);
        struct exact e = exact_fold(c, c->n);
        float o[2][DV];
        struct aggregate all = {.o = o[0], .d = DV}, part = {.o = o[1], .d = DV};
        for (size_t size = 1; size <= c->n; size++) {
            aggregate_unit(&all);
            for (size_t j = 0; j < c->n; j += size) {
                fold_range(c, j, j + size < c->n ? j + size : c->n, &part);
                aggregate_merge(&all, &part);
            }
            char what[64];
            snprintf(what, sizeof what, "kind %d, chunks of %zu", kind, size);
            check_fold(&all, &e, (double)c->n, what);
        }
        struct random r = {100 + kind};
        for (int i = 0; i < 200; i++) {
            char what[64];
            snprintf(what, sizeof what, "kind %d, random tree %d", kind, i);
            fold_random_tree(c, 0, c->n, &r, &all);
            check_fold(&all, &e, (double)c->n, what);
        }
        free(c);
    }
}

Test(monoid, every_order_of_the_keys_gives_the_same_answer)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        struct row_case *c = row_case(kind, MOST, 20 + kind);
        struct exact e = exact_fold(c, c->n);
        struct random r = {200 + kind};
        for (int i = 0; i < 10; i++) {
            float o[DV];
            struct aggregate x = {.o = o, .d = DV};
            fold_range(c, 0, c->n, &x);
            check_fold(&x, &e, (double)c->n, "permuted");
            for (size_t j = c->n - 1; j > 0; j--) { /* shuffle for the next round */
                size_t k = random_below(&r, j + 1);
                float t = c->x[j], row[DV];
                c->x[j] = c->x[k];
                c->x[k] = t;
                memcpy(row, c->v[j], sizeof row);
                memcpy(c->v[j], c->v[k], sizeof row);
                memcpy(c->v[k], row, sizeof row);
            }
        }
        free(c);
    }
}

/* Scores on a grid that a shift by a power of two keeps exact: not one bit of l or o may
 * change, because only differences of scores enter. */
Test(monoid, shifting_all_scores_changes_only_m)
{
    struct row_case *c = row_case(RANDOM, 500, 30);
    float o[2][DV];
    struct aggregate x = {.o = o[0], .d = DV}, y = {.o = o[1], .d = DV};
    for (size_t j = 0; j < c->n; j++) c->x[j] = roundf(c->x[j] * 64.0f) / 64.0f;
    fold_range(c, 0, c->n, &x);
    for (float shift = -16384.0f; shift <= 16384.0f; shift += 2048.0f) {
        for (size_t j = 0; j < c->n; j++) c->x[j] += shift;
        fold_range(c, 0, c->n, &y);
        for (size_t j = 0; j < c->n; j++) c->x[j] -= shift;
        cr_assert(y.m == x.m + shift && same_bits(&x.l, &y.l, 1), "shift %g", shift);
        cr_assert(same_bits(o[0], o[1], DV), "shift %g", shift);
    }
    free(c);
}
