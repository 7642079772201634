/* allowed.c: the rule of acceptance: what is likely, times the dependence of the roundings. */
#include <stdio.h>
#include <stdlib.h>

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"
#include "verification/yardstick.h"

/* How far a result within `error` of x may be from x once it is rounded to the type.  Rounding is
 * monotone, so the ends of the interval are the worst. */
static double after_rounding(enum dtype dtype, double x, double error)
{
    const struct dtype_entry *t = &dtypes[dtype];
    if (t->roundoff == 0) return error;
    double wide = error + ROUNDOFF * (fabs(x) + error); /* the ends are made floats first */
    double low = (double)dtype_round(dtype, (float)(x - wide));
    double high = (double)dtype_round(dtype, (float)(x + wide)), worst = fmax(x - low, high - x);
    return t->least_step + (isfinite(worst) ? worst : error + t->roundoff * fabs(x));
}

/* n errors are at most sqrt(n) times the root of their squares (Cauchy and Schwarz). */
static void complain_beyond(struct standard *s, double share)
{
    double n = fmax((double)s->problem.seqlen_k, (double)s->problem.seqlen_q);
    n = fmax(n, (double)s->problem.cols) + (double)s->problem.head_dim + 100;
    if (share <= 10 * sqrt(n) || s->broken) return;
    s->broken = xcalloc(160, 1);
    snprintf(s->broken, 160, "the harness's own computation errs by %.3g times what is likely",
             share);
}

/* Array i, computed by the harness: in each group of n elements `allowed` becomes at least the
 * largest share of the likely error. */
static void gather_shares(struct standard *s, enum array i, const float *own, size_t n)
{
    const struct answer *of = &s->answer[i];
    for (size_t first = 0; first < of->n; first += n) {
        double worst = of->allowed[first];
        for (size_t k = first; k < first + n; k++) {
            double err = fabs(own[k] - of->want[k]);
            if (!isfinite(of->want[k]) || !isfinite(err)) continue;
            of->own[k] = fmax(of->own[k], err);
            if (err > 0) worst = fmax(worst, err / of->likely[k]);
        }
        complain_beyond(s, worst);
        for (size_t k = first; k < first + n; k++) of->allowed[k] = worst;
    }
}

/* Attention in 16 bits and the log form: o per (batch, head), lse per row. */
static void measure_attention(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    size_t n = s->answer[ARRAY_O].n / (p->batch * p->heads_q);
    float *lse = xcalloc(s->answer[ARRAY_LSE].n, sizeof *lse);
    for (int way = 0; way < N_WAYS; way++) {
        if (way & LANES && n > FEW_RESULTS) break;
        float *own = yardstick_attention(p, a, way, lse);
        gather_shares(s, ARRAY_O, own, n);
        gather_shares(s, ARRAY_LSE, lse, 1);
        free(own);
    }
    free(lse);
}

/* The same sums in float: of equal numbers all roundings go one way, and so do those of a running
 * mean that falls by equal steps. */
static void measure_mean(struct standard *s, const struct arrays *a)
{
    for (int way = 0; way < N_MEAN_WAYS; way++) {
        float *own = yardstick_mean(&s->problem, a, (enum mean_way)way);
        gather_shares(s, ARRAY_Y, own, 1);
        free(own);
    }
}

/* Gradients: per (batch, head), or in the whole of dsinks and dbias. */
static void measure_backward(struct standard *s, const struct arrays *a)
{
    for (int way = 0; way <= REVERSE; way++) {
        float *own[N_ARRAYS];
        yardstick_backward(&s->problem, a, way, own);
        for (int i = 0; i < N_ARRAYS; i++) {
            struct extents e = array_extents(&s->problem, i);
            if (s->answer[i].n)
                gather_shares(s, i, own[i], e.rank == 4 ? e.size[2] * e.size[3] : s->answer[i].n);
            free(own[i]);
        }
    }
}

void allow(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    int half = dtypes[p->dtype].roundoff != 0;
    double twice = p->op == OP_MEAN ? 1 : 2; /* its yardsticks are all the ways there are */
    if (p->op == OP_BACKWARD) measure_backward(s, a);
    else if (p->op == OP_MEAN) measure_mean(s, a);
    else if (on_heads(p) && (half || p->op == OP_LOGSOFTMAX_ATTENTION)) measure_attention(s, a);
    for (int i = 0; i < N_ARRAYS; i++)
        for (size_t k = 0; k < s->answer[i].n; k++) {
            struct answer *of = &s->answer[i];
            double dependence = fmax(1, twice * of->allowed[k]);
            if (p->op == OP_MEAN) dependence = 1 + of->allowed[k];
            double error = fmax(of->likely[k] * dependence, twice * of->own[k]);
            of->allowed[k] = after_rounding(array_dtype(p, i), of->want[k], error);
        }
}
