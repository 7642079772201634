/* reference_backward.c: the reference of the backward pass.  Nothing is stored but a row.
 *
 *     p_ij = exp(s_ij - lse_i)     D_i = do_i . o_i     ds_ij = p_ij (do_i . v_j - D_i)
 *     dq_i = scale sum_j ds_ij k_j     dk_j = scale sum_i ds_ij q_i     dv_j = sum_i p_ij do_i
 *
 * i goes over the queries of all heads that share the key head.  A soft cap multiplies ds by its
 * slope 1 - tanh^2; dropout multiplies the p of dv, and do_i . v_j, by 0 or 1 / (1 - p); a sink, a key
 * without a value, has ds = -p D.  Hidden keys and scores of -infinity are left out: nobody looks at
 * their values.  o and lse are the exact ones here;
 * programs read rounded ones.
 *
 * What is likely (notes/numerics.md), u = 2^-24, h the roundoff of the type (0 for f32):
 *   p     kappa + 4 |s - lse| u of the same sign for all keys; by chance eta_j u / LAMBDA, and h for dv
 *   dp    by chance 2 u sqrt(dv) (|dp| + sum |do v|) / 2
 *   row   lse errs by 4 |lse| u for all keys of a row alike, D by u sqrt(dv) sqrt(sum do^2 o^2) and by do
 *         times what o has lost when it was rounded:
 *         dq errs by the first times dq and by the second times scale sum_j p_j k_j; dk and dv, which
 *         add up rows, by chance
 *   ds    4 u, and h by chance; all keys alike: h of the gradient.  A p or ds that is a number of the
 *         type loses nothing
 *   sums  each addition u of the partial sum, by chance
 * by chance: LAMBDA times the root of the sum of squares over the terms.
 */
#include <math.h>
#include <stdlib.h>

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"

/* What one pair of a query and a key adds: values, the parts of their errors that may point one way, and
 * the squares of those by chance.  db: ds without the slope of the cap; weight: p with it; kept: what
 * dropout makes of p. */
struct pair {
    double p, ds, db, weight, kept;
    double p_own, ds_own, db_own, p_chance, ds_chance, db_chance, p_round, ds_round;
};

/* The row of a query: its own do and lse, D = do . o, and what D errs by, by chance. */
struct row { const float *d_o; double lse, D, D_chance; };

/* An error that may be infinite, times a size that may be 0. */
static double times(double error, double size) { return size == 0 ? 0 : error * fabs(size); }

/* Adds a term factor x to an element; own, chance: the errors of the factor; alike: the share that its
 * rounding to 16 bits takes or adds, summed in `allowed`. */
static void add(struct answer *to, size_t at, double factor, double x, double own, double chance,
                double alike)
{
    double sum = to->want[at] += factor * x, of_term = times(chance, x);
    to->likely[at] += times(own, x);
    to->allowed[at] += alike * factor * x;
    to->own[at] += of_term * of_term + 2 * ROUNDOFF * ROUNDOFF * sum * sum;
}

/* What is lost of x where the type's numbers end, in any order of x's factors. */
static double least(enum dtype dtype, double x)
{
    const struct dtype_entry *t = &dtypes[dtype];
    return FLUSH + (fabs(x) * t->roundoff < t->least_step ? t->least_step : 0);
}

/* As rounding_of().  A program may round scale ds, which is ds with another exponent for powers of two. */
static double rounding_of_ds(const struct problem *p, double ds, double error)
{
    int exponent, is_power = fabs(frexp((double)p->scale, &exponent)) == 0.5;
    return is_power ? rounding_of(p->dtype, ds, error) : dtypes[p->dtype].roundoff;
}

