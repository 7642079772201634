/* reference_rows.c: the reference of softmax, log-softmax, mean and the fused reductions,
 * row by row in double; attention is in reference_attention.c.
 *
 * Conventions (the same for every stage):
 *   NaN or +inf in a row   the whole row is NaN
 *   all -inf               softmax 0, log-softmax -inf: what is masked has probability 0
 *   -inf beside others     softmax 0, log-softmax -inf */
#include "verification/reference.h"
#include <stdlib.h>

#include "problem/host_memory.h"
#include "verification/reference_sum.h"

/* What a softmax needs to know about a row x [n]. */
struct row {
    double m, l, d_mean; /* maximum, sum of exp(x - m), mean of m - x under p */
    size_t n_seen;       /* elements above -inf */
    double *p, *s;       /* (n) softmax and x; p is freed by free() */
    double max_abs;      /* largest |x| above -inf; INFINITY for NaN or +inf */
};

/* m, n_seen and max_abs. */
static struct row range_of(const float *x, size_t n)
{
    struct row r = {.m = -INFINITY};
    for (size_t j = 0; j < n; j++) {
        if (isnan(x[j]) || x[j] == INFINITY) r.max_abs = INFINITY;
        if (!(x[j] > -INFINITY)) continue;
        r.n_seen++;
        r.m = x[j] > r.m ? x[j] : r.m;
        r.max_abs = fabs(x[j]) > r.max_abs ? fabs(x[j]) : r.max_abs;
    }
    return r;
}

static struct row row_of(const float *x, size_t n)
{
    struct row r = range_of(x, n);
    r.p = xcalloc(2 * n, sizeof *r.p), r.s = r.p + n;
    if (r.max_abs == INFINITY || r.n_seen == 0) return r;
    struct sum l = {0, 0}, d = {0, 0};
    for (size_t j = 0; j < n; j++) {
        r.p[j] = exp(x[j] - r.m), r.s[j] = x[j];
        sum_add(&l, r.p[j]);
        if (r.p[j] > 0) sum_add(&d, r.p[j] * (r.m - x[j]));
    }
    r.l = sum_value(&l);
    for (size_t j = 0; j < n; j++) r.p[j] /= r.l;
    r.d_mean = sum_value(&d) / r.l;
    return r;
}

/* How often a program that keeps y_j rescales it (n): the new maxima that follow x_j, from the left
 * or from the right.  Where a row rises by equal steps these factors err alike. */
static void count_rises(const float *x, double *rises, size_t n)
{
    for (int back = 0; back < 2; back++) {
        double m = -INFINITY, all = 0, seen = 0;
        for (size_t i = 0; i < 2 * n; i++) { /* first all are counted, then those up to x_j */
            size_t j = back ? n - 1 - i % n : i % n;
            if (i == n) all = seen, seen = 0, m = -INFINITY;
            if (x[j] > m) m = x[j], seen++;
            if (i >= n) rises[j] = fmax(rises[j], all - seen);
        }
    }
}

/* |y_j - p_j| <= p_j (4 d_j + 4 d_mean + 2 kappa + roundings of l + (kappa + 2) rises_j + 4) u
 * + 2^-125. */
static void softmax_row(struct answer *y, const float *x, const float *w, size_t n, size_t i)
{
    (void)w;
    struct row row = row_of(x, n);
    double last = (KAPPA + 4) * ROUNDOFF;
    double of_l = rigorous(exp_sum_error(row.d_mean, row.p, row.s, n) + last);
    double *rises = xcalloc(n, sizeof *rises);
    count_rises(x, rises, n);
    for (size_t j = 0, at = i * n; j < n; j++, at++) {
        double d = row.m - x[j], p = row.p[j];
        y->want[at] = row.max_abs == INFINITY ? NAN : p;
        double own = rigorous((ARGUMENT * d + (KAPPA + 2) * rises[j]) * ROUNDOFF);
        y->likely[at] = FLUSH + (p > 0 ? p * both(of_l, own) : 0);
    }
    free(rises);
    free(row.p);
}

/* y = x - m - ln l, in this order:
 *   |error| <= (4 d_mean + kappa + roundings of l) u + 2 (1 + |ln l|) u
 *              + (d_j + |y_j|) u + 2 min(|L|, 89) u
 * The last term lets a program form L = log sum exp(x) itself, as naive ones must; they
 * overflow beyond 89.  A program that subtracts m + ln l at once at m = 1e4 errs by
 * 1e4 u and is rejected. */
