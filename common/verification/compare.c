/* compare.c: guarded outputs, the rule of acceptance and its application. */
#include "verification/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "problem/half.h"
#include "problem/host_memory.h"
#include "verification/yardstick.h"

enum { GUARD_BYTE = 0xa5 };

static struct output output_new(size_t n, enum dtype dtype)
{
    struct output out = {.n = n, .dtype = dtype};
    if (n == 0) return out;
    size_t bytes = n * dtype_size(dtype) + 2 * GUARD;
    out.frame = memory_new(bytes);
    if (!out.frame) {
        fprintf(stderr, "no memory for an output of %zu bytes\n", bytes);
        exit(1);
    }
    out.data = out.frame + GUARD;
    return out;
}

static void output_fill(struct output *out)
{
    if (!out->data) return;
    size_t bytes = out->n * dtype_size(out->dtype);
    memset(out->frame, GUARD_BYTE, GUARD);
    memset(out->frame + GUARD + bytes, GUARD_BYTE, GUARD);
    uint32_t *words = out->data;
    uint16_t *halves = out->data;
    for (size_t i = 0; i < out->n; i++)
        if (out->dtype == F32) words[i] = 0x7fc0deadu;
        else halves[i] = out->dtype == F16 ? 0x7ead : 0x7fed;
}

struct outputs outputs_new(const struct problem *p)
{
    struct sizes n = problem_sizes(p);
    struct outputs out = {output_new(n.y, p->dtype), output_new(n.o, p->dtype),
                          output_new(n.lse, F32)};
    outputs_fill(&out);
    return out;
}

void outputs_fill(struct outputs *out)
{
    output_fill(&out->y);
    output_fill(&out->o);
    output_fill(&out->lse);
}

void outputs_fill_with(struct outputs *out, float x)
{
    struct output *const all[] = {&out->y, &out->o, &out->lse};
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; all[k]->data && i < all[k]->n; i++)
            if (all[k]->dtype == F32) ((float *)all[k]->data)[i] = x;
            else
                ((uint16_t *)all[k]->data)[i] =
                    all[k]->dtype == F16 ? float_to_half(x) : float_to_bfloat(x);
}

void outputs_bind(const struct outputs *out, struct arrays *a)
{
    a->y = out->y.data;
    a->o = out->o.data;
    a->lse = out->lse.data;
}

void outputs_free(struct outputs *out)
{
    memory_free(out->y.frame);
    memory_free(out->o.frame);
    memory_free(out->lse.frame);
    memset(out, 0, sizeof *out);
}

static int output_equal(const struct output *a, const struct output *b)
{
    return a->n == b->n &&
           (!a->n || !memcmp(a->data, b->data, a->n * dtype_size(a->dtype)));
}

int outputs_equal(const struct outputs *a, const struct outputs *b)
{
    return output_equal(&a->y, &b->y) && output_equal(&a->o, &b->o) &&
           output_equal(&a->lse, &b->lse);
}

/* NULL, or which guard was written to. */
static const char *damage(const struct output *out)
{
    const unsigned char *after = out->frame + GUARD + out->n * dtype_size(out->dtype);
    for (size_t i = 0; i < GUARD; i++) {
        if (out->frame[i] != GUARD_BYTE) return "written before the first element";
        if (after[i] != GUARD_BYTE) return "written behind the last element";
    }
    return NULL;
}

