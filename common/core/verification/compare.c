/* compare.c: are outputs accepted? */
#include "verification/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "problem/dtype.h"

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

static int is_untouched(const struct output *out, size_t i)
{
    return dtype_bits(out->dtype, out->data, i) == dtypes[out->dtype].filling;
}

/* NULL when got will do for want, else why not.  Written so that NaN fails. */
static const char *reject(double got, double want, double allowed, int untouched)
{
    if (untouched) return "element not written";
    if (isnan(want)) return isnan(got) ? NULL : "NaN expected";
    if (isnan(got)) return "NaN where a number is expected; outputs begin as NaN";
    if (isinf(want) || isinf(got)) return got == want ? NULL : "wrong infinity";
    return !(fabs(got - want) <= allowed) ? "error above the allowed" : NULL;
}

/* The index of element i, counted without gaps. */
static void locate(struct verdict *v, const struct problem *p, enum array array, size_t i)
{
    struct extents e = array_extents(p, array);
    v->rank = (int)e.rank;
    for (size_t t = e.rank; t-- > 0; i /= e.size[t]) v->index[t] = i % e.size[t];
}

/* What is wrong with an array as a whole; returns v->ok. */
static int reject_all(struct verdict *v, const char *array, const char *reason)
{
    v->array = array;
    v->rank = 0;
    v->reason = reason;
    v->got = v->want = v->err = v->allowed = NAN;
    return v->ok = 0;
}

/* Judges one array, adding to v; returns v->ok. */
static int compare_output(struct verdict *v, const struct problem *p, enum array array,
                          const struct output *out, const struct answer *right)
{
    const char *name = array_list[array].name;
    size_t n_untouched = 0;
    if (!out->data) return 1;
    for (size_t i = 0; i < out->n; i++) n_untouched += (size_t)is_untouched(out, i);
    for (size_t i = 0; i < right->n; i++) {
        size_t at = array_at(p, array, i);
        double got = dtypes[out->dtype].load(out->data, at);
        double want = right->want[i], allowed = right->allowed[i], err = fabs(got - want);
        const char *reason = reject(got, want, allowed, is_untouched(out, at));
        double ratio = isfinite(err) && err > 0 ? err / allowed : 0;
        if (!reason && ratio <= v->worst && v->array) continue;
        v->worst = ratio > v->worst ? ratio : v->worst;
        v->array = name;
        v->got = got;
        v->want = want;
        v->err = err;
        v->allowed = allowed;
        locate(v, p, array, i);
        if (reason) {
            v->reason = reason;
            return v->ok = 0;
        }
    }
    const char *reason = damage(out);
    if (!reason && n_untouched != out->n - right->n)
        reason = "written between two rows";
    return reason ? reject_all(v, name, reason) : 1;
}

struct verdict compare(const struct standard *s, const struct outputs *out)
{
    struct verdict v = {.ok = 1};
    if (s->broken) {
        reject_all(&v, "yardstick", s->broken);
        return v;
    }
    for (int i = 0; i < N_ARRAYS && v.ok; i++)
        compare_output(&v, &s->problem, i, &out->array[i], &s->answer[i]);
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
