/* choice.c: the kernel that a problem is given. */
#include "problem/choice.h"

#include <stdio.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/feature.h"
#include "problem/operation.h"

const char *variant_refuses(const struct variant *v, const struct problem *p)
{
    if (!variant_does(v, p->op)) return op_name(p->op);
    if (!(v->types & TYPE(p->dtype))) return dtype_name(p->dtype);
    unsigned missing = problem_features(p) & ~v->supports;
    if (missing) return feature_text(missing);
    return v->refuses ? v->refuses(p) : NULL;
}

/* Why v does not do c->p in any type that may be tried; or NULL, and *asked is what v is asked.
 * Another type's arrays are copies, and so they have no strides. */
static const char *refuses_all_types(const struct choice *c, const struct variant *v,
                                     struct problem *asked)
{
    const struct strides none = {0, 0, 0};
    const enum dtype order[] = {c->p->dtype, F32, BF16, F16, E4M3, INT8};
    const char *why = dtype_name(c->p->dtype);
    *asked = *c->p;
    for (int i = 0; i < (int)c->types; i++) {
        if (i == 0 && c->widens_f16 && c->p->dtype == F16 && v->device == ON_CPU) continue;
        if (i >= 2 && v->types & TYPE(F32)) break;
        if (i && !(v->types & TYPE(order[i]))) continue; /* the reason stays the type's before */
        asked->dtype = order[i];
        if (i) asked->cache = F32;
        if (asked->dtype != c->p->dtype)
            asked->q_strides = asked->k_strides = asked->v_strides = asked->o_strides = none;
        why = variant_refuses(v, asked);
        if (!why) return NULL;
    }
    return why;
}

/* Why the machine does not run v, or NULL. */
static const char *lacks(struct choice *c, const struct variant *v)
{
    const char *lacking = v->lacks ? v->lacks() : NULL;
    if (c->arch == ANY_ARCH) return NULL;
    if (lacking)
        snprintf(c->text, sizeof c->text, "this machine: it lacks %s", lacking);
    else if (v->only_arch ? c->arch != v->only_arch : c->arch < v->least_arch)
        snprintf(c->text, sizeof c->text, "this GPU: it is sm_%d, the kernel for sm_%d%s", c->arch,
                 v->only_arch ? v->only_arch : v->least_arch, v->only_arch ? "" : " and newer");
    else return NULL;
    return c->text;
}

const struct variant *choose(struct choice *c)
{
    enum { BEST, OTHER_TYPE, LEAKS, NONE } best = NONE, rank;
    struct problem asked;
    for (size_t i = c->n; i-- > 0 && best != BEST;) {
        const struct variant *v = c->list[i];
        if (!v || (c->name && strcmp(v->name, c->name))) continue;
        const char *why = refuses_all_types(c, v, &asked);
        if (!why && c->isolation == MUST_ISOLATE && !v->isolates_v) why = "isolate_v";
        if (!why && c->p->deterministic && v->in_any_order)
            why = "sums in a fixed order (deterministic)";
        if (!why) why = lacks(c, v);
        int other_type = asked.dtype != c->p->dtype || asked.cache != c->p->cache;
        rank = c->isolation && !v->isolates_v ? LEAKS : other_type ? OTHER_TYPE : BEST;
        if (!why && rank < best && (c->name || !v->yields || !v->yields(c->p))) {
            best = rank;
            c->v = v;
            c->asked = asked;
        }
        /* The one that supports the most is the list's first on heads, its last of softmax. */
        if (!c->closest || (variant_does(v, c->p->op) &&
                            (on_heads(c->p) || !variant_does(c->closest, c->p->op)))) {
            c->closest = v;
            c->why = why ? why : "it";
        }
    }
    return c->v;
}
