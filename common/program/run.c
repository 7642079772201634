/* run.c: softmax or attention of real data, .npy in and .npy out. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "problem/execute.h"
#include "problem/host_memory.h"
#include "problem/layout.h"
#include "problem/operation.h"
#include "program/complain.h"
#include "program/run.h"
#include "program/verbs.h"

int bad(const struct run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_list(r->stage, format, arguments);
    va_end(arguments);
    return BAD;
}

void say(const struct run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(r->report, format, arguments);
    va_end(arguments);
}

/* Is the output at path the standard output?  Then the report goes to stderr, so that it
 * does not mix with the array.  Two devices other than a terminal mix nothing. */
static int is_standard_output(const char *path)
{
    struct stat file, out;
    if (!path || stat(path, &file) || fstat(STDOUT_FILENO, &out)) return 0;
    return file.st_dev == out.st_dev && file.st_ino == out.st_ino &&
           (!S_ISCHR(out.st_mode) || isatty(STDOUT_FILENO));
}

/* Without keys there is nothing to launch: o = 0, lse is the sink, or -INFINITY. */
static void no_keys(const struct run *r, const struct sizes *n)
{
    size_t rows = stored_queries(&r->p);
    memset(r->a.o, 0, n->o * dtype_size(r->p.dtype));
    for (size_t i = 0; i < n->lse; i++)
        r->a.lse[i] = r->p.has_sinks ? r->a.sinks[i / rows % r->p.heads_q] : -INFINITY;
}

static int compute(struct run *r, const struct variant *v)
{
    struct sizes n = problem_sizes(&r->p);
    int status = run_allocate_outputs(r);
    if (status || (on_heads(&r->p) ? n.o : n.y) == 0) return status;
    if (on_heads(&r->p) && r->p.seqlen_k == 0 && v->device != ON_CPU) {
        no_keys(r, &n);
        return OK;
    }
    const char *why = execute(v, &r->p, &r->a);
    if (!why) return OK;
    return bad(r, "variant %s: %s%s", v->name, why,
               v->device == ON_GPU ? "; with --device cpu the CPU computes it" : "");
}

static int do_run(struct run *r)
{
    const struct options *opt = r->opt;
    const struct variant *v;
    int softmax = opt->x != NULL, status = OK;
    if (softmax) {
        status = run_read(r, X, "--x", opt->x);
    } else {
        status = run_read(r, Q, "--q", opt->q);
        if (!status) status = run_read(r, K, "--k", opt->k);
        if (!status) status = run_read(r, V, "--v", opt->v);
        if (!status) status = run_read(r, BIAS, "--bias", opt->bias);
        if (!status) status = run_read(r, SINKS, "--sinks", opt->sinks);
        if (!status)
            status = run_read_ints(r, CU_SEQLENS_Q, "--cu-seqlens-q", opt->cu_seqlens_q);
        if (!status)
            status = run_read_ints(r, CU_SEQLENS_K, "--cu-seqlens-k", opt->cu_seqlens_k);
    }
    if (!status) status = run_choose_problem(r);
    if (!status) status = run_outputs_fit(r);
    enum dtype type = F32;
    if (!status) status = run_choose_variant(r, &v, &type);
    if (!status)
        status = run_open_output(r, softmax ? "--y" : "--o", softmax ? opt->y : opt->o);
    if (!status) status = run_open_output(r, "--lse", opt->lse);
    if (status) return status;
    /* --dtype asks for rounding even where the variant computes in f32. */
    if (opt->has_dtype && type != opt->dtype) {
        r->p.dtype = opt->dtype;
        status = run_convert_inputs(r);
        if (!status) status = run_adopt_converted(r);
        if (status) return status;
    }
    r->p.dtype = type;
    status = run_convert_inputs(r);
    if (status) return status;
    run_describe(r, v);
    status = compute(r, v);
    return status ? status : run_write_outputs(r);
}

int run_stage(const struct stage *stage, const struct options *opt)
{
    struct run r = {.stage = stage, .opt = opt, .report = stdout};
    if (is_standard_output(opt->y) || is_standard_output(opt->o) ||
        is_standard_output(opt->lse))
        r.report = stderr;
    int status = do_run(&r);
    if (r.n_writers) npy_writer_abort(r.writer, r.n_writers);
    for (int i = 0; i < N_FILES; i++) {
        npy_free(&r.in[i]);
        memory_free(r.converted[i]);
    }
    memory_free(r.out[0]);
    memory_free(r.out[1]);
    return status;
}
