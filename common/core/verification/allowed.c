/* allowed.c: the rule of acceptance (design: the reference and the rule).
 *
 * In `allowed` each rule first gathers err_safe, the largest error that the harness's own
 * straightforward computations make in a group of elements (a head, a row, one element). */
#include <stdio.h>
#include <stdlib.h>

#include "problem/host_memory.h"
#include "verification/reference.h"
#include "verification/reference_sum.h"
#include "verification/yardstick.h"

static double larger(double a, double b)
{
    return b > a ? b : a;
}

static double smaller(double a, double b)
{
    return b < a ? b : a;
}

/* Is a float result not rounded again? */
static int is_float(const struct problem *p) { return dtypes[p->dtype].roundoff == 0; }

/* What rounding x to a type may cost: 0 for floats. */
static double rounding(enum dtype dtype, double x)
{
    const struct dtype_entry *t = &dtypes[dtype];
    return t->roundoff == 0 ? 0 : t->roundoff * fabs(x) + t->least_step;
}

static void complain(struct standard *s, double err, double bound)
{
    if (s->broken) return;
    s->broken = xcalloc(160, 1);
    snprintf(s->broken, 160, "the harness's own computation errs by %.3g, its bound is %.3g",
             err, bound);
}

/* Array i, computed by the harness: `allowed` becomes at least the largest error in each
 * group of n elements.   bounded: complains where one exceeds the proved bound */
static void gather_errors(struct standard *s, enum array i, const float *own, size_t n,
                          int bounded)
{
    const struct answer *of = &s->answer[i];
    for (size_t first = 0; first < of->n; first += n) {
        double worst = of->allowed[first];
        for (size_t k = first; k < first + n; k++) {
            if (!isfinite(of->want[k])) continue;
            double err = fabs(own[k] - of->want[k]);
            if (bounded && !(err <= of->bound[k])) complain(s, err, of->bound[k]);
            worst = larger(worst, err);
        }
        for (size_t k = first; k < first + n; k++) of->allowed[k] = worst;
    }
}

/* So many times err_safe and the likely bound, never more than the proved bound; a rounding
 * to the type, and `least`. */
static void allow_likely(struct standard *s, enum array i, double times, double least)
{
    const struct answer *of = &s->answer[i];
    for (size_t k = 0; k < of->n; k++)
        of->allowed[k] = smaller(times * of->allowed[k] + of->likely[k], of->bound[k]) +
                         rounding(array_dtype(&s->problem, i), of->want[k]) + least;
}

/* err_safe of o per (batch, head), and the rule for lse, per row. */
static void allow_lse(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *o = &s->answer[ARRAY_O];
    size_t n = o->n / (p->batch * p->heads_q);
    float *lse = xcalloc(s->answer[ARRAY_LSE].n, sizeof *lse);
    for (int way = 0; way < N_WAYS; way++) {
        if (way & LANES && n > FEW_RESULTS) break;
        float *own = yardstick_attention(p, a, way, lse);
        gather_errors(s, ARRAY_O, own, n, is_float(p));
        gather_errors(s, ARRAY_LSE, lse, 1, 0);
        free(own);
    }
    allow_likely(s, ARRAY_LSE, 2, 0);
    free(lse);
}

/* What rounding p and o to 16 bits may cost element i of o: p moves it by at most u sum p|v|, or
 * by a least step / l per key where p is denormal; o by u |o|.  Below the least normal float, which
 * is bfloat16's too, a program may take numbers for 0. */
static double half_error(const struct standard *s, size_t i, double max_v)
{
    const struct problem *p = &s->problem;
    size_t row = i / p->head_dim_v;
    struct key_range keys = row_keys(p, row % rows_per_head(p));
    double n_keys = (double)(keys.end - keys.first);
    double tiny = (dtypes[p->dtype].least_step + FLUSH) * (1 + n_keys * s->weight[row] * max_v);
    return dtypes[p->dtype].roundoff * (s->o_mass[i] + fabs(s->answer[ARRAY_O].want[i])) + tiny;
}

