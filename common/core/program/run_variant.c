/* run_variant.c: the variant that computes a run, and what is said about it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "problem/choice.h"
#include "problem/dtype.h"
#include "problem/feature.h"
#include "problem/operation.h"
#include "problem/variant.h"
#include "program/run.h"

const struct variant *choice_default(const struct stage *stage, const struct problem *p,
                                     int isolate, struct problem *asked)
{
    const struct variant *here[128];
    struct choice c = {.list = here, .p = p, .types = OR_F32, .widens_f16 = 1, .arch = ANY_ARCH,
                       .isolation = isolate ? SHOULD_ISOLATE : MAY_LEAK};
    for (; stage->variants[c.n]; c.n++) {
        const struct variant *v = variant_here(stage->variants[c.n]);
        int only_by_name = stage->number <= 4 && v->device == GPU_ON_CPU;
        here[c.n] = only_by_name || variant_not_by_default(v) ? NULL : v;
    }
    if (choose(&c)) *asked = c.asked;
    return c.v;
}

/* Is there a NaN or inf in a, or will there be one when it is rounded to `dtype`? */
static int holds_nonfinite(const struct npy *a, enum dtype dtype)
{
    for (size_t i = 0; i < a->count; i++)
        if (!isfinite(dtype_round(dtype, dtypes[a->dtype].load(a->data, i)))) return 1;
    return 0;
}

/* The same of any input that weights multiply. */
static int may_leak(const struct run *r, enum dtype dtype)
{
    int found = 0;
    for (int i = 0; i < N_ARRAYS; i++)
        if (operations[r->p.op].weighed & HAS(i)) found |= holds_nonfinite(&r->in[i], dtype);
    return found;
}

/* The variant named by --variant; *asked as above.
 *   isolate  may_leak() */
static int named_variant(struct run *r, int isolate, struct problem *asked)
{
    const struct variant *const *all = r->stage->variants;
    size_t i = 0;
    while (strcmp(all[i]->name, r->opt->variant)) i++;
    const struct variant *v = variant_here(all[i]);
    /* Naming a 16-bit or 8-bit variant asks for rounding, unless --dtype asks for something else. */
    struct choice c = {.list = &v, .n = 1, .p = &r->p, .name = v->name, .arch = ANY_ARCH,
                       .types = r->opt->has_dtype ? OR_F32 : OR_ROUNDED};
    if (!choose(&c))
        return bad(r, "variant %s does not support %s; %s", v->name, c.why,
                   choice_default(r->stage, &r->p, isolate, asked)
                       ? "without --variant one that does is taken"
                   : r->stage->number < 4 && problem_features(&r->p) & ~BASIC_FEATURES
                       ? "stages 4 and 5 do" : "no variant of this stage does");
    *asked = c.asked;
    const char *why = variant_unavailable(v);
    if (why) {
        fprintf(stderr, "%s: variant %s cannot run here: %s\n", r->stage->name, v->name, why);
        return SKIPPED;
    }
    if (on_heads(&r->p) && (r->p.causal || r->p.has_bias || r->p.has_window) && !v->isolates_v &&
        r->stage->number > 1 && (isolate || may_leak(r, asked->dtype)))
        return bad(r, "variant %s does not support NaN or inf in v beside masked keys; "
                   "without --variant one that does is taken", v->name);
    r->v = v;
    return OK;
}

/* Nobody does it: because of a feature that is taught later, or whatever the reason. */
static int no_variant(const struct run *r)
{
    unsigned missing = problem_features(&r->p), any = 0;
    for (size_t i = 0; r->stage->variants[i]; i++)
        if (variant_does(r->stage->variants[i], r->p.op)) {
            missing &= ~r->stage->variants[i]->supports;
            any = 1;
        }
    if (any && missing)
        return bad(r, "this stage does not support %s%s", feature_text(missing),
                   r->stage->number < 4 ? "; stages 4 and 5 do"
                   : r->stage->number == 5 ? "; stage 4 does" : "");
    return bad_file(r, on_heads(&r->p) ? ARRAY_Q : ARRAY_X, "no variant of this stage does "
                    "this %s; %s list shows what they do", op_name(r->p.op), r->stage->name);
}

int run_choose(struct run *r, struct problem *asked)
{
    int isolate = may_leak(r, r->p.dtype);
    if (r->opt->variant) return named_variant(r, isolate, asked);
    r->v = choice_default(r->stage, &r->p, isolate, asked);
    return r->v ? OK : no_variant(r);
}

void run_describe(const struct run *r)
{
    const struct problem *p = &r->p;
    const struct variant *v = r->v;
    say(r, "variant %s (%s, %s): %s\n", v->name,
        r->stage->ranks ? r->stage->ranks : device_name(v->device), problem_types(p), v->idea);
    if (v->picks) say(r, "  for this shape it takes %s\n", v->picks(p));
    if (v->device == GPU_ON_CPU)
        say(r, "no GPU is used: the kernel is executed on the CPU, block by block\n");
    say(r, "%s of", op_name(p->op));
    for (int i = 0, n = 0; i < N_ARRAYS; i++) {
        struct extents e = array_extents(p, i);
        if (array_role(p, i) != INPUT || !r->opt->file[i]) continue;
        say(r, "%s %s [", n++ ? "," : "", array_list[i].name);
        for (size_t t = 0; t < e.rank; t++) say(r, "%s%zu", t ? ", " : "", e.size[t]);
        say(r, "]");
    }
    if (on_heads(p)) say(r, ", scale %g", p->scale);
    const unsigned seen = WITH_GROUPS | WITH_HEAD_DIM_V | WITH_BIAS | WITH_SINKS | WITH_PACKED;
    for (unsigned bit = 1; bit < FEATURES_END; bit <<= 1)
        if (problem_features(p) & ~seen & bit) say(r, ", %s", feature_text(bit));
    say(r, "\n");
}
