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

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"

/* What one pair of a query and a key adds. */
struct pair { double p, ds, p_error, ds_error[2]; };

/* The row of a query: its own do and lse, D = do . o, and sum |do o|. */
struct row { const float *d_o; double lse, D, D_mass; };

/* An error that may be infinite, times a size that may be 0. */
static double times(double error, double size) { return size == 0 ? 0 : error * fabs(size); }

/* What a sum of n terms may err by, relative to the terms: for either luck. */
static void sum_errors(double n, double of_sum[2])
{
    for (int luck = WORST; luck <= LIKELY; luck++)
        of_sum[luck] = ROUNDOFF * (roundings((enum luck)luck, n) + 2);
}

/* Adds a term factor x to an element; error: of the factor; of_sum: the roundings of the sum. */
static void add(struct answer *to, size_t at, double factor, double x, const double error[2],
                const double of_sum[2])
{
    double term = factor * x;
    to->want[at] += term;
    to->bound[at] += times(error[WORST], x) + fabs(term) * of_sum[WORST];
    to->likely[at] += times(error[LIKELY], x) + fabs(term) * of_sum[LIKELY];
}

/* Key j of the row, whose scores are in w. */
static struct pair pair_of(const struct problem *p, const struct row *row,
                           const struct scratch *w, const float *v, size_t j)
{
    double half = dtypes[p->dtype].roundoff, s = w->s[j], c = (double)p->softcap;
    double dp = 0, v_mass = 0, d = fabs(s - row->lse);
    for (size_t t = 0; t < p->head_dim_v; t++) {
        dp += (double)row->d_o[t] * v[t];
        v_mass += fabs((double)row->d_o[t] * v[t]);
    }
    double x = ROUNDOFF * (w->eta[j] + 4 * d + 4 * fabs(row->lse) + KAPPA) + half;
    double tiny = dtypes[p->dtype].least_step + FLUSH;
    struct pair r = {.p = exp(s - row->lse)};
    if (r.p == 0 && x < d - 104) x = 0; /* nothing brings this weight back to life */
    double of_p = rigorous(x), slope = w->slope[j];
    double of_slope = c > 0 ? 2 * ROUNDOFF * (w->eta[j] / c + 6) : 0;
    r.ds = r.p * (dp - row->D) * slope;
    r.p_error = of_p == INFINITY ? INFINITY : r.p * of_p + tiny;
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

/* A query's share of dq, dk and dv.   at: where its row of dq begins */
static void add_row(struct standard *r, const struct problem *p, const struct row *row,
                    const struct query *x, const struct scratch *w, size_t at)
{
    size_t d = p->head_dim, dv = p->head_dim_v;
    double scale = (double)p->scale, of_dq[2], of_dk[2];
    sum_errors((double)x->n, of_dq);
    sum_errors((double)(p->seqlen_q * (p->heads_q / p->heads_kv)), of_dk);
    for (size_t j = 0; j < x->n; j++) {
        if (w->s[j] == -INFINITY) continue;
        struct pair pair = pair_of(p, row, w, x->v + j * dv, j);
        if (pair.p == 0 && pair.p_error == 0) continue;
        double ds = pair.ds * scale, of_p[2] = {pair.p_error, pair.p_error};
        double of_ds[2] = {pair.ds_error[WORST] * fabs(scale),
                           pair.ds_error[LIKELY] * fabs(scale)};
        size_t key = x->key + j;
        for (size_t t = 0; t < d; t++) {
            add(&r->answer[ARRAY_DQ], at + t, ds, x->k[j * d + t], of_ds, of_dq);
            add(&r->answer[ARRAY_DK], key * d + t, ds, x->q[t], of_ds, of_dk);
        }
        for (size_t c = 0; c < dv; c++)
            add(&r->answer[ARRAY_DV], key * dv + c, pair.p, row->d_o[c], of_p, of_dk);
    }
}

/* The sink's share of query row: its weight times -D. */
static void add_sink(struct standard *r, const struct problem *p, const struct row *row,
                     const struct query *query)
{
    double sink = (double)query->sink, d = fabs(sink - row->lse), of_sum[2];
    if (sink == -INFINITY) return;
    double weight = exp(sink - row->lse);
    double x = ROUNDOFF * (4 * fabs(sink) + 4 * d + 4 * fabs(row->lse) + KAPPA);
    double of_D = dtypes[p->dtype].roundoff + ROUNDOFF * ((double)p->head_dim_v + 2);
    double error = weight * row->D_mass * (rigorous(x) + of_D) + FLUSH, either[2] = {error, error};
    sum_errors((double)(p->batch * p->seqlen_q), of_sum);
    add(&r->answer[ARRAY_DSINKS], query->h, -weight * row->D, 1, either, of_sum);
}

/* All queries of a head.   forward: its answers */
static void add_head(struct standard *r, const struct problem *p, const struct arrays *a,
                     const struct widened *in, const struct standard *forward, size_t head)
{
    size_t dv = p->head_dim_v;
    struct scratch w = scratch_new(p);
    for (size_t row = head * p->seqlen_q; row < (head + 1) * p->seqlen_q; row++) {
        const double *o = forward->answer[ARRAY_O].want + row * dv;
        struct query x = query_of(p, a, in, row);
        struct row of = {.d_o = in->array[ARRAY_DO] + row * dv,
                         .lse = forward->answer[ARRAY_LSE].want[row]};
        if (of.lse == -INFINITY) continue;
        for (size_t c = 0; c < dv; c++) {
            of.D += (double)of.d_o[c] * o[c];
            of.D_mass += fabs((double)of.d_o[c] * o[c]);
        }
        score_row(&w, p, &x);
        add_row(r, p, &of, &x, &w, row * p->head_dim);
        if (p->has_sinks) add_sink(r, p, &of, &x);
    }
    free(w.s);
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
    struct widened in = widened_new(p, a);
    size_t group = p->heads_kv ? p->heads_q / p->heads_kv : 0;
#pragma omp parallel for schedule(dynamic) if (problem_flops(p) > WORTH_THREADS)
    for (size_t kv = 0; kv < p->heads_kv; kv++) /* heads that no other thread adds to */
        for (size_t b = 0; b < p->batch; b++)
            for (size_t h = kv * group; h < (kv + 1) * group; h++)
                add_head(r, p, a, &in, forward, b * p->heads_q + h);
    r->max_score = forward->max_score;
    r->empty_rows = forward->empty_rows;
    for (int i = 0; i < N_ARRAYS; i++)
        if (operations[p->op].weighed & HAS(i))
            r->v_is_finite &= all_finite(in.array[i], array_count(p, i));
    widened_free(&in);
    standard_free(forward);
}
