/* reference_attention.c: the reference of attention and of its relatives (the log form,
 * the scan over prefixes of the keys, the answer after updates).
 *
 *     s_j = scale q.k_j + bias_j,  p = softmax(s),  o = sum_j p_j v_j,  lse = m + ln l
 *
 * The product of two floats is exact in double and the sums are compensated, so that the
 * result is right to about 2^-50 |s|.
 *
 * Conventions (the same for every stage):
 *   masked       hidden by causal or by a bias of -inf: key and value are not looked at
 *   no key left  o = 0, lse = -inf
 *   score -inf   reached by arithmetic: weighs nothing, its value is not looked at
 *   score NaN or +inf   NaN in the row's lse and in every element of its o
 *   value NaN    NaN in that column of every row that sees the key
 *
 *   sink         one more term exp(sink) of l, without a value
 *   dropout      v_j counts w_j times, w_j = 0 or 1 / (1 - p): with p_j v_j of the keys that are kept
 *                o, and what is allowed of it, are 1 / (1 - p) as large
 *   soft cap     the scaled score x becomes c tanh(x / c), then the bias is added
 *
 * What is allowed (notes/numerics.md, "One theorem"), in units of u = 2^-24, p the exact weights,
 * h the roundoff of the type:
 *   keys      sum_j p_j e_j |v_j - o|, e_j = kappa + 4 d_j + eta_j: the exponential, its argument and
 *             the score.  All scores of a row share q and their errors may be alike, so they are
 *             systematic.  Where q.k = 0 for all keys the score is the bias itself, and equal
 *             ones err alike: eta = 0 for the largest, else 4 (|s_j| + |m|)
 *   sums      sum_roundings() of p_j v_j, four roundings a key (the normalised form has as many), and
 *             |o| times that of p_j
 *   16 bits   h LAMBDA sqrt(sum_j p_j^2 v_j^2) + h |o|: p rounded, by chance or all alike; nothing where
 *             all p_j are powers of two: in 16 bits these are exact, whatever maximum they refer to; but what
 *             such a weight erred by is rounded away, and stays in l: e_j for h
 *   8 bits    the same with h = 2^-4 of e4m3 (WEIGHT_SCALE), and what weights below its normal numbers
 *             lose; eta of e4m3 as sm_90 sums it (E4M3_SUM), and o too: each of n / 32 instructions
 *             drops what lies below 2^-13 of the sum.  Inputs are code times scale, in float
 *   lse       the keys' errors under p, those of l, 2 (1 + |ln l|) + |lse| + 2 |m|
 *   log form  sum_j |v_jc| [eta_j + 2 (n + 4) (|s_j| + |lse| + |m|) + lse error]
 *   sink      eta = 4 |sink|, as of a bias without a product
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"

/* What the scores of a row add up to. */
struct sums {
    double m, l, max_v;
    double own;            /* sum p e */
    double x_most;         /* the largest relative error of a key that weighs anything */
    double of_l;           /* the roundings of l, in units of u */
    double range;          /* the largest finite |score| */
    size_t keys;           /* with a score above -inf */
    size_t n;              /* the same and the sink */
    int is_nan;            /* a score is NaN or +inf */
};

/* A weight so small that no error can bring it back to life. */
static int is_dead(double p, double x, double d) { return p == 0 && x < d - 104; }

/* The relative error of a weight at distance d from the maximum. */
static double weight_error(double eta, double d)
{
    return ROUNDOFF * (KAPPA + ARGUMENT * d + eta);
}

/* Adds a key of weight p, at distance d from the maximum, to the means. */
static void add_weight(struct sums *r, double p, double eta, double d)
{
    double x = weight_error(eta, d);
    if (is_dead(p, x, d)) return;
    if (p > 0) r->own += p * x * (1 + fmin(x, 1));
    if (x > r->x_most) r->x_most = x;
}

/* The maximum and the ranges, before anything is summed.   v_max (n): of each value */
static struct sums ranges(const struct scratch *w, const double *v_max, size_t n, double sink)
{
    struct sums r = {.m = sink, .n = sink > -INFINITY, .is_nan = !(sink < INFINITY)};
    if (isfinite(sink)) r.range = fabs(sink);
    for (size_t j = 0; j < n; j++) {
        double s = w->s[j];
        if (isnan(s) || s == INFINITY) r.is_nan = 1;
        if (s == -INFINITY) continue;
        r.keys++, r.n++;
        if (s > r.m) r.m = s;
        if (isfinite(s) && fabs(s) > r.range) r.range = fabs(s);
        if (v_max[j] > r.max_v) r.max_v = v_max[j];
    }
    return r;
}

