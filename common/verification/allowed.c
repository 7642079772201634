/* allowed.c: the rule of acceptance (design: the reference and the rule). */
#include "verification/allowed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/xcalloc.h"
#include "verification/reference.h"
#include "verification/yardstick.h"

static double larger(double a, double b)
{
    return b > a ? b : a;
}

/* Is a float result not rounded again? */
static int is_float(const struct problem *p) { return dtypes[p->dtype].roundoff == 0; }

/* What rounding y to the problem's type may cost. */
static double rounding(const struct problem *p, double y)
{
    if (is_float(p)) return 0;
    return dtypes[p->dtype].roundoff * fabs(y) + dtypes[p->dtype].least_step;
}

/* Largest error of the harness's own y or o over the n elements from `first` on; says so
 * in *broken when one exceeds its bound (bound NULL: 16 bits, no bound is claimed). */
static double own_error(const float *own, const double *want, const double *bound,
                        size_t first, size_t n, char **broken)
{
    double worst = 0;
    for (size_t i = first; i < first + n; i++) {
        if (!isfinite(want[i])) continue;
        double err = fabs(own[i] - want[i]);
        if (bound && !(err <= bound[i]) && !*broken) {
            *broken = xcalloc(160, 1);
            snprintf(*broken, 160,
                     "the harness's own computation errs by %.3g, its bound is %.3g", err,
                     bound[i]);
        }
        worst = larger(worst, err);
    }
    return worst;
}

/* err_safe of each row: the worst of the ways in which the harness computes softmax. */
static double *row_errors(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *y = &s->answer[ARRAY_Y];
    double *err = xcalloc(p->rows, sizeof *err);
    for (int way = 0; way < SCALED_Q; way++) {
        float *own = yardstick_rows(p, a, way);
        for (size_t i = 0; i < p->rows; i++)
            err[i] = larger(err[i], own_error(own, y->want, is_float(p) ? y->bound_safe : NULL,
                                              i * p->cols, p->cols, &s->broken));
        free(own);
    }
    return err;
}

/* err_safe of each (batch, head). */
static double *head_errors(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *o = &s->answer[ARRAY_O];
    size_t heads = p->batch * p->heads_q, n = o->n / heads;
    double *err = xcalloc(heads, sizeof *err);
    for (int way = 0; way < N_WAYS; way++) {
        if (way & LANES && n > FEW_RESULTS) break;
        float *own = yardstick_attention(p, a, way);
        for (size_t h = 0; h < heads; h++)
            err[h] = larger(err[h], own_error(own, o->want, is_float(p) ? o->bound_safe : NULL,
                                              h * n, n, &s->broken));
        free(own);
    }
    return err;
}

/* What rounding p and o to 16 bits may cost element i of o: p moves it by at most
 * u sum p|v|, or by least_half / l a key where p is denormal; o by u |o|. */
static double half_error(const struct standard *s, size_t i, double max_v)
{
    const struct problem *p = &s->problem;
    size_t row = i / p->head_dim_v;
    struct key_range keys = row_keys(p, row % rows_per_head(p));
    double n_keys = (double)(keys.end - keys.first);
    double tiny = dtypes[p->dtype].least_step * (1 + n_keys * s->weight[row] * max_v);
    return dtypes[p->dtype].roundoff * (s->o_mass[i] + fabs(s->answer[ARRAY_O].want[i])) + tiny;
}

/* The rule for o of attention, scan and update. */
static void allow_o(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *o = &s->answer[ARRAY_O];
    size_t heads = p->batch * p->heads_q, n = o->n / heads;
    double *err_safe = head_errors(s, a);
    for (size_t i = 0; i < o->n; i++) {
        double max_v = s->max_v[i / n];
        double rule = 2 * err_safe[i / n] + ROUNDOFF * s->max_s[i / n] * max_v;
        if (is_float(p)) {
            rule += 1e-6 * larger(1, max_v);
            o->allowed[i] = o->bound[i] < rule ? o->bound[i] : rule;
        } else {
            o->allowed[i] = rule + half_error(s, i, max_v);
        }
    }
    free(err_safe);
}

/* The rule for softmax and log-softmax: twice the error of the harness's own computation
 * and, in float, `extra`; never more than the bound. */
static void allow_rows(struct standard *s, const struct arrays *a, double extra)
{
    const struct problem *p = &s->problem;
    const struct answer *y = &s->answer[ARRAY_Y];
    double *err_safe = row_errors(s, a);
    for (size_t i = 0; i < y->n; i++) {
        double bound = y->bound[i], twice = 2 * err_safe[i / p->cols];
        if (!is_float(p)) y->allowed[i] = twice + rounding(p, y->want[i]) + bound;
        else y->allowed[i] = twice + extra < bound ? twice + extra : bound;
    }
    free(err_safe);
}

void allow_softmax(struct standard *s, const struct arrays *a) { allow_rows(s, a, 1e-6); }

void allow_logsoftmax(struct standard *s, const struct arrays *a)
{
    allow_rows(s, a, INFINITY);
}

void allow_bounds(struct standard *s, const struct arrays *a)
{
    const struct answer *y = &s->answer[ARRAY_Y];
    (void)a;
    for (size_t i = 0; i < y->n; i++)
        y->allowed[i] = y->bound[i] + rounding(&s->problem, y->want[i]);
}

static void allow_lse(struct standard *s)
{
    const struct answer *lse = &s->answer[ARRAY_LSE];
    memcpy(lse->allowed, lse->bound, lse->n * sizeof(double));
}

void allow_attention(struct standard *s, const struct arrays *a)
{
    allow_o(s, a);
    allow_lse(s);
}

void allow_log_form(struct standard *s, const struct arrays *a)
{
    const struct answer *o = &s->answer[ARRAY_O];
    (void)a;
    for (size_t i = 0; i < o->n; i++) o->allowed[i] = o->bound[i] + half_error(s, i, 0);
    allow_lse(s);
}