/* Attention, scan and update. */
void allow_attention(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *o = &s->answer[ARRAY_O];
    size_t n = o->n / (p->batch * p->heads_q);
    allow_lse(s, a);
    for (size_t i = 0; i < o->n; i++) {
        double max_v = s->max_v[i / n];
        double rule = 2 * o->allowed[i] + ROUNDOFF * s->max_s[i / n] * max_v;
        o->allowed[i] = is_float(p) ? smaller(rule + 1e-6 * larger(1, max_v), o->bound[i])
                                    : rule + half_error(s, i, max_v);
    }
}

void allow_log_form(struct standard *s, const struct arrays *a)
{
    const struct answer *o = &s->answer[ARRAY_O];
    allow_lse(s, a);
    for (size_t i = 0; i < o->n; i++)
        o->allowed[i] = smaller(2 * o->allowed[i] + o->likely[i], o->bound[i]) +
                        (is_float(&s->problem) ? 0 : half_error(s, i, 0));
}

/* The largest error of the harness's own row y, relative to its largest element, which is that of
 * the denominator; in 16 bits the largest as a share of a rounding. */
static double relative_error(const struct problem *p, const float *y, const double *want)
{
    double worst = 0;
    size_t top = 0;
    for (size_t j = 0; j < p->cols; j++) {
        double share = fabs(y[j] - want[j]) / rounding(p->dtype, want[j]);
        if (!is_float(p) && isfinite(share)) worst = larger(worst, share);
        if (want[j] > want[top]) top = j;
    }
    return is_float(p) && want[top] > 0 ? fabs(y[top] / want[top] - 1) : worst;
}

/* Softmax and log-softmax. */
void allow_rows(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *y = &s->answer[ARRAY_Y];
    double *relative = xcalloc(p->rows, sizeof *relative);
    for (int way = 0; way < SCALED_Q; way++) {
        float *own = yardstick_rows(p, a, way);
        gather_errors(s, ARRAY_Y, own, p->cols, is_float(p));
        for (size_t i = 0, at = 0; i < p->rows; i++, at += p->cols)
            relative[i] = larger(relative[i], relative_error(p, own + at, y->want + at));
        free(own);
    }
    for (size_t i = 0; i < y->n; i++) {
        double want = y->want[i], twice = 2 * y->allowed[i], of_row = 2 * relative[i / p->cols];
        double rule = !is_float(p) ? y->likely[i]
                      : p->op == OP_LOGSOFTMAX ? twice + y->likely[i]
                                   : smaller(twice + 1e-6, of_row * want + y->likely[i]);
        y->allowed[i] = smaller(rule, y->bound[i]) + (of_row + 1) * rounding(p->dtype, want);
    }
    free(relative);
}

/* Fused reductions. */
void allow_bounds(struct standard *s, const struct arrays *a)
{
    (void)a;
    allow_likely(s, ARRAY_Y, 0, 0);
}

/* The same sums in float: of equal numbers all roundings go one way, and so do those of a running
 * mean that falls by equal steps. */
void allow_mean(struct standard *s, const struct arrays *a)
{
    for (int way = OWN_TOTAL; way <= OWN_INCREMENT; way++) {
        float *own = yardstick_mean(&s->problem, a, (enum mean_way)way);
        gather_errors(s, ARRAY_Y, own, 1, 0);
        free(own);
    }
    allow_likely(s, ARRAY_Y, 1, 0);
}

/* Gradients: per (batch, head), or in the whole of dsinks. */
void allow_backward(struct standard *s, const struct arrays *a)
{
    for (int way = 0; way <= REVERSE; way++) {
        float *own[N_ARRAYS];
        yardstick_backward(&s->problem, a, way, own);
        for (int i = 0; i < N_ARRAYS; i++) {
            struct extents e = array_extents(&s->problem, i);
            gather_errors(s, i, own[i], e.rank == 4 ? e.size[2] * e.size[3] : e.size[0], 0);
            free(own[i]);
        }
    }
    for (int i = 0; i < N_ARRAYS; i++) allow_likely(s, i, 2, FLUSH);
}
