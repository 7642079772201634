/* test_monoid_fold.c: rows folded with the SE monoid, in parts and in any order, against the
 * bounds that notes/numerics.md proves.  The exact values come from double sums of the
 * definition, never from the code under test. */
#include "monoid_bounds.h"

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
