/* reference_backward.c: the reference of the backward pass.  Nothing is stored but a row.
 *
 *     p_ij = exp(s_ij - lse_i)     D_i = do_i . o_i     ds_ij = p_ij (do_i . v_j - D_i)
 *     dq_i = scale sum_j ds_ij k_j     dk_j = scale sum_i ds_ij q_i     dv_j = sum_i p_ij do_i
 *
 * i goes over the queries of all heads that share the key head.  A soft cap multiplies ds by its
 * slope 1 - tanh^2; a sink, a key without a value, has ds = -p D.  Hidden keys and scores of
 * -infinity are left out: nobody looks at their values.  o and lse are the exact ones here;
 * programs read rounded ones.
 *
 * Error bounds, u = 2^-24, h the roundoff of the problem's type (0 for f32), n terms of a sum:
 *   p     x = (eta + 4 |s - lse| + 4 |lse| + kappa) u + h, relative; eta as in the forward pass
 *   dp-D  (dv + 2) u sum (|do v| + |do o|) + h sum |do o|
 *   ds    |ds| (x (1 + x) + 4 u + h) + p error(dp - D), and for a soft cap the error of its slope,
 *         2 (eta / c + 6) u
 *   sums  error of each term, and n u of its size
 * The proofs are those of notes/numerics.md, term by term. */
#include <math.h>
#include <stdlib.h>

#include "problem/layout.h"
#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"

/* What one pair of a query and a key adds. */
struct pair { double p, ds, p_error, ds_error[2]; };

/* The row of a query: its pointers, and what its keys have in common. */
struct row {
    const float *q, *d_o;
    double lse, D, D_mass;
    size_t n_terms;    /* of dk and dv */
};

/* Everything in float, as the problem has it. */
struct inputs_in_float { float *q, *k, *v, *d_o; };

static double dot(const float *x, const float *y, size_t n, double *mass)
{
    double sum = 0;
    *mass = 0;
    for (size_t t = 0; t < n; t++) {
        sum += (double)x[t] * y[t];
        *mass += fabs((double)x[t] * y[t]);
    }
    return sum;
}

/* An error that may be infinite, times a size that may be 0. */
static double times(double error, double size) { return size == 0 ? 0 : error * fabs(size); }

/* Adds a term and what it may err by, `of_sum` being the roundings of the sum. */
static void add(struct answer *to, size_t at, double term, double worst, double likely,
                const double of_sum[2])
{
    to->want[at] += term;
    to->bound[at] += worst + fabs(term) * of_sum[WORST];
    to->likely[at] += likely + fabs(term) * of_sum[LIKELY];
}

/* The score of the pair, its slope at the soft cap and what it errs by. */
static double score(const struct problem *p, const float *q, const float *k, double bias,
                    double *slope, double *eta)
{
    double mass, c = (double)p->softcap, s = dot(q, k, p->head_dim, &mass) * (double)p->scale;
    *slope = 1;
    *eta = ((double)p->head_dim + 3) * mass * fabs((double)p->scale);
    if (c > 0) {
        double t = tanh(s / c);
        s = c * t;
        *slope = 1 - t * t;
        *eta += 6 * fabs(s);
    }
    *eta += fabs(s + bias) + 3 * fabs(bias);
    return s + bias;
}

static struct pair pair_of(const struct problem *p, const struct row *row, const float *k,
                           const float *v, double bias)
{
    double half = dtypes[p->dtype].roundoff, slope, eta, v_mass;
    double s = score(p, row->q, k, bias, &slope, &eta);
    struct pair r = {0};
    if (s == -INFINITY) return r;
    double d = fabs(s - row->lse), dp = dot(row->d_o, v, p->head_dim_v, &v_mass);
    double x = ROUNDOFF * (eta + 4 * d + 4 * fabs(row->lse) + KAPPA) + half;
    double tiny = dtypes[p->dtype].least_step + FLUSH;
    r.p = exp(s - row->lse);
    if (r.p == 0 && x < d - 104) x = 0; /* nothing brings this weight back to life */
    double of_p = rigorous(x), c = (double)p->softcap;
    double of_slope = c > 0 ? 2 * ROUNDOFF * (eta / c + 6) : 0;
    r.ds = r.p * (dp - row->D) * slope;
    r.p_error = r.p * of_p + tiny;
    if (of_p == INFINITY) r.p_error = INFINITY;
    for (int luck = WORST; luck <= LIKELY; luck++) {
        double n = roundings((enum luck)luck, (double)p->head_dim_v) + 2;
        double of_dp = n * ROUNDOFF * (v_mass + row->D_mass) + half * row->D_mass;
        r.ds_error[luck] = fabs(r.ds) * (both(of_p, 4 * ROUNDOFF + half)) + r.p * slope * of_dp +
                           r.p * fabs(dp - row->D) * of_slope +
                           tiny * (1 + fabs(dp) + fabs(row->D));
        if (of_p == INFINITY) r.ds_error[luck] = INFINITY;
    }
    return r;
}

/* A query's share of dq, dk and dv.  q_at, k_at, v_at: where its row of dq and its head's rows
 * of dk and dv begin. */
