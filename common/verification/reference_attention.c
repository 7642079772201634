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
 *   score     eta_j = (d + 3) scale sum_t |q_t k_jt| + |s_j| + 3 |bias_j|: d roundings of
 *             the dot product in any order, three for the scale and log2 e, one for adding
 *             the bias, the bias times log2 e.  Where q.k = 0 for all keys the score is the
 *             bias itself, and equal ones err alike: 0 for the largest, else
 *             4 (|s_j| + |m|)
 *   soft cap  the slope of the cap is at most 1, so it adds only the error of the quotient
 *             and of tanh: 6 |c tanh(x / c)| u
 *   sink      eta = 4 |sink|, as of a bias without a product
 *   o         u sum_j p_j |v_jc| [x_j + x_mean + 2 kappa + 2 R (kappa + 1) + D_l + D_o + 3]:
 *             each rescaling is an exp and a product, once in o and once in l.  D_l = n, D_o =
 *             4 n: the normalised form rounds a quotient, two products and a sum for every key.
 *             Three passes: R = 0, D_o = n.
 *   lse       x_mean + u [kappa + D + R (kappa + 1)] + 2 (1 + |ln l|) u
 *             + (|lse| + 2 |m|) u  (2 |m|: a maximum kept in base 2)
 *   log form  sum_j |v_jc| [eta_j u + 2 (n + 4) (|s_j| + |lse| + |m|) u + lse_error]:
 *             the sums of s_j v_j and of v_j have at most n additions and n rescalings */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem/layout.h"
#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_keys.h"
#include "verification/reference_sum.h"

/* One row's scratch, each [stride] or [head_dim_v]. */
struct scratch {
    double *q, *s, *eta, *p;
    double *sum, *low, *mass, *error, *likely;
};

/* What the scores of a row add up to. */
struct scores {
    double m, l, max_v;
    double x_mean, x_most; /* sum p x (1 + x); the largest x of a key that weighs anything */
    double max_s;          /* the largest |score| that matters: of a dead key none */
    double range;          /* the largest finite |score| */
    size_t keys;           /* with a score above -inf */
    size_t n;              /* the same and the sink */
    int is_nan;            /* a score is NaN or +inf */
};

/* Fills w->s and w->eta up to the last key that the row may see; -INFINITY where the key
 * is masked.  Sets *exact when every q.k is a sum of zeros.  Returns the largest |score| before
 * a soft cap, 0 without one: what it errs by gets through where the cap is not flat.
 *   q (head_dim)   kt (head_dim, stride)   bias (seqlen_k) or NULL */
static double score_row(const struct problem *p, struct scratch *w, const double *kt,
                        size_t stride, const float *bias, struct key_range keys, int *exact)
{
    double rounds = (double)p->head_dim + 3, c = (double)p->softcap, through = 0;
    for (size_t j = 0; j < keys.end; j += LANES)
        dot_block(w->q, p->head_dim, kt + j, stride, w->s + j, w->eta + j);
    *exact = 1;
    for (size_t j = 0; j < keys.end; j++) {
        double b = bias ? bias[j] : 0, mass = w->eta[j] * fabs((double)p->scale);
        double s = w->s[j] * (double)p->scale, of_cap = 0;
        int masked = j < keys.first || b == -INFINITY;
        if (!masked && mass != 0) *exact = 0;
        if (c > 0) {
            if (!masked && fabs(s) > through && isfinite(s)) through = fabs(s);
            s = c * tanh(s / c);
            of_cap = 6 * fabs(s);
        }
        w->s[j] = masked ? -INFINITY : s + b;
        w->eta[j] = rounds * mass + fabs(w->s[j]) + 3 * fabs(b) + of_cap;
    }
    return through;
}

/* A weight so small that no error can bring it back to life. */
static int is_dead(double p, double x, double d) { return p == 0 && x < d - 104; }

/* Adds a key of weight p, at distance d from the maximum, to the means. */
static void add_weight(struct scores *r, double p, double x, double d, double s)
{
    if (is_dead(p, x, d)) return;
    if (p > 0) r->x_mean += p * x * (1 + x);
    if (x > r->x_most) r->x_most = x;
    if (fabs(s) > r->max_s) r->max_s = fabs(s);
}

