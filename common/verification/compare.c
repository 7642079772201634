/* compare.c: is a result accepted? */
#include "verification/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/layout.h"
#include "verification/op_checks.h"

/* NULL when got will do for want, else why not.  Written so that NaN fails. */
static const char *reject(double got, double want, double allowed, int untouched)
{
    if (untouched) return "element not written";
    if (isnan(want)) return isnan(got) ? NULL : "NaN expected";
    if (isnan(got)) return "NaN where a number is expected";
    if (isinf(want) || isinf(got)) return got == want ? NULL : "wrong infinity";
    return !(fabs(got - want) <= allowed) ? "error above the allowed" : NULL;
}

/* Where element i of an output, counted without gaps, lies in its memory. */
static size_t element_at(const struct problem *p, const char *array, size_t i)
{
    size_t dv = p->head_dim_v;
    return array[0] == 'o' ? o_row_at(p, i / dv) + i % dv : i;
}

/* The index of element i in an array whose last dimensions are d1, d2, d3. */
static void locate(struct verdict *v, const struct problem *p, size_t i)
{
    size_t rows = p->packed ? p->total_q : rows_per_head(p), dv = p->head_dim_v;
    if (v->array[0] == 'y') {
        struct extents y = array_extents(p, ARRAY_Y);
        size_t width = y.rank == 2 ? y.size[1] : 1;
        v->rank = (int)y.rank;
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

static size_t count_untouched(const struct output *out)
{
    size_t n = 0;
    for (size_t i = 0; i < out->n; i++) {
        int untouched;
        output_element(out, i, &untouched);
        n += (size_t)untouched;
    }
    return n;
}

/* Judges one array, adding to v; returns v->ok. */
static int compare_output(struct verdict *v, const struct problem *p, const char *array,
                          const struct output *out, const double *want,
                          const double *allowed)
{
    if (!out->data) return 1;
    size_t n = array[0] == 'o' ? problem_sizes(p).lse * p->head_dim_v : out->n;
    for (size_t i = 0; i < n; i++) {
        int untouched;
        double got = output_element(out, element_at(p, array, i), &untouched);
        double err = fabs(got - want[i]);
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
    const char *reason = output_damage(out);
    if (!reason && count_untouched(out) != out->n - n) reason = "written between two rows";
    if (!reason) return 1;
    v->array = array;
    v->rank = 0;
    v->reason = reason;
    v->got = v->want = v->err = v->allowed = NAN;
    return v->ok = 0;
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
    int lse_is_optional = op_checks[s->problem.op].lse_is_optional &&
                          count_untouched(&out->lse) == out->lse.n &&
                          !(out->lse.data && output_damage(&out->lse));
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