static void add_row(struct standard *r, const struct problem *p, const struct row *row,
                    const float *k, const float *v, const float *bias, struct key_range seen,
                    const size_t at[3])
{
    size_t d = p->head_dim, dv = p->head_dim_v;
    double scale = (double)p->scale, of_dq[2], of_dk[2];
    for (int luck = WORST; luck <= LIKELY; luck++) {
        double n = (double)(seen.end - seen.first);
        of_dq[luck] = ROUNDOFF * (roundings((enum luck)luck, n) + 2);
        of_dk[luck] = ROUNDOFF * (roundings((enum luck)luck, (double)row->n_terms) + 2);
    }
    for (size_t j = seen.first; j < seen.end; j++) {
        double b = bias ? (double)bias[j] : 0;
        if (b == -INFINITY) continue;
        struct pair x = pair_of(p, row, k + j * d, v + j * dv, b);
        if (x.p == 0 && x.p_error == 0) continue;
        double ds = x.ds * scale, worst = x.ds_error[WORST] * fabs(scale);
        double likely = x.ds_error[LIKELY] * fabs(scale);
        for (size_t t = 0; t < d; t++) {
            double k_t = k[j * d + t], q_t = row->q[t];
            add(&r->answer[ARRAY_DQ], at[0] + t, ds * k_t, times(worst, k_t), times(likely, k_t),
                of_dq);
            add(&r->answer[ARRAY_DK], at[1] + j * d + t, ds * q_t, times(worst, q_t),
                times(likely, q_t), of_dk);
        }
        for (size_t c = 0; c < dv; c++) {
            double do_c = row->d_o[c], error = times(x.p_error, do_c);
            add(&r->answer[ARRAY_DV], at[2] + j * dv + c, x.p * do_c, error, error, of_dk);
        }
    }
}

/* The sink's share of query row: its weight times -D. */
static void add_sink(struct standard *r, const struct problem *p, const struct row *row,
                     size_t h, double sink)
{
    double half = dtypes[p->dtype].roundoff, d = fabs(sink - row->lse);
    if (sink == -INFINITY) return;
    double weight = exp(sink - row->lse);
    double x = ROUNDOFF * (4 * fabs(sink) + 4 * d + 4 * fabs(row->lse) + KAPPA);
    double rounds[2];
    for (int luck = WORST; luck <= LIKELY; luck++)
        rounds[luck] = ROUNDOFF * (roundings((enum luck)luck,
                                             (double)(p->batch * p->seqlen_q)) + 2);
    double error = weight * row->D_mass * (rigorous(x) + half + ROUNDOFF *
                                           ((double)p->head_dim_v + 2)) + FLUSH;
    add(&r->answer[ARRAY_DSINKS], h, -weight * row->D, error, error, rounds);
}

/* One query head of one batch.  forward: its answers */
static void add_head(struct standard *r, const struct problem *p, const struct arrays *a,
                     const struct inputs_in_float *in, const struct standard *forward, size_t b,
                     size_t h)
{
    size_t d = p->head_dim, dv = p->head_dim_v, n = p->seqlen_k;
    size_t group = p->heads_q / p->heads_kv, kv = b * p->heads_kv + h / group;
    for (size_t i = 0; i < p->seqlen_q; i++) {
        size_t row = (b * p->heads_q + h) * p->seqlen_q + i;
        const double *o = forward->answer[ARRAY_O].want + row * dv;
        struct row x = {.q = in->q + row * d, .d_o = in->d_o + row * dv,
                        .lse = forward->answer[ARRAY_LSE].want[row],
                        .n_terms = p->seqlen_q * group};
        const size_t at[3] = {row * d, kv * n * d, kv * n * dv};
        if (x.lse == -INFINITY) continue;
        for (size_t c = 0; c < dv; c++) {
            x.D += (double)x.d_o[c] * o[c];
            x.D_mass += fabs((double)x.d_o[c] * o[c]);
        }
        add_row(r, p, &x, in->k + kv * n * d, in->v + kv * n * dv,
                p->has_bias ? a->bias + bias_at(p, b, h, i) : NULL, visible_keys(p, i), at);
        if (p->has_sinks) add_sink(r, p, &x, h, (double)a->sinks[h]);
    }
}

static int all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

void reference_backward(struct standard *r, const struct problem *p, const struct arrays *a)
{
    struct problem plain = *p;
    plain.op = OP_ATTENTION;
    struct standard *forward = standard_room(&plain);
    reference_attention(forward, &plain, a);
    struct inputs_in_float in = {
        widen(a->q, p->dtype, array_count(p, ARRAY_Q)),
        widen(a->k, p->dtype, array_count(p, ARRAY_K)),
        widen(a->v, p->dtype, array_count(p, ARRAY_V)),
        widen(a->d_o, p->dtype, array_count(p, ARRAY_DO))};
    size_t group = p->heads_kv ? p->heads_q / p->heads_kv : 0;
#pragma omp parallel for schedule(dynamic) if (problem_flops(p) > WORTH_THREADS)
    for (size_t kv = 0; kv < p->heads_kv; kv++) /* heads that no other thread adds to */
        for (size_t b = 0; b < p->batch; b++)
            for (size_t h = kv * group; h < (kv + 1) * group; h++)
                add_head(r, p, a, &in, forward, b, h);
    r->max_score = forward->max_score;
    r->empty_rows = forward->empty_rows;
    r->v_is_finite = forward->v_is_finite && all_finite(in.q, array_count(p, ARRAY_Q)) &&
                     all_finite(in.k, array_count(p, ARRAY_K)) &&
                     all_finite(in.d_o, array_count(p, ARRAY_DO));
    free(in.q), free(in.k), free(in.v), free(in.d_o);
    standard_free(forward);
}
