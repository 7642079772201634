/* reference_rows.c: the reference of softmax, log-softmax, mean and the fused reductions,
 * row by row in double; attention is in reference_attention.c.
 *
 * Conventions (the same for every stage):
 *   NaN or +inf in a row   the whole row is NaN
 *   all -inf               softmax 0, log-softmax -inf: what is masked has probability 0
 *   -inf beside others     softmax 0, log-softmax -inf */
#include "verification/reference.h"
#include "verification/reference_sum.h"

/* What a softmax needs to know about a row x [n]. */
struct row {
    double m, l, d_mean; /* maximum, sum of exp(x - m), mean of m - x under p */
    size_t n_seen;       /* elements above -inf */
    double rises;        /* how often the maximum rises, from the end where it rises more often */
    double max_abs;      /* largest |x| above -inf; INFINITY for NaN or +inf */
};

static double rises_of(const float *x, size_t n, int backwards)
{
    float m = -INFINITY;
    double rises = 0;
    for (size_t i = 0; i < n; i++) {
        float x_j = x[backwards ? n - 1 - i : i];
        if (x_j > m) m = x_j, rises++;
    }
    return rises;
}

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
    if (r.max_abs == INFINITY || r.n_seen == 0) return r;
    r.rises = fmax(rises_of(x, n, 0), rises_of(x, n, 1));
    struct sum l = {0, 0}, d = {0, 0};
    for (size_t j = 0; j < n; j++) {
        double e = exp(x[j] - r.m);
        sum_add(&l, e);
        if (e > 0) sum_add(&d, e * (r.m - x[j]));
    }
    r.l = sum_value(&l);
    r.d_mean = sum_value(&d) / r.l;
    return r;
}

/* |y_j - p_j| <= p_j (4 d_j + 4 d_mean + 2 kappa + D + R (kappa + 1) + 4) u + 2^-125,.
 * Where the maximum rises by equal steps the factors err alike: then all R of them are likely to
 * add up. */
static void softmax_row(struct answer *y, const float *x, const float *w, size_t n,
                        size_t i)
{
    size_t first = i * n;
    (void)w;
    struct row row = row_of(x, n);
    double last = (KAPPA + 4) * ROUNDOFF;
    double any = rigorous(exp_sum_error(row.d_mean, row.n_seen, WORST) + last);
    double more = fmax(0, row.rises - roundings(LIKELY, (double)row.n_seen));
    double likely = rigorous(exp_sum_error(row.d_mean, row.n_seen, LIKELY) + last +
                             more * (KAPPA + 1) * ROUNDOFF);
    for (size_t j = 0; j < n; j++) {
        double d = row.m - x[j], p = row.l > 0 ? exp(-d) / row.l : 0;
        y->want[first + j] = row.max_abs == INFINITY ? NAN : p;
        if (!(p > 0)) {
            y->bound[first + j] = y->likely[first + j] = FLUSH;
            continue;
        }
        double argument = rigorous(ARGUMENT * d * ROUNDOFF);
        y->bound[first + j] = p * both(any, argument) + FLUSH;
        y->likely[first + j] = p * both(likely, argument) + FLUSH;
    }
}

/* y = x - m - ln l, in this order:
 *   |error| <= (4 d_mean + kappa + D + R (kappa + 1)) u + 2 (1 + |ln l|) u
 *              + (d_j + |y_j|) u + 2 min(|L|, 89) u
 * The last term lets a program form L = log sum exp(x) itself, as naive ones must; they
 * overflow beyond 89.  A program that subtracts m + ln l at once at m = 1e4 errs by
 * 1e4 u and is rejected. */