/* Element i as a number; *untouched is set when it still holds the filling. */
static double element(const struct output *out, size_t i, int *untouched)
{
    if (out->dtype == F32) {
        uint32_t bits = ((const uint32_t *)out->data)[i];
        *untouched = bits == 0x7fc0deadu;
        return f32_from_bits(bits);
    }
    uint16_t bits = ((const uint16_t *)out->data)[i];
    *untouched = bits == (out->dtype == F16 ? 0x7ead : 0x7fed);
    return out->dtype == F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

/* NULL when got will do for want, else why not.  Written so that NaN fails. */
static const char *reject(double got, double want, double allowed, int untouched)
{
    if (untouched) return "element not written";
    if (isnan(want)) return isnan(got) ? NULL : "NaN expected";
    if (isnan(got)) return "NaN where a number is expected";
    if (isinf(want) || isinf(got)) return got == want ? NULL : "wrong infinity";
    return !(fabs(got - want) <= allowed) ? "error above the allowed" : NULL;
}

/* The index of element i in an array whose last dimensions are d1, d2, d3. */
static void locate(struct verdict *v, const struct problem *p, size_t i)
{
    size_t rows = rows_per_head(p), dv = p->head_dim_v;
    if (v->array[0] == 'y') {
        size_t width = p->op == OP_FUSED_REDUCTION ? N_FUSED : p->cols;
        if (p->op == OP_MEAN) width = 1;
        v->rank = p->op == OP_MEAN ? 1 : 2;
        v->index[0] = i / width;
        v->index[1] = i % width;
        return;
    }
    v->rank = v->array[0] == 'o' ? 4 : 3;
    if (v->rank == 4) {
        v->index[3] = i % dv;
        i /= dv;
    }
    v->index[2] = i % rows;
    v->index[1] = i / rows % p->heads_q;
    v->index[0] = i / rows / p->heads_q;
}

/* Judges one array, adding to v; returns v->ok. */
static int compare_output(struct verdict *v, const struct problem *p, const char *array,
                          const struct output *out, const double *want,
                          const double *allowed)
{
    if (!out->data) return 1;
    for (size_t i = 0; i < out->n; i++) {
        int untouched;
        double got = element(out, i, &untouched), err = fabs(got - want[i]);
        const char *reason = reject(got, want[i], allowed[i], untouched);
        double ratio = isfinite(err) && err > 0 ? err / allowed[i] : 0;
        if (!reason && ratio <= v->worst && v->array) continue;
        v->worst = ratio > v->worst ? ratio : v->worst;
        v->array = array;
        v->got = got;
        v->want = want[i];
        v->err = err;
        v->allowed = allowed[i];
        locate(v, p, i);
        if (reason) {
            v->reason = reason;
            return v->ok = 0;
        }
    }
    const char *reason = damage(out);
    if (!reason) return 1;
    v->array = array;
    v->rank = 0;
    v->reason = reason;
    v->got = v->want = v->err = v->allowed = NAN;
    return v->ok = 0;
}

static int is_untouched(const struct output *out)
{
    int untouched = 1;
    for (size_t i = 0; i < out->n && untouched; i++) element(out, i, &untouched);
    return untouched;
}

struct verdict compare(const struct standard *s, const struct outputs *out)
{
    const struct reference *r = s->reference;
    struct verdict v = {.ok = 1};
    if (s->broken) {
        v.ok = 0;
        v.reason = s->broken;
        v.array = "yardstick";
        v.got = v.want = v.err = v.allowed = NAN;
        return v;
    }
    /* the log form may leave lse alone, but not write a part of it */
    int lse_is_optional = s->problem.op == OP_LOGSOFTMAX_ATTENTION &&
                          is_untouched(&out->lse) &&
                          !(out->lse.data && damage(&out->lse));
    if (compare_output(&v, &s->problem, "y", &out->y, r->y, s->y_allowed) &&
        compare_output(&v, &s->problem, "o", &out->o, r->o, s->o_allowed) &&
        !lse_is_optional)
        compare_output(&v, &s->problem, "lse", &out->lse, r->lse, s->lse_allowed);
    return v;
}

void verdict_index(const struct verdict *v, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < v->rank && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%zu", i ? ", " : "[", v->index[i]);
    if (v->rank && n < size) snprintf(text + n, size - n, "]");
}

static double larger(double a, double b)
{
    return b > a ? b : a;
}

/* What rounding to 16 bits costs, relatively and, for the tiniest numbers, absolutely.  A
 * float result is not rounded again. */
static double round_unit(enum dtype dtype)
{
    return dtype == F32 ? 0 : dtype == F16 ? 0x1p-11 : 0x1p-8;
}

static double least_half(enum dtype dtype)
{
    return dtype == F32 ? 0 : dtype == F16 ? 0x1p-25 : 0x1p-134;
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
            *broken = need(160, 1);
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
    const struct reference *r = s->reference;
    double *err = need(p->rows, sizeof *err);
    for (int way = 0; way < SCALED_Q; way++) {
        float *own = yardstick_rows(p, a, way);
        for (size_t i = 0; i < p->rows; i++)
            err[i] = larger(
                err[i], own_error(own, r->y, p->dtype == F32 ? r->y_bound_safe : NULL,
                                  i * p->cols, p->cols, &s->broken));
        free(own);
    }
    return err;
}

/* err_safe of each (batch, head). */
static double *head_errors(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct reference *r = s->reference;
    size_t heads = p->batch * p->heads_q, n = r->n_o / heads;
    double *err = need(heads, sizeof *err);
    for (int way = 0; way < N_WAYS; way++) {
        if (way & LANES && n > FEW_RESULTS) break;
        float *own = yardstick_attention(p, a, way);
        for (size_t h = 0; h < heads; h++)
            err[h] = larger(
                err[h], own_error(own, r->o, p->dtype == F32 ? r->o_bound_safe : NULL,
                                  h * n, n, &s->broken));
        free(own);
    }
    return err;
}

/* The rule for softmax and log-softmax; what lies beyond has only its bound. */
static void allow_rows(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct reference *r = s->reference;
    int is_softmax = p->op == OP_SOFTMAX, is_log = p->op == OP_LOGSOFTMAX;
    double u = round_unit(p->dtype), tiny = least_half(p->dtype);
    double *err_safe = is_softmax || is_log ? row_errors(s, a) : NULL;
    s->y_allowed = need(r->n_y, sizeof(double));
    for (size_t i = 0; i < r->n_y; i++) {
        double bound = r->y_bound[i], rounding = u * fabs(r->y[i]) + tiny;
        double twice = err_safe ? 2 * err_safe[i / p->cols] : 0;
        if (p->dtype != F32) s->y_allowed[i] = twice + rounding + bound;
        else if (is_softmax && twice + 1e-6 < bound) s->y_allowed[i] = twice + 1e-6;
        else s->y_allowed[i] = bound;
    }
    free(err_safe);
}

/* What rounding p and o to 16 bits may cost element i of o: p moves it by at most
 * u sum p|v|, or by least_half / l a key where p is denormal; o by u |o|. */
static double half_error(const struct problem *p, const struct reference *r, size_t i,
                         double max_v)
{
    size_t row = i / p->head_dim_v;
    struct key_range keys = row_keys(p, row % rows_per_head(p));
    double n_keys = (double)(keys.end - keys.first);
    double tiny = least_half(p->dtype) * (1 + n_keys * r->weight[row] * max_v);
    return round_unit(p->dtype) * (r->o_mass[i] + fabs(r->o[i])) + tiny;
}

/* The rule for o of attention, scan and update. */
static void allow_o(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct reference *r = s->reference;
    size_t heads = p->batch * p->heads_q, n = r->n_o / heads;
    double *err_safe = head_errors(s, a);
    for (size_t i = 0; i < r->n_o; i++) {
        double max_v = r->max_v[i / n];
        double rule = 2 * err_safe[i / n] + ROUNDOFF * r->max_s[i / n] * max_v;
        if (p->dtype == F32) {
            rule += 1e-6 * larger(1, max_v);
            s->o_allowed[i] = r->o_bound[i] < rule ? r->o_bound[i] : rule;
        } else {
            s->o_allowed[i] = rule + half_error(p, r, i, max_v);
        }
    }
    free(err_safe);
}

static void allow_attention(struct standard *s, const struct arrays *a)
{
    const struct problem *p = &s->problem;
    const struct reference *r = s->reference;
    s->o_allowed = need(r->n_o, sizeof(double));
    s->lse_allowed = need(r->n_lse, sizeof(double));
    memcpy(s->lse_allowed, r->lse_bound, r->n_lse * sizeof(double));
    if (p->op != OP_LOGSOFTMAX_ATTENTION) {
        allow_o(s, a);
        return;
    }
    for (size_t i = 0; i < r->n_o; i++)
        s->o_allowed[i] = r->o_bound[i] + half_error(p, r, i, 0);
}

struct standard *standard_new(const struct problem *p, const struct arrays *a)
{
    struct standard *s = need(1, sizeof *s);
    s->problem = *p;
    s->reference = reference_new(p, a);
    if (has_attention_rows(p)) allow_attention(s, a);
    else allow_rows(s, a);
    return s;
}

void standard_free(struct standard *s)
{
    if (!s) return;
    reference_free(s->reference);
    free(s->y_allowed);
    free(s->o_allowed);
    free(s->lse_allowed);
    free(s->broken);
    free(s);
}