/* The sum, p = softmax(s) and the means under p. */
static void normalise(struct scratch *w, struct sums *r, size_t n, double sink)
{
    struct sum l = {0, 0};
    double of_sink = exp(sink - r->m); /* 0 for none */
    sum_add(&l, of_sink);
    for (size_t j = 0; j < n; j++) {
        w->p[j] = exp(w->s[j] - r->m);
        if (w->p[j] > 0) sum_add(&l, w->p[j]);
        if (w->exact) w->eta[j] = w->s[j] == r->m ? 0 : 4 * (fabs(w->s[j]) + fabs(r->m));
    }
    r->l = sum_value(&l);
    for (size_t j = 0; j < n; j++) {
        w->p[j] /= r->l;
        if (w->s[j] != -INFINITY)
            add_weight(r, w->p[j], w->eta[j], r->m - w->s[j]);
    }
    if (sink > -INFINITY)
        add_weight(r, of_sink / r->l, 4 * fabs(sink), r->m - sink);
    r->of_l = sum_roundings(w->p, w->s, n, 1) + 2;
}

/* sum += weight v, mass += |weight v|; all over dv columns. */
static void accumulate(struct scratch *w, const float *v, size_t dv, double weight)
{
    double *restrict sum = w->column, *restrict low = sum + dv, *restrict mass = low + dv;
#pragma omp simd
    for (size_t c = 0; c < dv; c++) {
        double term = weight * v[c];
        sum[c] = two_sum(sum[c], term, &low[c]);
        mass[c] += fabs(term);
    }
}

/* Ends the sums of w->p_j v_j.  An infinite value makes the compensation NaN: such columns are
 * summed plainly. */
static void finish_sums(struct scratch *w, const struct query *x, size_t dv)
{
    double *sum = w->column;
    for (size_t c = 0; c < dv; c++) {
        sum[c] += sum[dv + c];
        if (!isnan(sum[c])) continue;
        sum[c] = 0;
        for (size_t j = 0; j < x->n; j++)
            if (w->s[j] != -INFINITY) sum[c] += w->p[j] * x->v[j * dv + c];
    }
}

/* The columns of o while its roundings are counted: (dv) each. */
struct columns {
    double *o, *partial, *mass, *low, *high, *squares; /* of the sum */
    double *x1, *x2, *alike, *independent, *rescaled, *from_the_end; /* as in roundings.c */
    double *keys; /* sum p e |v - o| */
};
static struct columns columns_of(const struct scratch *w, size_t dv)
{
    double *at = w->column;
    return (struct columns){at, at + dv, at + 2 * dv, at + 3 * dv, at + 4 * dv, at + 5 * dv,
                            at + 6 * dv, at + 7 * dv, at + 8 * dv, at + 9 * dv, at + 10 * dv,
                            at + 11 * dv, at + 12 * dv};
}

/* The partial sums in the order of the keys: their extent; at each new maximum their size. */
static void extents_of(struct columns *k, const struct scratch *w, const struct query *x, size_t dv)
{
    double m = -INFINITY;
    memset(k->partial, 0, dv * sizeof(double));
    for (size_t j = 0; j < x->n; j++) {
        if (w->s[j] == -INFINITY) continue;
        if (w->s[j] > m)
            for (size_t c = 0; c < dv; c++) k->rescaled[c] += fabs(k->partial[c]);
        m = fmax(m, w->s[j]);
#pragma omp simd
        for (size_t c = 0; c < dv; c++) {
            double term = w->p[j] * x->v[j * dv + c], sum = k->partial[c] += term;
            k->low[c] = sum < k->low[c] ? sum : k->low[c];
            k->high[c] = sum > k->high[c] ? sum : k->high[c];
            k->squares[c] += term * term;
        }
    }
    for (size_t c = 0; c < dv; c++) k->high[c] += sqrt(k->squares[c]) - k->low[c];
    memset(k->partial, 0, dv * sizeof(double));
}

/* Key j: its own error, and the rounding of its addition.  high: the extents. */
static void count_key(struct columns *k, const float *v, size_t dv, double p, double own)
{
#pragma omp simd
    for (size_t c = 0; c < dv; c++) {
        double term = p * v[c], away = fabs(v[c] - k->o[c]), extent = k->high[c];
        double size = smaller(extent, fabs(term) / ROUNDOFF), bend = fabs(term - 2 * k->x1[c] + k->x2[c]);
        double alike = bend <= 4 * ROUNDOFF * extent ? size : 0;
        k->alike[c] += alike;
        k->independent[c] += size * (size - alike);
        k->x2[c] = k->x1[c], k->x1[c] = term;
        k->partial[c] += term;
        k->keys[c] += own * away;
    }
}

