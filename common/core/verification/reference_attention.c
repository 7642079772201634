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
 *   soft cap     the scaled score x becomes c tanh(x / c), then the bias is added
 *
 * Error bounds.  u = 2^-24, n unmasked keys (and the sink), p the exact weights.
 *   weight    x_j = (eta_j + 4 d_j) u, relative, from the score and the argument of exp;
 *             a sum of terms that err by x_j errs by at most sum_j p_j x_j (1 + x_j), and a
 *             logarithm of it by at most the largest x_j
 *   score     eta_j: reference_scores.c.  Where q.k = 0 for all keys the score is the bias
 *             itself, and equal ones err alike: 0 for the largest, else 4 (|s_j| + |m|)
 *   sink      eta = 4 |sink|, as of a bias without a product
 *   o         u sum_j p_j |v_jc| [x_j + x_mean + 2 kappa + 2 R (kappa + 1) + D_l + D_o + 3]:
 *             each rescaling is an exp and a product, once in o and once in l.  D_l = n, D_o =
 *             4 n: the normalised form rounds a quotient, two products and a sum for every key
 *   lse       x_mean + u [kappa + D + R (kappa + 1)] + 2 (1 + |ln l|) u
 *             + (|lse| + 2 |m|) u  (2 |m|: a maximum kept in base 2)
 *   log form  sum_j |v_jc| [eta_j u + 2 (n + 4) (|s_j| + |lse| + |m|) u + lse_error]:
 *             the sums of s_j v_j and of v_j have at most n additions and n rescalings */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"

/* What the scores of a row add up to. */
struct sums {
    double m, l, max_v;
    double x_mean, x_most; /* sum p x (1 + x); the largest x of a key that weighs anything */
    double max_s;          /* the largest |score| that matters: of a dead key none */
    double range;          /* the largest finite |score| */
    size_t keys;           /* with a score above -inf */
    size_t n;              /* the same and the sink */
    int is_nan;            /* a score is NaN or +inf */
};

/* A weight so small that no error can bring it back to life. */
static int is_dead(double p, double x, double d) { return p == 0 && x < d - 104; }

/* Adds a key of weight p, at distance d from the maximum, to the means. */
static void add_weight(struct sums *r, double p, double x, double d, double s)
{
    if (is_dead(p, x, d)) return;
    if (p > 0) r->x_mean += p * x * (1 + x);
    if (x > r->x_most) r->x_most = x;
    if (fabs(s) > r->max_s) r->max_s = fabs(s);
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
    r.max_s = r.is_nan ? r.range : 0;
    if (w->through > r.max_s) r.max_s = w->through;
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
        double d = r->m - w->s[j];
        w->p[j] /= r->l;
        if (w->s[j] == -INFINITY) continue;
        double x = ROUNDOFF * (w->eta[j] + ARGUMENT * d);
        add_weight(r, w->p[j], x, d, w->exact && d == 0 ? 0 : w->s[j]);
    }
    if (sink > -INFINITY) {
        double d = r->m - sink;
        add_weight(r, of_sink / r->l, ROUNDOFF * (4 * fabs(sink) + ARGUMENT * d), d, sink);
    }
}

/* sum += weight v, mass += |weight v|, error += |weight v| x; all over dv columns. */
static void accumulate(struct scratch *w, const float *v, size_t dv, double weight, double x)
{
    double *restrict sum = w->sum, *restrict low = w->low;
    double *restrict mass = w->mass, *restrict error = w->error;
#pragma omp simd
    for (size_t c = 0; c < dv; c++) {
        double term = weight * v[c];
        sum[c] = two_sum(sum[c], term, &low[c]);
        mass[c] += fabs(term);
        error[c] += fabs(term) * x;
    }
}

/* Ends the sums of w->p_j v_j.  An infinite value makes the compensation NaN: such columns are
 * summed plainly. */
static void finish_sums(struct scratch *w, const struct query *x, size_t dv)
{
    for (size_t c = 0; c < dv; c++) {
        w->sum[c] += w->low[c];
        if (!isnan(w->sum[c])) continue;
        w->sum[c] = 0;
        for (size_t j = 0; j < x->n; j++)
            if (w->s[j] != -INFINITY) w->sum[c] += w->p[j] * x->v[j * dv + c];
    }
}