/* Key j of the row, whose scores are in w. */
static struct pair pair_of(const struct problem *p, const struct row *row, const struct query *query,
                           const struct scratch *w, const float *v, size_t j)
{
    double s = w->s[j], c = (double)p->softcap;
    double dp = 0, v_mass = 0, d = fabs(s - row->lse), slope = w->slope[j];
    for (size_t t = 0; t < p->head_dim_v; t++) {
        dp += (double)row->d_o[t] * v[t];
        v_mass += fabs((double)row->d_o[t] * v[t]);
    }
    struct pair r = {.p = exp(s - row->lse), .kept = kept(p, query, j)};
    dp *= r.kept, v_mass *= r.kept;
    double own = ROUNDOFF * (4 * d + KAPPA), chance = ROUNDOFF * w->eta[j] / LAMBDA;
    double x = own + ROUNDOFF * (4 * fabs(row->lse)) + LAMBDA * chance, more = 1 + fmin(x, 1);
    double lse = ROUNDOFF * 4 * fabs(row->lse);
    if (r.p == 0 && x < d - 104) own = chance = lse = 0; /* nothing brings this weight back to life */
    r.weight = r.p * slope;
    r.db = r.p * (dp - row->D);
    r.ds = r.db * slope;
    r.p_round = rounding_of(p->dtype, r.p, x);
    double p_least = least(p->dtype, r.p), ds_least = least(p->dtype, r.ds * fmin(1, fabs((double)p->scale)));
    double tiny = p_least * (1 + fabs(dp) + fabs(row->D)) + ds_least;
    r.p_own = r.p * own * more + p_least;
    r.p_chance = r.p * sqrt(chance * chance * more * more + lse * lse + r.p_round * r.p_round);
    double of_cap = c > 0 ? 2 * ROUNDOFF * (w->eta[j] / c + 6) : 0;
    double of_dp = ROUNDOFF * (fabs(dp) + v_mass) * sqrt((double)p->head_dim_v + 2);
    r.ds_round = rounding_of_ds(p, r.ds, r.weight * (of_dp + row->D_chance) / fabs(r.ds) + x + 4 * ROUNDOFF);
    double of_ds = fabs(r.ds) * sqrt(chance * chance * more * more + r.p_round * r.p_round +
                                     r.ds_round * r.ds_round);
    r.ds_own = fabs(r.ds) * (own * more + 4 * ROUNDOFF) + tiny +
               r.p * fabs(dp - row->D) * of_cap;
    r.ds_chance = sqrt(of_ds * of_ds + r.weight * r.weight * of_dp * of_dp);
    r.db_own = fabs(r.db) * (own * more + 4 * ROUNDOFF) + tiny;
    r.db_chance = hypot(r.db * chance * more, r.p * of_dp);
    if (x > 1 && own > 0) r.p_own = r.ds_own = r.db_own = INFINITY;
    return r;
}

/* A query's share of dq, dk and dv.   at: where its row of dq begins; weighted (head_dim): 0 */
static void add_row(struct standard *r, const struct problem *p, const struct row *row,
                    const struct query *x, const struct scratch *w, size_t at, double *weighted)
{
    size_t d = p->head_dim, dv = p->head_dim_v;
    struct answer *dq = &r->answer[ARRAY_DQ];
    double scale = (double)p->scale, size = fabs(scale), lse = 4 * ROUNDOFF * fabs(row->lse);
    for (size_t j = 0; j < x->n; j++) {
        if (w->s[j] == -INFINITY) continue;
        struct pair of = pair_of(p, row, x, w, x->v + j * dv, j);
        if (of.p == 0 && of.p_own == 0) continue;
        double of_row = hypot(of.ds * lse, of.weight * row->D_chance);
        double dk_chance = size * hypot(of.ds_chance, of_row), ds = of.ds * scale;
        size_t key = x->key + j;
        if (p->has_bias_gradient)
            add(&r->answer[ARRAY_DBIAS], x->bias_at + j, of.db, 1, of.db_own,
                hypot(of.db_chance, hypot(of.db * lse, of.p * row->D_chance)), 0);
        for (size_t t = 0; t < d; t++) {
            double k = x->k[j * d + t];
            add(dq, at + t, ds, k, size * of.ds_own, size * of.ds_chance, of.ds_round);
            add(&r->answer[ARRAY_DK], key * d + t, ds, x->q[t], size * of.ds_own, dk_chance, of.ds_round);
            weighted[t] += of.weight * k;
        }
        for (size_t c = 0; of.kept > 0 && c < dv; c++)
            add(&r->answer[ARRAY_DV], key * dv + c, of.kept * of.p, row->d_o[c], of.kept * of.p_own,
                of.kept * of.p_chance, of.p_round);
    }
    for (size_t t = 0; t < d; t++) {
        double of_D = size * row->D_chance * weighted[t];
        dq->likely[at + t] += lse * fabs(dq->want[at + t]);
        dq->own[at + t] += of_D * of_D;
    }
}

