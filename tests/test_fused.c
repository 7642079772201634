/* Fused reductions (04_monoid_tiled_cpu/variants/fused_reduction.c): fused against unfused, in any
 * partition; and the reduction for which no combine exists. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../04_monoid_tiled_cpu/variants/fused_reduction.h"
#include "attention_problem.h"

extern const struct variant reduction_unfused, reduction_fused;

enum { MOST = 2000 };

struct data { size_t n; float x[MOST], w[MOST]; };

/* kind 0: random; 1: ascending; 2: descending; 3: far from 0; 4: equal */
static struct data *data_new(int kind, size_t n)
{
    struct data *d = calloc(1, sizeof *d);
    struct random r = {(uint64_t)kind};
    d->n = n;
    for (size_t j = 0; j < n; j++) {
        float z = random_normal(&r);
        d->x[j] = kind == 0 ? 3 * z : kind == 1 ? 0.02f * (float)j
                : kind == 2 ? -0.02f * (float)j : kind == 3 ? 1000 + z : 2.5f;
        d->w[j] = random_normal(&r) + (kind == 3 ? z : 0.0f);
    }
    return d;
}

/* The five answers in double, from their definitions, and the size of what is summed:
 * an error of a few n u times it is what a float sum may make. */
static void exact(const struct data *d, double *y, double *size)
{
    double m = -INFINITY, l = 0, mx = 0, mw = 0, n = (double)d->n, sum_w = 0;
    for (size_t j = 0; j < d->n; j++) {
        m = fmax(m, d->x[j]);
        mx += d->x[j] / n;
        mw += d->w[j] / n;
        sum_w += fabs(d->w[j]);
    }
    for (size_t j = 0; j < d->n; j++) l += exp(d->x[j] - m);
    double lse = m + log(l);
    for (int f = 0; f < N_FUSED; f++) y[f] = size[f] = 0;
    y[FUSED_LSE] = lse;
    size[FUSED_LSE] = 1 + fabs(lse) / n;
    double sx = 0, sw = 0;
    for (size_t j = 0; j < d->n; j++) {
        double dx = d->x[j] - mx, dw = d->w[j] - mw, p = exp(d->x[j] - lse);
        y[FUSED_SOFTMAX_DOT] += p * d->w[j];
        size[FUSED_SOFTMAX_DOT] += p * fabs(d->w[j]);
        y[FUSED_VARIANCE] += dx * dx / n;
        y[FUSED_COVARIANCE] += dx * dw / n;
        y[FUSED_LOGSOFTMAX_DOT] += (d->x[j] - lse) * d->w[j];
        size[FUSED_LOGSOFTMAX_DOT] += (fabs(d->x[j] - m) + fabs(lse - m)) * fabs(d->w[j]);
        sx += dx * dx / n;
        sw += dw * dw / n;
    }
    size[FUSED_LOGSOFTMAX_DOT] += sum_w;
    /* the mean's own error, n u |mean|, enters multiplied by the spread, and squared */
    double ex = n * 0x1p-24 * (fabs(mx) + sqrt(sx));
    double ew = n * 0x1p-24 * (fabs(mw) + sqrt(sw));
    size[FUSED_VARIANCE] = sx + (ex * sqrt(sx) + ex * ex) / (n * 0x1p-24);
    size[FUSED_COVARIANCE] =
        sqrt(sx * sw) + (ex * sqrt(sw) + ew * sqrt(sx) + ex * ew) / (n * 0x1p-24);
}

static void expect(const char *what, size_t f, float got, double want, double size,
                   size_t n)
{
    double allowed = 8 * ((double)n + 8) * 0x1p-24 * size;
    cr_assert(fabs(got - want) <= allowed, "%s, %s: got %.9g, want %.9g, allowed %g",
              reductions[f].name, what, got, want, allowed);
}

/* The fold by a random tree of parentheses, with empty parts. */
static struct pair random_tree(const struct reduction *red, const struct data *d,
                               size_t first, size_t last, struct random *r)
{
    if (last - first <= 1 || random_below(r, 4) == 0)
        return pair_fold(red, d->x + first, d->w + first, last - first);
    size_t middle = first + 1 + random_below(r, last - first - 1);
    struct pair left = random_tree(red, d, first, middle, r);
    struct pair right = random_tree(red, d, middle, last, r);
    if (random_below(r, 3) == 0) left = pair_merge(red, left, (struct pair){0});
    if (random_below(r, 3) == 0) right = pair_merge(red, (struct pair){0}, right);
    return pair_merge(red, left, right);
}

Test(fused, any_partition_gives_the_exact_answer)
{
    for (int kind = 0; kind < 5; kind++) {
        struct data *d = data_new(kind, 500);
        double y[N_FUSED], size[N_FUSED];
        exact(d, y, size);
        struct random r = {99};
        for (size_t f = 0; f < N_FUSED; f++) {
            for (size_t step = 1; step <= d->n; step += step < 40 ? 1 : 23) {
                struct pair all = {0};
                for (size_t j = 0; j < d->n; j += step)
                    all = pair_merge(&reductions[f], all,
                                     pair_fold(&reductions[f], d->x + j, d->w + j,
                                               d->n - j < step ? d->n - j : step));
                expect("chunks", f, reductions[f].finish(&all), y[f], size[f], d->n);
                cr_assert(all.n == (float)d->n);
            }
            for (int i = 0; i < 100; i++) {
                struct pair all = random_tree(&reductions[f], d, 0, d->n, &r);
                expect("random tree", f, reductions[f].finish(&all), y[f], size[f], d->n);
            }
        }
        free(d);
    }
}