static void logsoftmax_row(struct answer *y, const float *x, const float *w, size_t n,
                           size_t i)
{
    size_t first = i * n;
    (void)w;
    struct row row = row_of(x, n);
    double ln_l = row.l > 0 ? log(row.l) : 0, lse = fabs(row.m + ln_l);
    double steps = 2 * (1 + fabs(ln_l)) * ROUNDOFF;
    double own_lse = 2 * (lse < 89 ? lse : 89) * ROUNDOFF + steps;
    double any = rigorous(exp_sum_error(row.d_mean, row.n_seen, WORST)) + own_lse;
    double likely = rigorous(exp_sum_error(row.d_mean, row.n_seen, LIKELY)) + own_lse;
    for (size_t j = 0; j < n; j++) {
        double d = row.m - x[j], value = x[j] == -INFINITY ? -INFINITY : -d - ln_l;
        y->want[first + j] = row.max_abs == INFINITY ? NAN : value;
        double last = isfinite(value) ? (d + fabs(value)) * ROUNDOFF : 0;
        y->bound[first + j] = any + last;
        y->likely[first + j] = likely + last;
    }
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

/* |error| <= (3n/2 + 4) u max|x|.  An error made in step k is shrunk by k/n.  Total and
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
    y->bound[row] = (1.5 * all + 4) * u + FLUSH;
    y->likely[row] = (1.5 * roundings(LIKELY, all) + 4) * u + FLUSH;
}

/* lse and sum p w: the bounds of log-sum-exp and of attention with exact scores.
 * sum (x - lse) w: as in reference_attention.c, again with exact scores. */
static void fused_softmax(const float *x, const float *w, size_t n, enum luck luck,
                          double *want, double *bound)
{
    struct row s = row_of(x, n);
    double ln_l = log(s.l), lse = s.m + ln_l, rel = exp_sum_error(s.d_mean, s.n_seen, luck);
    struct sum dot = {0, 0}, log_dot = {0, 0};
    double mass = 0, size = 0, w_abs = 0, count = 6 * roundings(luck, (double)n) + 8;
    for (size_t j = 0; j < n; j++) {
        double p = exp(x[j] - s.m) / s.l;
        sum_add(&dot, p * w[j]);
        sum_add(&log_dot, (x[j] - lse) * w[j]);
        mass += p * fabs(w[j]) * (1 + ARGUMENT * (s.m - x[j]) / count);
        size += (fabs(x[j]) + fabs(lse) + fabs(s.m)) * fabs(w[j]);
        w_abs += fabs(w[j]);
    }
    double lse_error = rigorous(rel) + 2 * ROUNDOFF * (1 + fabs(ln_l)) +
                       2 * ROUNDOFF * (fabs(lse) + fabs(s.m));
    want[FUSED_LSE] = lse;
    bound[FUSED_LSE] = lse_error;
    want[FUSED_SOFTMAX_DOT] = sum_value(&dot);
    bound[FUSED_SOFTMAX_DOT] =
        mass * rigorous(rel + count * 2 * ROUNDOFF) + FLUSH * w_abs;
    want[FUSED_LOGSOFTMAX_DOT] = sum_value(&log_dot);
    bound[FUSED_LOGSOFTMAX_DOT] = count * ROUNDOFF * size + lse_error * w_abs;
}

/* Variance and covariance in one pass (Welford, or Chan's merge).  A running mean errs by
 * at most e = (n + 8) u max|x| (see mean_row; twice for a difference of two).  The terms
 * (x - mean_old)(w - mean_new) change by e_x |w - mean| + e_w |x - mean| + e_x e_w, and
 * by Cauchy-Schwarz their mean by e_x sd_w + e_w sd_x times sqrt(2) in sequence and
 * sqrt(2 log2 n) <= 8 in a merge tree.  The terms' own roundings and additions give
 * (n + 8) u sd_x sd_w. */
static void fused_moments(const float *x, const float *w, size_t n, enum luck luck,
                          double *want, double *bound)
{
    double mean_x, mean_w, max_x, max_w, u_n = (roundings(luck, (double)n) + 8) * ROUNDOFF;
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
    bound[FUSED_VARIANCE] = 2 * u_n * var + 8 * e_x * sd_x + e_x * e_x + FLUSH;
    want[FUSED_COVARIANCE] = sum_value(&xw) / (double)n;
    bound[FUSED_COVARIANCE] =
        2 * u_n * sd_x * sd_w + 4 * (e_x * sd_w + e_w * sd_x) + e_x * e_w + FLUSH;
}

static void fused_row(struct answer *y, const float *x, const float *w, size_t n,
                      size_t i)
{
    double *want = y->want + i * N_FUSED;
    for (int luck = WORST; luck <= LIKELY; luck++) {
        double *bound = (luck == LIKELY ? y->likely : y->bound) + i * N_FUSED;
        fused_softmax(x, w, n, (enum luck)luck, want, bound);
        fused_moments(x, w, n, (enum luck)luck, want, bound);
    }
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
