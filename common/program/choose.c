/* choose.c: which variant `run` takes, and why not another. */
#include "program/choose.h"

#include <stdio.h>

#include "problem/part.h"
#include "problem/variant.h"

int choice_type(const struct variant *v, const struct problem *p, int narrow,
                enum dtype *type)
{
    const enum dtype order[] = {p->dtype, F32, BF16, F16};
    struct problem q = *p;
    for (int i = 0; i < 4; i++) {
        if (i >= 2 && (!narrow || v->types & TYPE(F32))) break;
        q.dtype = order[i];
        if (!variant_refuses(v, &q)) {
            *type = order[i];
            return 1;
        }
    }
    return 0;
}

const char *choice_refusal(const struct variant *v, const struct problem *p, int strict)
{
    struct problem q = *p;
    if (!(v->types & TYPE(q.dtype)) && !(strict && !(v->types & TYPE(F32))))
        q.dtype = v->types & TYPE(F32) ? F32 : v->types & TYPE(BF16) ? BF16 : F16;
    return variant_refuses(v, &q);
}

/* Stages 1 to 4 compute on the CPU what they can: a GPU kernel executed there is slow. */
static int only_by_name(const struct stage *stage, const struct variant *v)
{
    return stage->number <= 4 && v->device == GPU_ON_CPU;
}

static const struct variant *choice_of(const struct stage *stage, const struct problem *p,
                                       int isolate, enum dtype *type)
{
    enum { OWN_TYPE, WIDENED, LEAKS, NONE } best = NONE, rank;
    const struct variant *chosen = NULL;
    for (size_t i = 0; stage->variants[i]; i++) {
        const struct variant *v = variant_here(stage->variants[i]);
        enum dtype t;
        if (only_by_name(stage, v) || variant_not_by_default(v)) continue;
        if (!choice_type(v, p, 0, &t)) continue;
        rank = isolate && !v->isolates_v ? LEAKS : t != p->dtype ? WIDENED : OWN_TYPE;
        if (rank > best) continue;
        best = rank;
        chosen = v;
        *type = t;
    }
    return chosen;
}

const struct variant *choice_default(const struct stage *stage, const struct problem *p,
                                     int isolate, enum dtype *type)
{
    const struct variant *v = choice_of(stage, p, isolate, type);
    if (v || !on_heads(p) || stage->number < 4) return v; /* 1 to 3 do what they teach */
    struct problem plain = problem_without_layout(p);     /* execute() does the rest */
    plain.has_sinks = 0;
    return choice_of(stage, &plain, isolate, type);
}

void choice_why_not(const struct stage *stage, const struct problem *p,
                    const struct variant *v, char *text, size_t size)
{
    enum dtype type;
    const char *why = variant_not_by_default(v);
    if (why) snprintf(text, size, "%s", why);
    else if (only_by_name(stage, v))
        snprintf(text, size, "is a GPU kernel; --variant names one that the CPU executes");
    else if (!(v->types & (TYPE(p->dtype) | TYPE(F32))))
        snprintf(text, size, "does not compute in %s", dtype_name(p->dtype));
    else if (!choice_type(v, p, 0, &type))
        snprintf(text, size, "does not support %s", choice_refusal(v, p, 0));
    else if (type != p->dtype) snprintf(text, size, "computes in %s", dtype_name(type));
    else snprintf(text, size, "lets NaN or inf in v leak");
}
