/* fused_reduction.c: the five instances of fused_reduction.h.
 *
 *     denominator       s = max x          t = sum e^{x - s}
 *     softmax dot       s = max x          t = sum e^{x - s}, sum e^{x - s} w
 *     variance          s = mean x         t = sum (x - s)^2
 *     covariance        s = means of x, w  t = sum (x - s0) (w - s1)
 *     log-softmax dot   s = max x          t = sum e^{x - s}, sum (x - s) w, sum w
 *
 * The last sum of the last line is there for `move` only.  Sources: the notes "Flash
 * Attention", section 5; Milakov and Gimelshein 2018; Welford 1962; Chan, Golub and
 * LeVeque 1983. */
#include "fused_reduction.h"

#include "monoid.h"
#include "harness.h"

/* ---- the generic part ---- */

struct pair pair_merge(const struct reduction *r, struct pair x, struct pair y)
{
    float s[S_SIZE] = {0};
    if (x.n == 0.0f) return y;
    if (y.n == 0.0f) return x;
    r->first(&x, &y, s);
    r->move(&x, s);
    r->move(&y, s);
    x.n += y.n;
    for (size_t c = 0; c < S_SIZE; c++) x.s[c] = s[c];
    for (size_t c = 0; c < T_SIZE; c++) x.t[c] += y.t[c];
    return x;
}

struct pair pair_fold(const struct reduction *r, const float *x, const float *w,
                      size_t n)
{
    struct pair all = {0};
    for (size_t j = 0; j < n; j++) all = pair_merge(r, all, r->lift(x[j], w[j]));
    return all;
}

/* ---- maximum first ---- */

static void maximum(const struct pair *x, const struct pair *y, float *s)
{
    s[0] = x->s[0] > y->s[0] ? x->s[0] : y->s[0];
}

static struct pair lift_dot(float x, float w)
{
    struct se one = se_lift(x);
    if (x == -INFINITY) return (struct pair){0};
    return (struct pair){1.0f, {x}, {one.l, one.l * w}};
}

static struct pair lift_denominator(float x, float w)
{
    (void)w;
    return lift_dot(x, 0.0f);
}

/* e^{x - m'} = e^{x - m} e^{m - m'}: both sums are multiplied. */
static void move_exponentials(struct pair *x, const float *s)
{
    float factor = se_factor(x->s[0], s[0]);
    x->t[0] *= factor;
    x->t[1] *= factor;
}

static float finish_denominator(const struct pair *x)
{
    return x->n == 0.0f ? -INFINITY : x->s[0] + logf(x->t[0]);
}

static float finish_dot(const struct pair *x)
{
    return x->n == 0.0f ? 0.0f : x->t[1] / x->t[0];
}

static struct pair lift_log_dot(float x, float w)
{
    if (x == -INFINITY) return (struct pair){0};
    return (struct pair){1.0f, {x}, {se_lift(x).l, 0.0f, w}};
}

/* x - m' = (x - m) + (m - m'): the second sum grows by (m - m') sum w. */
static void move_logarithms(struct pair *x, const float *s)
{
    if (x->s[0] == s[0]) return;
    x->t[0] *= se_factor(x->s[0], s[0]);
    x->t[1] += (x->s[0] - s[0]) * x->t[2];
}

static float finish_log_dot(const struct pair *x)
{
    return x->n == 0.0f ? 0.0f : x->t[1] - logf(x->t[0]) * x->t[2];
}

/* ---- mean first ---- */

/* The mean of all: the mean of x, moved towards that of y by y's share. */
static void means(const struct pair *x, const struct pair *y, float *s)
{
    float share = y->n / (x->n + y->n);
    for (size_t c = 0; c < S_SIZE; c++) s[c] = x->s[c] + (y->s[c] - x->s[c]) * share;
}

static struct pair lift_covariance(float x, float w)
{
    return (struct pair){1.0f, {x, w}, {0}};
}

static struct pair lift_variance(float x, float w)
{
    (void)w;
    return lift_covariance(x, x);
}

/* sum (x - a')(w - b') = sum (x - a)(w - b) + n (a - a')(b - b'), because sum (x - a) = 0
 * when a is the mean: the two mixed terms vanish. */
static void move_products(struct pair *x, const float *s)
{
    x->t[0] += x->n * (x->s[0] - s[0]) * (x->s[1] - s[1]);
}

static float finish_products(const struct pair *x) { return x->t[0] / x->n; }

const struct reduction reductions[] = {
    {"lse", lift_denominator, maximum, move_exponentials, finish_denominator},
    {"softmax_dot", lift_dot, maximum, move_exponentials, finish_dot},
    {"variance", lift_variance, means, move_products, finish_products},
    {"covariance", lift_covariance, means, move_products, finish_products},
    {"logsoftmax_dot", lift_log_dot, maximum, move_logarithms, finish_log_dot},
};

#define CHUNK 64 /* elements folded before a merge: shorter sums, smaller errors */

/* y (rows, N_FUSED) in one loop: each chunk is folded alone, five times while it is
 * in the nearest cache, and merged. */
static void fused(const struct problem *p, const struct arrays *a)
{
    for (size_t i = 0; i < p->rows; i++) {
        const float *x = (const float *)a->x + i * p->cols;
        const float *w = (const float *)a->w + i * p->cols;
        float *y = (float *)a->y + i * N_FUSED;
        struct pair all[N_FUSED] = {{0}};
        for (size_t j = 0; j < p->cols; j += CHUNK)
            for (size_t f = 0; f < N_FUSED; f++) {
                size_t n = p->cols - j < CHUNK ? p->cols - j : CHUNK;
                struct pair chunk = pair_fold(&reductions[f], x + j, w + j, n);
                all[f] = pair_merge(&reductions[f], all[f], chunk);
            }
        for (size_t f = 0; f < N_FUSED; f++) y[f] = reductions[f].finish(&all[f]);
    }
}

static struct cost cost(const struct problem *p)
{
    double n = (double)p->rows * (double)p->cols;
    return (struct cost){.passes = 1, .bytes = 8 * n, .exps = 6 * n};
}

const struct variant reduction_fused = {
    .name = "fused", .idea = "both reductions in one loop",
    .group = IN_ASIDES, SAFE_ON_CPU, .cost = cost,
    .does = {{OP_FUSED_REDUCTION, fused}},
};