/* The sink's share of query row: its weight times -D. */
static void add_sink(struct standard *r, const struct row *row, const struct query *query)
{
    double sink = (double)query->sink, d = fabs(sink - row->lse);
    if (sink == -INFINITY || !r->answer[ARRAY_DSINKS].n) return;
    double weight = exp(sink - row->lse), of_lse = 4 * ROUNDOFF * fabs(row->lse) * row->D;
    double own = ROUNDOFF * (4 * fabs(sink) + 4 * d + KAPPA) * weight * fabs(row->D);
    double tiny = FLUSH * (1 + fabs(row->D));
    add(&r->answer[ARRAY_DSINKS], query->h, -weight * row->D, 1, own + tiny,
        weight * hypot(row->D_chance, of_lse), 0);
}

/* The errors by chance join the others. */
static void end_sums(struct answer *of)
{
    for (size_t e = 0; e < of->n; e++, of->own[e - 1] = of->allowed[e - 1] = 0)
        of->likely[e] += LAMBDA * sqrt(of->own[e]) + 4 * ROUNDOFF * fabs(of->want[e]) +
                         fabs(of->allowed[e]) + FLUSH;
}

/* All queries of a head.   forward: its answers */
static void add_head(struct standard *r, const struct problem *p, const struct arrays *a,
                     const struct widened *in, const struct standard *forward, size_t head)
{
    size_t dv = p->head_dim_v;
    struct scratch w = scratch_new(p);
    double u_D = ROUNDOFF * sqrt((double)dv + 2);
    double *weighted = xcalloc(p->head_dim, sizeof *weighted);
    for (size_t row = head * p->seqlen_q; row < (head + 1) * p->seqlen_q; row++) {
        const double *o = forward->answer[ARRAY_O].want + row * dv;
        struct query x = query_of(p, a, in, row);
        struct row of = {.d_o = in->array[ARRAY_DO] + row * dv,
                         .lse = forward->answer[ARRAY_LSE].want[row]};
        if (of.lse == -INFINITY) continue;
        double squares = 0, lost = 0;
        for (size_t c = 0; c < dv; c++) {
            double term = (double)of.d_o[c] * o[c];
            of.D += term, squares += term * term;
            lost += (double)of.d_o[c] * ((double)dtype_round(p->dtype, (float)o[c]) - o[c]);
        }
        of.D_chance = u_D * (sqrt(squares) + ROUNDOFF * fabs(of.D)) + 4 * ROUNDOFF * fabs(of.D) +
                      fabs(lost);
        for (size_t t = 0; t < p->head_dim; t++) weighted[t] = 0;
        score_row(&w, p, &x);
        add_row(r, p, &of, &x, &w, row * p->head_dim, weighted);
        if (p->has_sinks) add_sink(r, &of, &x);
    }
    free(weighted);
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
#pragma omp parallel for schedule(dynamic) if (problem_flops(p) > WORTH_THREADS && !p->has_bias_gradient)
    for (size_t kv = 0; kv < p->heads_kv; kv++) /* heads that no other thread adds to, but for a bias */
        for (size_t b = 0; b < p->batch; b++)
            for (size_t h = kv * group; h < (kv + 1) * group; h++)
                add_head(r, p, a, &in, forward, b * p->heads_q + h);
    for (int i = 0; i < N_ARRAYS; i++) end_sums(&r->answer[i]);
    r->max_score = forward->max_score;
    r->empty_rows = forward->empty_rows;
    for (int i = 0; i < N_ARRAYS; i++)
        if (operations[p->op].weighed & HAS(i))
            r->v_is_finite &= all_finite(in.array[i], array_count(p, i));
    widened_free(&in);
    standard_free(forward);
}