static void logsoftmax_row(struct answer *y, const float *x, const float *w, size_t n, size_t i)
{
    (void)w;
    struct row row = row_of(x, n);
    double ln_l = row.l > 0 ? log(row.l) : 0, lse = fabs(row.m + ln_l);
    double steps = 2 * (1 + fabs(ln_l)) * ROUNDOFF;
    double own_lse = 2 * (lse < 89 ? lse : 89) * ROUNDOFF + steps;
    double of_l = rigorous(exp_sum_error(row.d_mean, row.p, row.s, n)) + own_lse;
    for (size_t j = 0, at = i * n; j < n; j++, at++) {
        double d = row.m - x[j], value = x[j] == -INFINITY ? -INFINITY : -d - ln_l;
        y->want[at] = row.max_abs == INFINITY ? NAN : value;
        y->likely[at] = of_l + (isfinite(value) ? (d + fabs(value)) * ROUNDOFF : 0);
    }
    free(row.p);
}

static void mean_and_extent(const float *x, size_t n, double *mean, double *max_abs)
{
    struct sum s = {0, 0};
    *max_abs = 0;
    for (size_t j = 0; j < n; j++) {
        sum_add(&s, x[j]);
        *max_abs = fabs(x[j]) > *max_abs ? fabs(x[j]) : *max_abs;
    }
    double total = sum_value(&s);
    if (isnan(total)) /* an infinity also looks like this: tell them apart */
        for (size_t j = total = 0; j < n; j++) total += x[j];
    *mean = total / (double)n;
}

/* |error| <= (3n/2 + 4) u max|x|, likely with roundings(n) for n.  An error made in step k is shrunk by k/n.  Total and
 * count: n - 1 additions of at most n max|x|, divided by n: n.  Weighted form: weight,
 * product, quotient and sum round to (3 - 1/k) u max|x|: 3n/2 + 1.  Increment form: its
 * difference is at most 2 max|x| and divided by k, (1 + 4/k) u max|x|: n/2 + 5.  Proof in
 * notes/streaming.md. */
static void mean_row(struct answer *y, const float *x, const float *w, size_t n,
                     size_t row)
{
    (void)w;
    double max_abs;
    mean_and_extent(x, n, &y->want[row], &max_abs);
    double u = ROUNDOFF * max_abs, all = (double)n;
    y->likely[row] = (1.5 * roundings(all) + 4) * u + FLUSH;
}

/* lse and sum p w: as in reference_attention.c with exact scores; sum (x - lse) w: the sums of x w
 * and of w. */
static void fused_softmax(const float *x, const float *w, size_t n, double *want, double *likely)
{
    struct row s = row_of(x, n);
    double ln_l = log(s.l), lse = s.m + ln_l, rel = exp_sum_error(s.d_mean, s.p, s.s, n);
    struct sum dot = {0, 0}, log_dot = {0, 0};
    double own = 0, mass = 0, size = 0, w_abs = 0, *log_terms = xcalloc(n, sizeof *log_terms);
    for (size_t j = 0; j < n; j++) {
        double term = s.p[j] * w[j];
        sum_add(&dot, term);
        sum_add(&log_dot, (x[j] - lse) * w[j]);
        own += fabs(term) * (KAPPA + 4 + ARGUMENT * (s.m - x[j]));
        mass += fabs(term);
        size += (fabs(x[j]) + fabs(lse) + fabs(s.m)) * fabs(w[j]);
        w_abs += fabs(w[j]);
        log_terms[j] = (fabs(x[j]) + fabs(lse) + fabs(s.m)) * fabs(w[j]);
        s.p[j] = term;
    }
    double lse_error = rigorous(rel) + 2 * ROUNDOFF * (1 + fabs(ln_l)) +
                       2 * ROUNDOFF * (fabs(lse) + fabs(s.m));
    want[FUSED_LSE] = lse;
    likely[FUSED_LSE] = lse_error;
    want[FUSED_SOFTMAX_DOT] = sum_value(&dot);
    likely[FUSED_SOFTMAX_DOT] = ROUNDOFF * (own + sum_roundings(s.p, s.s, n, 4)) + mass * rel +
                                FLUSH * (w_abs + (double)n);
    want[FUSED_LOGSOFTMAX_DOT] = sum_value(&log_dot);
    likely[FUSED_LOGSOFTMAX_DOT] = ROUNDOFF * (8 * size + 6 * sum_roundings(log_terms, NULL, n, 1)) +
                                   lse_error * w_abs + FLUSH * (w_abs + (double)n);
    free(log_terms);
    free(s.p);
}

