/* allowed.c: the rule of acceptance (design: the reference and the rule). */
#include <stdio.h>
#include <stdlib.h>

#include "verification/reference.h"
#include "problem/host_memory.h"
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

/* err_safe of each row: the worst of the ways in which the harness computes softmax.  Relative:
 * that of the row's largest element, which is the denominator's; in 16 bits the largest as a
 * share of a rounding. */
static double *row_errors(struct standard *s, const struct arrays *a, double *relative)
{
    const struct problem *p = &s->problem;
    const struct answer *y = &s->answer[ARRAY_Y];
    double *err = xcalloc(p->rows, sizeof *err);
    for (int way = 0; way < SCALED_Q; way++) {
        float *own = yardstick_rows(p, a, way);
        for (size_t i = 0; i < p->rows; i++) {
            size_t first = i * p->cols, top = first;
            err[i] = larger(err[i], own_error(own, y->want, is_float(p) ? y->bound : NULL,
                                              first, p->cols, &s->broken));
            for (size_t j = first; j < first + p->cols; j++) {
                double share = fabs(own[j] - y->want[j]) / rounding(p, y->want[j]);
                if (!is_float(p) && isfinite(share)) relative[i] = larger(relative[i], share);
                if (y->want[j] > y->want[top]) top = j;
            }
            if (is_float(p) && y->want[top] > 0)
                relative[i] = larger(relative[i], fabs(own[top] / y->want[top] - 1));
        }
        free(own);
    }
    return err;
}

/* err_safe of each (batch, head); that of each row of lse goes to the allowed errors of lse, with
 * the likely bound. */
static double *head_errors(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    struct answer *o = &s->answer[ARRAY_O], *lse = &s->answer[ARRAY_LSE];
    size_t heads = p->batch * p->heads_q, n = o->n / heads;
    double *err = xcalloc(heads, sizeof *err);
    float *own_lse = xcalloc(lse->n, sizeof *own_lse);
    for (int way = 0; way < N_WAYS; way++) {
        if (way & LANES && n > FEW_RESULTS) break;
        float *own = yardstick_attention(p, a, way, own_lse);
        for (size_t h = 0; h < heads; h++)
            err[h] = larger(err[h], own_error(own, o->want, is_float(p) ? o->bound : NULL,
                                              h * n, n, &s->broken));
        for (size_t i = 0; i < lse->n; i++)
            lse->allowed[i] = larger(lse->allowed[i], own_error(own_lse, lse->want, NULL, i, 1,
                                                                &s->broken));
        free(own);
    }
    for (size_t i = 0; i < lse->n; i++)
        lse->allowed[i] = smaller(2 * lse->allowed[i] + lse->likely[i], lse->bound[i]);
    free(own_lse);
    return err;
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

/* The rule for o of attention, scan and update. */
void allow_attention(struct standard *s, const struct arrays *a)
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

/* The rule for softmax and log-softmax. */
void allow_rows(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *y = &s->answer[ARRAY_Y];
    double *relative = xcalloc(p->rows, sizeof *relative);
    double *err = row_errors(s, a, relative);
    for (size_t i = 0; i < y->n; i++) {
        double twice = 2 * err[i / p->cols], of_row = 2 * relative[i / p->cols];
        double rule = !is_float(p) ? y->likely[i]
                      : p->op == OP_LOGSOFTMAX ? twice + y->likely[i]
                                   : smaller(twice + 1e-6, of_row * y->want[i] + y->likely[i]);
        y->allowed[i] = smaller(rule, y->bound[i]) + (of_row + 1) * rounding(p, y->want[i]);
    }
    free(err);
    free(relative);
}

/* The likely bound and what is allowed already, never more than the proved bound, and a rounding. */
void allow_bounds(struct standard *s, const struct arrays *a)
{
    const struct answer *y = &s->answer[ARRAY_Y];
    (void)a;
    for (size_t i = 0; i < y->n; i++)
        y->allowed[i] = smaller(y->allowed[i] + y->likely[i], y->bound[i]) +
                        rounding(&s->problem, y->want[i]);
}

/* The same sums in float: of equal numbers all roundings go one way, and so do those of a running
 * mean that falls by equal steps. */
void allow_mean(struct standard *s, const struct arrays *a)
{
    const struct answer *y = &s->answer[ARRAY_Y];
    for (int way = OWN_TOTAL; way <= OWN_INCREMENT; way++) {
        float *own = yardstick_mean(&s->problem, a, (enum mean_way)way);
        for (size_t i = 0; i < y->n; i++)
            y->allowed[i] = larger(y->allowed[i], own_error(own, y->want, NULL, i, 1, &s->broken));
        free(own);
    }
    allow_bounds(s, a);
}

void allow_log_form(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct answer *o = &s->answer[ARRAY_O];
    size_t n = o->n / (p->batch * p->heads_q);
    double *err = head_errors(s, a);
    for (size_t i = 0; i < o->n; i++)
        o->allowed[i] = smaller(2 * err[i / n] + o->likely[i], o->bound[i]) +
                        (is_float(p) ? 0 : half_error(s, i, 0));
    free(err);
}

/* Gradients: twice the straightforward computation's error in the (batch, head), or in the whole
 * of dsinks, and the likely bound; never more than the proved one; rounded to the type. */
void allow_backward(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    float *own[2][N_ARRAYS];
    for (int way = 0; way < 2; way++) yardstick_backward(p, a, way * REVERSE, own[way]);
    for (int i = 0; i < N_ARRAYS; i++) {
        struct answer *of = &s->answer[i];
        struct extents e = array_extents(p, i);
        size_t head = e.rank == 4 ? e.size[2] * e.size[3] : of->n;
        for (size_t first = 0; first < of->n; first += head) {
            double err = 0;
            for (int way = 0; way < 2; way++)
                err = larger(err, own_error(own[way][i], of->want, NULL, first, head, &s->broken));
            for (size_t k = first; k < first + head; k++) {
                double rounded = array_dtype(p, i) == F32 ? 0 : rounding(p, of->want[k]);
                of->allowed[k] = smaller(2 * err + of->likely[k], of->bound[k]) + rounded + FLUSH;
            }
        }
    }
    for (int i = 0; i < N_ARRAYS; i++) free(own[0][i]), free(own[1][i]);
}