/* o = sum_j p_j v_j with its bound. */
static void value_row(struct standard *r, struct scratch *w, const struct sums *s,
                      const struct query *x, size_t dv, size_t row)
{
    double n = (double)s->n, R = n - 1, flush = 0;
    for (size_t j = 0; j < x->n; j++) {
        if (w->s[j] == -INFINITY) continue;
        double d = s->m - w->s[j], e = ROUNDOFF * (w->eta[j] + ARGUMENT * d);
        accumulate(w, x->v + j * dv, dv, w->p[j], is_dead(w->p[j], e, d) ? 0 : e * (1 + e));
        flush += FLUSH * (2 * s->max_v + 2);
    }
    finish_sums(w, x, dv);
    double sums = 2 * KAPPA + 3 + 2 * R * (KAPPA + 1) + 5 * n;
    double any = both(s->x_mean, rigorous(ROUNDOFF * sums));
    struct answer *o = &r->answer[ARRAY_O];
    for (size_t c = 0, at = row * dv; c < dv; c++, at++) {
        o->want[at] = w->sum[c];
        r->o_mass[at] = w->mass[c];
        o->bound[at] = w->error[c] * (1 + any) + w->mass[c] * any + flush;
        if (s->x_most > 1 || any == INFINITY) o->bound[at] = INFINITY;
    }
}

/* |error| of lse: that of the weights, of their sum, of the logarithm and of the addition. */
static double lse_error(const struct sums *s, enum luck luck)
{
    double ln_l = log(s->l), D = roundings(luck, (double)s->n - 1);
    double of_weights = s->x_most > 1 ? s->x_most : s->x_mean;
    double of_sum = rigorous(ROUNDOFF * (KAPPA + D + D * (KAPPA + 1)));
    return both(of_weights, of_sum) +
           ROUNDOFF * (2 * (1 + fabs(ln_l)) + fabs(s->m + ln_l) + 2 * fabs(s->m));
}

/* o = sum_j (s_j - lse) v_j with its bound. */
static void log_value_row(struct standard *r, struct scratch *w, const struct sums *s,
                          const struct query *x, size_t dv, size_t row)
{
    double lse = s->m + log(s->l), n = (double)s->n;
    double worst = lse_error(s, WORST), likely = lse_error(s, LIKELY);
    for (size_t j = 0; j < x->n; j++) {
        if (w->s[j] == -INFINITY) continue;
        w->p[j] = w->s[j] - lse;
        double size = 2 * ROUNDOFF * (fabs(w->s[j]) + fabs(lse) + fabs(s->m));
        double of_score = ROUNDOFF * w->eta[j] + 4 * size;
        accumulate(w, x->v + j * dv, dv, w->p[j], 0);
        for (size_t c = 0; c < dv; c++) {
            double v_abs = fabs(x->v[j * dv + c]);
            w->error[c] += v_abs * (of_score + n * size + worst);
            w->likely[c] += v_abs * (of_score + roundings(LIKELY, n) * size + likely);
        }
    }
    finish_sums(w, x, dv);
    struct answer *o = &r->answer[ARRAY_O];
    for (size_t c = 0, at = row * dv; c < dv; c++, at++) {
        o->want[at] = w->sum[c];
        r->o_mass[at] = w->mass[c];
        o->bound[at] = w->error[c] + FLUSH;
        o->likely[at] = w->likely[c] + FLUSH;
    }
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
    lse->bound[row] = lse_error(&s, WORST);
    lse->likely[row] = lse_error(&s, LIKELY);
    r->weight[row] = 1 / s.l;
    memset(w->sum, 0, 5 * dv * sizeof(double)); /* sum ... likely lie in a row */
    if (p->op == OP_LOGSOFTMAX_ATTENTION) log_value_row(r, w, &s, x, dv, row);
    else value_row(r, w, &s, x, dv, row);
    return s;
}

/* Adds a row to the maxima of its head and to those of the problem. */
static void count_row(struct standard *r, const struct sums *s, size_t head)
{
    double range = s->is_nan ? INFINITY : s->range;
    if (s->max_s > r->max_s[head]) r->max_s[head] = s->max_s;
    if (s->max_v > r->max_v[head]) r->max_v[head] = s->max_v;
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
    size_t n_rows = r->answer[ARRAY_LSE].n, heads = p->batch * p->heads_q;
    r->o_mass = xcalloc(r->answer[ARRAY_O].n, sizeof(double));
    r->weight = xcalloc(n_rows, sizeof(double));
    r->max_s = xcalloc(heads, sizeof(double));
    r->max_v = xcalloc(heads, sizeof(double));
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
    for (size_t row = 0; row < n_rows; row++) count_row(r, &sums[row], row / rows_per_head(p));
    free(sums);
    free(v_max);
    widened_free(&in);
}