/* roundings(n), and in full those of steps at which x goes on along a line, closer than a sixteenth of
 * the spacing of floats near the total. */
static double roundings_like(const float *x, size_t n)
{
    double mass = 0, alike = 0;
    for (size_t j = 0; j < n; j++) mass += fabs((double)x[j]);
    for (size_t j = 2; j < n; j++)
        alike += fabs((double)x[j] - 2.0 * x[j - 1] + x[j - 2]) <= ROUNDOFF / 16 * mass;
    return fmin((double)n, roundings((double)n) + alike);
}

/* Variance and covariance in one pass (Welford, or Chan's merge).  A running mean errs by
 * at most e = (n + 8) u max|x| (see mean_row; twice for a difference of two).  The terms
 * (x - mean_old)(w - mean_new) change by e_x |w - mean| + e_w |x - mean| + e_x e_w, and
 * by Cauchy-Schwarz their mean by e_x sd_w + e_w sd_x times sqrt(2) in sequence and
 * sqrt(2 log2 n) <= 8 in a merge tree.  The terms' own roundings and additions give
 * (n + 8) u sd_x sd_w. */
static void fused_moments(const float *x, const float *w, size_t n, double *want, double *likely)
{
    double mean_x, mean_w, max_x, max_w;
    double u_n = (fmax(roundings_like(x, n), roundings_like(w, n)) + 8) * ROUNDOFF;
    struct sum xx = {0, 0}, ww = {0, 0}, xw = {0, 0};
    mean_and_extent(x, n, &mean_x, &max_x);
    mean_and_extent(w, n, &mean_w, &max_w);
    for (size_t j = 0; j < n; j++) {
        sum_add(&xx, (x[j] - mean_x) * (x[j] - mean_x));
        sum_add(&ww, (w[j] - mean_w) * (w[j] - mean_w));
        sum_add(&xw, (x[j] - mean_x) * (w[j] - mean_w));
    }
    double var = sum_value(&xx) / (double)n, sd_x = sqrt(var);
    double sd_w = sqrt(sum_value(&ww) / (double)n), e_x = u_n * max_x, e_w = u_n * max_w;
    want[FUSED_VARIANCE] = var;
    likely[FUSED_VARIANCE] = 2 * u_n * var + 8 * e_x * sd_x + e_x * e_x + FLUSH;
    want[FUSED_COVARIANCE] = sum_value(&xw) / (double)n;
    likely[FUSED_COVARIANCE] =
        2 * u_n * sd_x * sd_w + 4 * (e_x * sd_w + e_w * sd_x) + e_x * e_w + FLUSH;
}

static void fused_row(struct answer *y, const float *x, const float *w, size_t n,
                      size_t i)
{
    double *want = y->want + i * N_FUSED;
    fused_softmax(x, w, n, want, y->likely + i * N_FUSED);
    fused_moments(x, w, n, want, y->likely + i * N_FUSED);
}

void reference_rows(struct standard *r, const struct problem *p, const struct arrays *a)
{
    /* Row i of x (n), and of w (n) where the operation has it, to y and its bounds. */
    static void (*const rows[N_OPS])(struct answer *y, const float *x, const float *w, size_t n,
                                     size_t i) = {
        [OP_SOFTMAX] = softmax_row, [OP_LOGSOFTMAX] = logsoftmax_row, [OP_MEAN] = mean_row,
        [OP_FUSED_REDUCTION] = fused_row};
    size_t n = p->cols;
    struct widened in = widened_new(p, a);
    const float *x = in.array[ARRAY_X], *w = in.array[ARRAY_W];
    for (size_t i = 0; i < p->rows; i++) {
        struct row row = range_of(x + i * n, n);
        if (row.max_abs > r->max_score) r->max_score = row.max_abs;
        r->empty_rows += row.n_seen == 0 && row.max_abs == 0;
    }
#pragma omp parallel for schedule(static) if ((double)(p->rows * n) * 50 > WORTH_THREADS)
    for (size_t i = 0; i < p->rows; i++)
        rows[p->op](&r->answer[ARRAY_Y], x + i * n, w ? w + i * n : NULL, n, i);
    widened_free(&in);
}