Test(fused, fused_and_unfused_agree_with_the_exact_answer)
{
    for (int kind = 0; kind < 5; kind++)
        for (size_t n = 1; n <= MOST; n = n < 70 ? n + 1 : n * 5) {
            struct data *d = data_new(kind, n);
            double want[N_FUSED], size[N_FUSED];
            float y[2][N_FUSED];
            struct problem p = {.op = OP_FUSED_REDUCTION, .rows = 1, .cols = n};
            exact(d, want, size);
            for (int u = 0; u < 2; u++) {
                struct arrays a = {.x = d->x, .w = d->w, .y = y[u]};
                variant_call(u ? &reduction_unfused : &reduction_fused, &p, &a);
                for (size_t f = 0; f < N_FUSED; f++)
                    expect(u ? "unfused" : "fused", f, y[u][f], want[f], size[f], n);
            }
            free(d);
        }
}

Test(fused, unit_is_identity_and_masked_scores_are_the_unit)
{
    struct pair unit = {0};
    for (size_t f = 0; f < N_FUSED; f++) {
        struct pair x = reductions[f].lift(-2.5f, -1.0f);
        struct pair left = pair_merge(&reductions[f], unit, x);
        struct pair right = pair_merge(&reductions[f], x, unit);
        struct pair none = pair_merge(&reductions[f], unit, unit);
        cr_assert(memcmp(&left, &x, sizeof x) == 0 && memcmp(&right, &x, sizeof x) == 0);
        cr_assert(memcmp(&none, &unit, sizeof x) == 0, "unit . unit");
    }
    const size_t masking[] = {FUSED_LSE, FUSED_SOFTMAX_DOT, FUSED_LOGSOFTMAX_DOT};
    for (int i = 0; i < 3; i++)
        cr_assert(reductions[masking[i]].lift(-INFINITY, 3.0f).n == 0.0f);
}

/* One pass with raw moments, E x^2 - (E x)^2, is what fusing without `move` gives. */
Test(fused, variance_far_from_zero_survives_where_raw_moments_do_not)
{
    struct data *d = data_new(3, 1000);
    double want[N_FUSED], size[N_FUSED];
    exact(d, want, size);
    float raw_sum = 0, raw_squares = 0;
    for (size_t j = 0; j < d->n; j++) {
        raw_sum += d->x[j];
        raw_squares += d->x[j] * d->x[j];
    }
    float n = (float)d->n, raw = raw_squares / n - (raw_sum / n) * (raw_sum / n);
    struct pair all = pair_fold(&reductions[FUSED_VARIANCE], d->x, d->w, d->n);
    float good = reductions[FUSED_VARIANCE].finish(&all);
    cr_assert(fabs(good / want[FUSED_VARIANCE] - 1) < 1e-3, "%g, want %g", good,
              want[FUSED_VARIANCE]);
    cr_assert(fabs(raw / want[FUSED_VARIANCE] - 1) > 1e-2, "%g, want %g", raw,
              want[FUSED_VARIANCE]);
    free(d);
}

static double sum_of_distances(const double *x, size_t n)
{
    double mean = 0, sum = 0;
    for (size_t j = 0; j < n; j++) mean += x[j] / (double)n;
    for (size_t j = 0; j < n; j++) sum += fabs(x[j] - mean);
    return sum;
}

/* Mean, then |x - mean|, then the sum.  Two sets that agree in number, mean, answer and
 * even variance; one more element, and they differ: no combine can work on such a state.
 * By hand: with 10 the mean is 5/3, and the sums are 58/3 and 64/3. */
Test(fused, sum_of_distances_from_the_mean_has_no_combine)
{
    const double a[] = {-3, -1, 0, 1, 3, 10}, b[] = {4, -1, -1, -1, -1, 10};
    double variance[2] = {0};
    for (int j = 0; j < 5; j++) {
        variance[0] += a[j] * a[j];
        variance[1] += b[j] * b[j];
    }
    cr_assert(sum_of_distances(a, 5) == 8 && sum_of_distances(b, 5) == 8);
    cr_assert(variance[0] == 20 && variance[1] == 20);
    cr_assert(fabs(sum_of_distances(a, 6) - 58.0 / 3) < 1e-12);
    cr_assert(fabs(sum_of_distances(b, 6) - 64.0 / 3) < 1e-12);
}

/* The proof's reason: s -> sum |x_j - s| has a kink at every x_j, so that the answers for
 * all continuations together give the data back.  Here they do. */
Test(fused, kinks_of_the_sum_of_distances_are_the_data)
{
    const double x[] = {-3, -1, 2, 5};
    double found[8];
    size_t n = 0;
    for (double s = -6; s <= 8; s++) {
        double f[3];
        for (int i = 0; i < 3; i++) {
            f[i] = 0;
            for (int j = 0; j < 4; j++) f[i] += fabs(x[j] - (s + i - 1));
        }
        if (f[0] - 2 * f[1] + f[2] != 0) found[n++] = s;
    }
    cr_assert(n == 4, "%zu kinks", n);
    for (size_t j = 0; j < n; j++) cr_assert(found[j] == x[j]);
}
