/* run.c: an operation on real data, .npy in and .npy out. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "problem/dtype.h"
#include "problem/execute.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "program/complain.h"
#include "program/options.h"
#include "program/run.h"

int bad(const struct run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_list(r->stage, format, arguments);
    va_end(arguments);
    return BAD;
}

int bad_file(const struct run *r, enum array i, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return bad(r, "--%s: %s: %s", array_list[i].name, r->opt->file[i], text);
}

void say(const struct run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(r->report, format, arguments);
    va_end(arguments);
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

/* Backward reads what the forward pass gives: computes o and lse into `forward`, with the variant
 * that run would take for them. */
static int run_forward(struct run *r, struct outputs *forward)
{
    struct problem p = r->p;
    enum dtype type;
    p.op = OP_ATTENTION;
    const struct variant *v = choice_default(r->stage, &p, 1, &type);
    if (!v || type != p.dtype)
        return bad(r, "no variant of this stage does the forward pass in %s", dtype_name(p.dtype));
    *forward = outputs_new(&p);
    outputs_bind(forward, &r->a);
    const char *why = execute(v, &p, &r->a);
    return why ? bad(r, "variant %s: %s", v->name, why) : OK;
}

static int compute(struct run *r, struct outputs *forward)
{
    size_t n = 0;
    r->out = outputs_new(&r->p);
    outputs_bind(&r->out, &r->a);
    for (int i = 0; i < N_ARRAYS; i++)
        if (r->out.array[i].n > n) n = r->out.array[i].n;
    if (n == 0) return OK;
    int status = array_role(&r->p, ARRAY_O) == INPUT ? run_forward(r, forward) : OK;
    if (status) return status;
    const char *why = execute(r->v, &r->p, &r->a);
    if (!why) return OK;
    return bad(r, "variant %s: %s%s", r->v->name, why,
               r->v->device == ON_GPU ? "; with --device cpu the CPU computes it" : "");
}

int run_problem(struct run *r)
{
    int status = run_read(r);
    if (!status) status = run_choose_problem(r);
    return status ? status : run_outputs_fit(r);
}

int run_prepare(struct run *r)
{
    enum dtype type = F32;
    int status = run_choose_variant(r, &type);
    if (!status) status = run_open_outputs(r);
    /* --dtype asks for rounding even where the variant computes in f32. */
    if (!status && r->opt->has_dtype) status = run_convert_inputs(r, r->opt->dtype);
    return status ? status : run_convert_inputs(r, type);
}

int run_finish(struct run *r)
{
    struct outputs forward = {{{0}}};
    run_describe(r);
    int status = compute(r, &forward);
    outputs_free(&forward);
    return status ? status : run_write_outputs(r);
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
    return status;
}

int run_stage(const struct stage *stage, const struct options *opt)
{
    return run_in_steps(stage, opt, all_steps);
}