/* The maximum, the sum, p = softmax(s) and the means under p.   sink: -INFINITY for none */
static struct scores normalise(struct scratch *w, const double *v_max, size_t n_keys,
                               double sink, int exact)
{
    struct scores r = {.m = sink, .n = sink > -INFINITY, .is_nan = !(sink < INFINITY)};
    if (isfinite(sink)) r.range = fabs(sink);
    for (size_t j = 0; j < n_keys; j++) {
        double s = w->s[j];
        if (isnan(s) || s == INFINITY) r.is_nan = 1;
        if (s == -INFINITY) continue;
        r.keys++, r.n++;
        if (s > r.m) r.m = s;
        if (isfinite(s) && fabs(s) > r.range) r.range = fabs(s);
        if (v_max[j] > r.max_v) r.max_v = v_max[j];
    }
    r.max_s = r.is_nan ? r.range : 0;
    if (r.is_nan || r.n == 0) return r;
    struct sum l = {0, 0};
    double of_sink = exp(sink - r.m); /* 0 for none */
    sum_add(&l, of_sink);
    for (size_t j = 0; j < n_keys; j++) {
        w->p[j] = exp(w->s[j] - r.m);
        if (w->p[j] > 0) sum_add(&l, w->p[j]);
        if (exact) w->eta[j] = w->s[j] == r.m ? 0 : 4 * (fabs(w->s[j]) + fabs(r.m));
    }
    r.l = sum_value(&l);
    for (size_t j = 0; j < n_keys; j++) {
        double d = r.m - w->s[j];
        w->p[j] /= r.l;
        if (w->s[j] == -INFINITY) continue;
        double x = ROUNDOFF * (w->eta[j] + ARGUMENT * d);
        add_weight(&r, w->p[j], x, d, exact && d == 0 ? 0 : w->s[j]);
    }
    if (sink > -INFINITY) {
        double d = r.m - sink;
        add_weight(&r, of_sink / r.l, ROUNDOFF * (4 * fabs(sink) + ARGUMENT * d), d, sink);
    }
    return r;
}

/* sum += weight v, mass += |weight v|, error += |weight v| x; all over dv columns. */
static void accumulate(struct scratch *w, const double *v, size_t dv, double weight,
                       double x)
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

/* Ends the sums.  An infinite value makes the compensation NaN: such columns are summed
 * plainly. */
static void finish_sums(struct scratch *w, const double *v, size_t dv, size_t n_keys,
                        const double *weight)
{
    for (size_t c = 0; c < dv; c++) {
        w->sum[c] += w->low[c];
        if (!isnan(w->sum[c])) continue;
        w->sum[c] = 0;
        for (size_t j = 0; j < n_keys; j++)
            if (w->s[j] != -INFINITY) w->sum[c] += weight[j] * v[j * dv + c];
    }
}

/* o = sum_j p_j v_j with its bounds. */
static void value_row(struct standard *r, struct scratch *w, const struct scores *s,
                      const double *v, size_t dv, size_t n_keys, size_t row)
{
    double n = (double)s->n, R = n - 1, flush = 0;
    for (size_t j = 0; j < n_keys; j++) {
        if (w->s[j] == -INFINITY) continue;
        double d = s->m - w->s[j], x = ROUNDOFF * (w->eta[j] + ARGUMENT * d);
        accumulate(w, v + j * dv, dv, w->p[j], is_dead(w->p[j], x, d) ? 0 : x * (1 + x));
        flush += FLUSH;
    }
    finish_sums(w, v, dv, n_keys, w->p);
    double sums = 2 * KAPPA + 3;
    double any = both(s->x_mean, rigorous(ROUNDOFF * (sums + 2 * R * (KAPPA + 1) + 5 * n)));
    double safe = both(s->x_mean, rigorous(ROUNDOFF * (sums + 2 * n)));
    struct answer *o = &r->answer[ARRAY_O];
    flush *= 2 * s->max_v + 2;
    for (size_t c = 0; c < dv; c++) {
        size_t at = row * dv + c;
        o->want[at] = w->sum[c];
        r->o_mass[at] = w->mass[c];
        o->bound[at] = w->error[c] * (1 + any) + w->mass[c] * any + flush;
        o->bound_safe[at] = w->error[c] * (1 + safe) + w->mass[c] * safe + flush;
        if (s->x_most > 1 || any == INFINITY) o->bound[at] = INFINITY;
        if (s->x_most > 1 || safe == INFINITY) o->bound_safe[at] = INFINITY;
    }
}

/* |error| of lse: that of the weights, of their sum, of the logarithm and of the addition. */
static double lse_error(const struct scores *s, enum luck luck)
{
    double ln_l = log(s->l), D = roundings(luck, (double)s->n - 1);
    double of_weights = s->x_most > 1 ? s->x_most : s->x_mean;
    double of_sum = rigorous(ROUNDOFF * (KAPPA + D + D * (KAPPA + 1)));
    return both(of_weights, of_sum) +
           ROUNDOFF * (2 * (1 + fabs(ln_l)) + fabs(s->m + ln_l) + 2 * fabs(s->m));
}

/* o = sum_j (s_j - lse) v_j with its bound. */
static void log_value_row(struct standard *r, struct scratch *w, const struct scores *s,
                          const double *v, size_t dv, size_t n_keys, size_t row)
{
    double lse = s->m + log(s->l), n = (double)s->n;
    double worst = lse_error(s, WORST), likely = lse_error(s, LIKELY);
    for (size_t j = 0; j < n_keys; j++) {
        if (w->s[j] == -INFINITY) continue;
        w->p[j] = w->s[j] - lse;
        double size = 2 * ROUNDOFF * (fabs(w->s[j]) + fabs(lse) + fabs(s->m));
        double of_score = ROUNDOFF * w->eta[j] + 4 * size;
        accumulate(w, v + j * dv, dv, w->p[j], 0);
        for (size_t c = 0; c < dv; c++) {
            double v_abs = fabs(v[j * dv + c]);
            w->error[c] += v_abs * (of_score + n * size + worst);
            w->likely[c] += v_abs * (of_score + roundings(LIKELY, n) * size + likely);
        }
    }
    finish_sums(w, v, dv, n_keys, w->p);
    struct answer *o = &r->answer[ARRAY_O];
    for (size_t c = 0, at = row * dv; c < dv; c++, at++) {
        o->want[at] = w->sum[c];
        r->o_mass[at] = w->mass[c];
        o->bound[at] = o->bound_safe[at] = w->error[c] + FLUSH;
        o->likely[at] = w->likely[c] + FLUSH;
    }
}