/* The errors of the keys and the roundings of the sums, from the last key to the first. */
static void count_keys(struct columns *k, const struct scratch *w, const struct sums *s,
                       const struct query *x, size_t dv)
{
    double m = -INFINITY;
    for (size_t j = x->n; j-- > 0;) {
        if (w->s[j] == -INFINITY) continue;
        double d = s->m - w->s[j], p = w->p[j], e = weight_error(w->eta[j], d);
        if (w->s[j] > m)
            for (size_t c = 0; c < dv; c++) k->from_the_end[c] += fabs(k->partial[c]);
        m = fmax(m, w->s[j]);
        /* an error of e > 1 may give the key any weight up to 1 */
        if (is_dead(p, e, d)) continue;
        count_key(k, x->v + j * dv, dv, p, e > 1 ? 1 : p * e * (1 + e));
    }
}

/* What rounding the weights of a row to the type costs each of them, relative. */
static double weight_rounding(const struct scratch *w, const struct sums *s, size_t n, enum dtype dtype)
{
    double h = dtypes[dtype].roundoff, worst = 0;
    for (size_t j = 0; h > 0 && worst < h && j < n; j++) {
        if (w->s[j] == -INFINITY) continue;
        int exponent;
        double p = frexp(w->p[j], &exponent), error = weight_error(w->eta[j], s->m - w->s[j]);
        double away = fmin(2 * p - 1, 1 - p); /* from the power of two */
        worst = fmax(worst, p > 0 && away + error < h / 2 ? away + error : h);
    }
    return worst;
}

/* What weights below the least normal number of e4m3 may lose, `least` each: x1, were all to lose it, and
 * x2, the squares. */
static void lose_small(struct columns *k, const struct scratch *w, const struct query *x, size_t dv,
                       double least)
{
    memset(k->x1, 0, 2 * dv * sizeof(double)); /* and x2 */
    for (size_t j = 0; j < x->n; j++) {
        double most = smaller(w->p[j], least);
        if (w->s[j] == -INFINITY || w->p[j] > 16 * least) continue;
        for (size_t c = 0; c < dv; c++) {
            double lost = most * x->v[j * dv + c];
            k->x1[c] += lost, k->x2[c] += lost * lost;
        }
    }
}

/* o = sum_j p_j v_j with its likely error. */
static void value_row(struct standard *r, struct scratch *w, const struct sums *s,
                      const struct query *x, size_t dv, size_t row)
{
    enum dtype type = weight_dtype(&r->problem);
    double least = type == E4M3 ? 0 : dtypes[type].least_step;
    double flush = (FLUSH + least) * (2 * s->max_v + 2) / s->l;
    double h = weight_rounding(w, s, x->n, type), n = (double)s->n, factor = 1 / (1 - (double)r->problem.dropout);
    for (size_t j = 0; j < x->n; j++)
        if (w->s[j] != -INFINITY) accumulate(w, x->v + j * dv, dv, w->p[j]);
    finish_sums(w, x, dv);
    struct columns k = columns_of(w, dv);
    memset(k.low, 0, (COLUMNS - 3) * dv * sizeof(double)); /* all but o, partial and mass */
    extents_of(&k, w, x, dv);
    count_keys(&k, w, s, x, dv);
    if (type == E4M3) lose_small(&k, w, x, dv, dtypes[E4M3].least_step / WEIGHT_SCALE / s->l);
    struct answer *o = &r->answer[ARRAY_O];
    for (size_t c = 0, at = row * dv; c < dv; c++, at++) {
        double size = fabs(k.o[c]), of_sum = 4 * k.alike[c] + LAMBDA * 2 * sqrt(k.independent[c]) +
                        (KAPPA + 2) * fmax(k.rescaled[c], k.from_the_end[c]);
        o->want[at] = k.o[c];
        o->likely[at] = k.keys[c] + ROUNDOFF * (of_sum + size * (s->of_l + 3)) +
                        h * (LAMBDA * sqrt(k.squares[c]) + size) + n * flush;
        if (type == E4M3) o->likely[at] += fabs(k.x1[c]) + LAMBDA * sqrt(k.x2[c]);
        if (r->problem.dtype == E4M3) o->likely[at] += E4M3_SUM * (n / 16 + 2) * k.mass[c];
        o->likely[at] = factor * (o->likely[at] + (factor > 1) * 2 * ROUNDOFF * size);
        o->want[at] *= factor;
    }
}

/* |error| of lse: that of the weights, of their sum, of the logarithm and of the addition. */
static double lse_error(const struct sums *s)
{
    double ln_l = log(s->l), of_weights = s->x_most > 1 ? s->x_most : s->own;
    return both(of_weights, ROUNDOFF * s->of_l) +
           ROUNDOFF * (2 * (1 + fabs(ln_l)) + fabs(s->m + ln_l) + 2 * fabs(s->m));
}

