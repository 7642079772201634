/* run.c: an operation on real data, .npy in and .npy out: the variant that computes it, the
 * steps in order, and what is said about them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "problem/choice.h"
#include "problem/dtype.h"
#include "problem/execute.h"
#include "problem/feature.h"
#include "problem/operation.h"
#include "problem/variant.h"
#include "program/run.h"

/* --- The variant. --- */

/* The stage's best variant for p on this machine, or NULL; *asked is p in the types that are computed in.  In
 * stages 1 to 4 a GPU kernel, which is slow there, is never executed on the CPU unasked, and an f16
 * file is widened: o, which is written as f32, is not rounded to f16.   isolate: v holds NaN or inf */
static const struct variant *choice_default(const struct stage *stage, const struct problem *p,
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

/* Sets r->v, named by --variant or the default, and the types that are computed in. */
static int choose_variant(struct run *r, struct problem *asked)
{
    int isolate = may_leak(r, r->p.dtype);
    if (r->opt->variant) return named_variant(r, isolate, asked);
    r->v = choice_default(r->stage, &r->p, isolate, asked);
    return r->v ? OK : no_variant(r);
}

/* Prints the variant, the type and the shapes. */
static void describe(const struct run *r)
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

/* --- The steps. --- */

/* Backward reads what the forward pass gives: computes o and lse, with the variant
 * that run would take for them. */
static int run_forward(struct run *r)
{
    struct problem p = r->p, asked;
    p.op = OP_ATTENTION;
    const struct variant *v = choice_default(r->stage, &p, 1, &asked);
    if (!v || asked.dtype != p.dtype)
        return bad(r, "no variant of this stage does the forward pass in %s", dtype_name(p.dtype));
    r->forward = outputs_new(&p);
    outputs_bind(&r->forward, &r->a);
    const char *why = execution_once(v, &p, &r->a);
    return why ? bad(r, "variant %s: %s", v->name, why) : OK;
}

static int compute(struct run *r)
{
    size_t n = 0;
    r->out = outputs_new(&r->p);
    outputs_bind(&r->out, &r->a);
    for (int i = 0; i < N_ARRAYS; i++)
        if (r->out.array[i].n > n) n = r->out.array[i].n;
    if (n == 0) return OK;
    int status = array_role(&r->p, ARRAY_O) == INPUT ? run_forward(r) : OK;
    if (status) return status;
    const char *why = execution_once(r->v, &r->p, &r->a);
    if (!why) return OK;
    return bad(r, "variant %s: %s%s", r->v->name, why,
               r->v->device == ON_GPU ? "; with --device cpu the CPU computes it" : "");
}

int run_prepare(struct run *r)
{
    struct problem asked = r->p;
    int status = choose_variant(r, &asked);
    if (!status) status = run_open_outputs(r);
    /* --dtype and --kv-dtype ask for rounding even where the variant computes in f32. */
    if (!status && (r->opt->has_dtype || r->p.cache)) status = run_convert_inputs(r, &r->p);
    return status ? status : run_convert_inputs(r, &asked);
}

int run_finish(struct run *r)
{
    describe(r);
    int status = compute(r);
    return status ? status : run_write_outputs(r);
}

/* Is an output the standard output?  Then the report goes to stderr, so that it does not mix
 * with the array.  Two devices other than a terminal mix nothing. */
static int writes_to_standard_output(const struct options *opt)
{
    struct stat file, out;
    unsigned outputs = operations[run_operation(opt)].outputs;
    if (fstat(STDOUT_FILENO, &out) || (S_ISCHR(out.st_mode) && !isatty(STDOUT_FILENO))) return 0;
    for (int i = 0; i < N_ARRAYS; i++)
        if (outputs & HAS(i) && opt->file[i] && !stat(opt->file[i], &file) &&
            file.st_dev == out.st_dev && file.st_ino == out.st_ino)
            return 1;
    return 0;
}

static int all_steps(struct run *r)
{
    int status = run_problem(r);
    if (!status) status = run_prepare(r);
    return status ? status : run_finish(r);
}

int run_in_steps(const struct stage *stage, const struct options *opt, int (*steps)(struct run *r))
{
    struct run r = {.stage = stage, .opt = opt, .report = stdout};
    r.p = opt->score;
    r.p.op = run_operation(opt);
    if (writes_to_standard_output(opt)) r.report = stderr;
    int status = steps(&r);
    npy_writer_abort(r.writer, N_ARRAYS);
    for (int i = 0; i < N_ARRAYS; i++) npy_free(&r.in[i]);
    outputs_free(&r.out);
    outputs_free(&r.forward);
    return status;
}

int run_stage(const struct stage *stage, const struct options *opt)
{
    return run_in_steps(stage, opt, all_steps);
}