static void attention_row(struct standard *r, const struct problem *p,
                          const struct arrays *a, struct scratch *w,
                          const struct keys *keys, size_t row, struct scores *s)
{
    size_t rows = rows_per_head(p), i = row % rows, head = row / rows, dv = p->head_dim_v;
    size_t b = head / p->heads_q, h = head % p->heads_q;
    size_t kv = b * p->heads_kv + h / (p->heads_q / p->heads_kv);
    struct key_range seen = row_keys(p, i);
    const double *v = keys->v + kv * p->seqlen_k * dv;
    const float *bias = p->has_bias ? a->bias + bias_at(p, b, h, row_query(p, i)) : NULL;
    double sink = p->has_sinks ? (double)a->sinks[h] : -INFINITY;
    int exact;
    double through = score_row(p, w, keys->kt + kv * p->head_dim * keys->stride, keys->stride,
                               bias, seen, &exact);
    *s = normalise(w, keys->v_max + kv * p->seqlen_k, seen.end, sink, exact);
    if (through > s->max_s) s->max_s = through;
    struct answer *lse = &r->answer[ARRAY_LSE];
    double *o = r->answer[ARRAY_O].want + row * dv;
    if (s->is_nan || s->n == 0) {
        lse->want[row] = s->is_nan ? NAN : -INFINITY;
        for (size_t c = 0; c < dv; c++) o[c] = s->is_nan ? NAN : 0;
        return;
    }
    lse->want[row] = s->m + log(s->l);
    lse->bound[row] = lse_error(s, WORST);
    lse->likely[row] = lse_error(s, LIKELY);
    r->weight[row] = 1 / s->l;
    memset(w->sum, 0, 5 * dv * sizeof(double)); /* sum ... likely lie in a row */
    if (p->op == OP_LOGSOFTMAX_ATTENTION) log_value_row(r, w, s, v, dv, seen.end, row);
    else value_row(r, w, s, v, dv, seen.end, row);
}

/* Adds a row to the maxima of its head and to those of the problem. */
static void count_row(struct standard *r, const struct scores *s, size_t head)
{
    double range = s->is_nan ? INFINITY : s->range;
    if (s->max_s > r->max_s[head]) r->max_s[head] = s->max_s;
    if (s->max_v > r->max_v[head]) r->max_v[head] = s->max_v;
    if (range > r->max_score) r->max_score = range;
    r->empty_rows += !s->is_nan && s->keys == 0;
}

static void details_alloc(struct standard *r, const struct problem *p)
{
    size_t heads = p->batch * p->heads_q;
    r->o_mass = xcalloc(r->answer[ARRAY_O].n, sizeof(double));
    r->weight = xcalloc(r->answer[ARRAY_LSE].n, sizeof(double));
    r->max_s = xcalloc(heads, sizeof(double));
    r->max_v = xcalloc(heads, sizeof(double));
}

void reference_attention(struct standard *r, const struct problem *p,
                         const struct arrays *a)
{
    details_alloc(r, p);
    struct keys keys = keys_new(p, a, &r->v_is_finite);
    size_t rows = rows_per_head(p), d = p->head_dim, dv = p->head_dim_v;
    size_t n_rows = r->answer[ARRAY_LSE].n;
    float *q = widen(a->q, p->dtype, p->batch * p->heads_q * p->seqlen_q * d);
    struct scores *stats = xcalloc(n_rows, sizeof *stats);
    double work = (double)n_rows * (double)p->seqlen_k * (double)(d + dv);
#pragma omp parallel if (work > WORTH_THREADS)
    {
        double *m = xcalloc(d + 3 * keys.stride + 5 * dv, sizeof *m);
        double *lanes = m + d, *columns = lanes + 3 * keys.stride;
        struct scratch w = {.q = m,
                            .s = lanes,
                            .eta = lanes + keys.stride,
                            .p = lanes + 2 * keys.stride,
                            .sum = columns,
                            .low = columns + dv,
                            .mass = columns + 2 * dv,
                            .error = columns + 3 * dv,
                            .likely = columns + 4 * dv};
#pragma omp for schedule(dynamic, 8)
        for (size_t row = 0; row < n_rows; row++) {
            size_t query = row / rows * p->seqlen_q + row_query(p, row % rows);
            for (size_t t = 0; t < d; t++) w.q[t] = q[query * d + t];
            attention_row(r, p, a, &w, &keys, row, &stats[row]);
        }
        free(m);
    }
    for (size_t row = 0; row < n_rows; row++) count_row(r, &stats[row], row / rows);
    free(stats);
    free(q);
    keys_free(&keys);
}