/* o = sum_j (s_j - lse) v_j with its likely error. */
static void log_value_row(struct standard *r, struct scratch *w, const struct sums *s,
                          const struct query *x, size_t dv, size_t row)
{
    double lse = s->m + log(s->l), of_lse = lse_error(s), n = roundings((double)s->n);
    struct columns k = columns_of(w, dv);
    for (size_t j = 0; j < x->n; j++) {
        if (w->s[j] == -INFINITY) continue;
        w->p[j] = w->s[j] - lse;
        double size = 2 * ROUNDOFF * (fabs(w->s[j]) + fabs(lse) + fabs(s->m));
        double error = ROUNDOFF * w->eta[j] + (n + 4) * size + of_lse;
        accumulate(w, x->v + j * dv, dv, w->p[j]);
        for (size_t c = 0; c < dv; c++) k.keys[c] += fabs((double)x->v[j * dv + c]) * error;
    }
    finish_sums(w, x, dv);
    struct answer *o = &r->answer[ARRAY_O];
    double h = dtypes[r->problem.dtype].roundoff;
    for (size_t c = 0, at = row * dv; c < dv; c++, at++) {
        o->want[at] = k.o[c];
        o->likely[at] = k.keys[c] + FLUSH + h * (k.mass[c] + fabs(k.o[c]));
    }
}

/* v (n, head_dim_v) of a query, with 0 for what dropout drops; its room is freed by the caller. */
static float *kept_values(const struct problem *p, const struct query *x)
{
    size_t dv = p->head_dim_v;
    float *v = xcalloc(x->n * dv, sizeof *v);
    for (size_t j = 0; j < x->n; j++)
        if (kept(p, x, j) > 0) memcpy(v + j * dv, x->v + j * dv, dv * sizeof *v);
    return v;
}

/* Answer `row`; returns what its scores add up to. */
static struct sums attention_row(struct standard *r, const struct problem *p, struct scratch *w,
                                 const struct query *x, const double *v_max, size_t row)
{
    size_t dv = p->head_dim_v;
    score_row(w, p, x);
    struct sums s = ranges(w, v_max + x->key, x->n, (double)x->sink);
    struct answer *o = &r->answer[ARRAY_O], *lse = &r->answer[ARRAY_LSE];
    if (s.is_nan || s.n == 0) {
        lse->want[row] = s.is_nan ? NAN : -INFINITY;
        for (size_t c = 0; c < dv; c++) o->want[row * dv + c] = s.is_nan ? NAN : 0;
        return s;
    }
    normalise(w, &s, x->n, (double)x->sink);
    lse->want[row] = s.m + log(s.l);
    lse->likely[row] = lse_error(&s);
    memset(w->column, 0, COLUMNS * dv * sizeof(double));
    if (p->op == OP_LOGSOFTMAX_ATTENTION) log_value_row(r, w, &s, x, dv, row);
    else if (p->dropout == 0) value_row(r, w, &s, x, dv, row);
    else {
        struct query of_kept = *x;
        float *v = kept_values(p, x);
        of_kept.v = v;
        value_row(r, w, &s, &of_kept, dv, row);
        free(v);
    }
    return s;
}

/* Adds a row to the maximum of the problem. */
static void count_row(struct standard *r, const struct sums *s)
{
    double range = s->is_nan ? INFINITY : s->range;
    if (range > r->max_score) r->max_score = range;
    r->empty_rows += !s->is_nan && s->keys == 0;
}

/* The largest finite |v_jc| of each value; clears *finite when one is not. */
static double *largest_of_values(const struct problem *p, const float *v, int *finite)
{
    size_t n = p->batch * p->heads_kv * p->seqlen_k, dv = p->head_dim_v;
    double *v_max = xcalloc(n, sizeof *v_max);
    for (size_t i = 0; i < n * dv; i++) {
        if (!isfinite(v[i])) *finite = 0;
        else if (fabs(v[i]) > v_max[i / dv]) v_max[i / dv] = fabs(v[i]);
    }
    return v_max;
}

void reference_attention(struct standard *r, const struct problem *p, const struct arrays *a)
{
    size_t n_rows = r->answer[ARRAY_LSE].n;
    struct widened in = widened_new(p, a);
    double *v_max = largest_of_values(p, in.array[ARRAY_V], &r->v_is_finite);
    struct sums *sums = xcalloc(n_rows, sizeof *sums);
    double work = (double)n_rows * (double)p->seqlen_k * (double)(p->head_dim + p->head_dim_v);
#pragma omp parallel if (work > WORTH_THREADS)
    {
        struct scratch w = scratch_new(p);
#pragma omp for schedule(dynamic, 8)
        for (size_t row = 0; row < n_rows; row++) {
            struct query x = query_of(p, a, &in, row);
            sums[row] = attention_row(r, p, &w, &x, v_max, row);
        }
        free(w.s);
    }
    for (size_t row = 0; row < n_rows; row++) count_row(r, &sums[row]);
    free(sums);
    free(v_max);
    widened_free(&in);
}
