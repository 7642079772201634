/* reference_scores.c: the scores of a row in double, and what a float computation of them
 * may err by, in units of u = 2^-24: eta_j, the smaller of
 *
 *     (d_j + 3) scale sum_t |q_t k_jt| + |s_j| + 3 |bias_j|    at most, d_j products are not 0
 *     LAMBDA sqrt(scale^2 (sum_t P_t^2 + 4 sum_t (q_t k_jt)^2) + 4 s_j^2 + 9 bias_j^2)
 *
 * The second is likely if the roundings of one product are independent; P_t are the partial sums,
 * from the end at which they are larger.  Where the d terms are nearly equal their roundings are
 * alike, and the first stands: (sum_t x_t)^2 <= d sum_t x_t^2 with equality for equal terms only
 * (Cauchy and Schwarz), and from nine tenths on they count as equal.
 * d roundings of the dot product in any order, three for the scale and log2 e, one for
 * adding the bias, the bias times log2 e.  The slope of a soft cap is at most 1, so it adds
 * only the error of the quotient and of tanh: 6 |c tanh(x / c)|. */
#include <math.h>

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"

struct scratch scratch_new(const struct problem *p)
{
    size_t n = p->seqlen_k, dv = p->head_dim_v;
    double *m = xcalloc(7 * n + COLUMNS * dv, sizeof *m), *of_o = m + 7 * n;
    return (struct scratch){.s = m, .eta = m + n, .p = m + 2 * n, .slope = m + 3 * n,
                            .squares = m + 4 * n, .partial = m + 5 * n, .terms = m + 6 * n,
                            .column = of_o};
}

/* s_j = q.k_j, eta_j = sum_t |q_t k_jt|, squares_j = those of independent roundings, terms_j = how many
 * products are not 0: adding 0 does not round. */
static void products(struct scratch *w, const struct problem *p, const struct query *x)
{
    double *restrict s = w->s, *restrict mass = w->eta, *restrict low = w->p;
    double *restrict squares = w->squares, *restrict partial = w->partial, *restrict own = w->slope;
    double *restrict terms = w->terms;
    for (size_t j = 0; j < x->n; j++)
        s[j] = low[j] = mass[j] = squares[j] = partial[j] = own[j] = terms[j] = 0;
    for (size_t t = 0; t < p->head_dim; t++) {
        const float *k_t = x->kt + t * p->seqlen_k;
        double q_t = x->q[t];
#pragma omp simd
        for (size_t j = 0; j < x->n; j++) { /* the product is exact */
            double term = q_t * k_t[j], rounds = term != 0;
            s[j] = two_sum(s[j], term, &low[j]);
            mass[j] += fabs(term), own[j] += term * term;
            partial[j] += rounds * s[j], squares[j] += rounds * s[j] * s[j], terms[j] += rounds;
        }
    }
    for (size_t j = 0; j < x->n; j++) {
        double from_the_end = s[j] * (terms[j] * s[j] - 2 * partial[j]);
        squares[j] += fmax(0, from_the_end) + 4 * own[j];
        if (s[j] * s[j] >= 0.9 * own[j] * terms[j]) squares[j] = INFINITY;
        s[j] += low[j];
        if (!isnan(s[j])) continue;
        s[j] = 0; /* an infinity also looks like this: tell them apart */
        for (size_t t = 0; t < p->head_dim; t++)
            s[j] += (double)x->q[t] * x->k[j * p->head_dim + t];
    }
}

void score_row(struct scratch *w, const struct problem *p, const struct query *x)
{
    double c = (double)p->softcap, scale = (double)p->scale;
    products(w, p, x);
    w->exact = 1;
    for (size_t j = 0; j < x->n; j++) {
        double b = x->bias ? x->bias[j] : 0, mass = w->eta[j] * fabs(scale);
        double s = w->s[j] * scale, of_cap = 0, squares = w->squares[j] * scale * scale;
        w->slope[j] = 1;
        if (b != -INFINITY && mass != 0) w->exact = 0;
        if (c > 0) {
            double t = tanh(s / c);
            s = c * t;
            w->slope[j] = 1 - t * t;
            of_cap = 6 * fabs(s);
        }
        w->s[j] = b == -INFINITY ? -INFINITY : s + b;
        squares += 4 * w->s[j] * w->s[j] + 9 * b * b + of_cap * of_cap;
        w->eta[j] = (w->terms[j] + 3) * mass + fabs(w->s[j]) + 3 * fabs(b) + of_cap;
        w->eta[j] = fmin(w->eta[j], LAMBDA * sqrt(squares)); /* NaN is the worst case */
        if (p->dtype == E4M3) w->eta[j] *= E4M3_SUM / ROUNDOFF;
    }
}
