/* run.c: an operation on real data, .npy in and .npy out: reads the inputs, finds the problem that their
 * shapes and types describe, converts them to the type that is computed in, computes, writes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "problem/call.h"
#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "problem/quantise.h"
#include "program/run.h"

/* --- Inputs. --- */

static int read_file(struct run *r, enum array i)
{
    struct npy *a = &r->in[i];
    const char *path = r->opt->file[i];
    const char *why = npy_read(path, array_list[i].number == INT32, a);
    if (why) return bad(r, "--%s: %s", array_list[i].name, why);
    if (a->was_f64) say(r, "%s: f64 rounded to f32\n", path);
    if (a->n_overflowed)
        say(r, "%s: %zu finite f64 values became infinite in f32\n", path, a->n_overflowed);
    if (a->was_big_endian) say(r, "%s: big-endian, bytes swapped\n", path);
    if (a->was_fortran) say(r, "%s: Fortran order, rearranged\n", path);
    return OK;
}

static int read_files(struct run *r)
{
    int status = OK;
    for (int i = 0; i < N_ARRAYS && !status; i++)
        if (operations[r->p.op].inputs & HAS(i) && r->opt->file[i]) status = read_file(r, i);
    return status;
}

/* --- The problem. --- */

/* The problem's type: --dtype, else what the files have in common. */
static int choose_type(struct run *r)
{
    enum array first = on_heads(&r->p) ? ARRAY_Q : ARRAY_X;
    r->p.dtype = r->opt->has_dtype ? r->opt->dtype : r->in[first].dtype;
    for (int i = 0; i < N_ARRAYS && !r->opt->has_dtype; i++)
        if (array_role(&r->p, i) == INPUT && array_list[i].number == OF_PROBLEM && r->opt->file[i] &&
            r->in[i].dtype != r->p.dtype)
            return bad_file(r, i, "is %s but %s is %s; give them alike or choose with --dtype",
                            dtype_name(r->in[i].dtype), array_list[first].name,
                            dtype_name(r->p.dtype));
    int has_scales = operations[r->p.op].inputs & HAS(ARRAY_V_SCALE);
    if (!has_scales && (r->opt->cache || dtype_size(r->p.dtype) == 1))
        return bad(r, "--%s: %s is not done in 8 bits; attention is",
                   r->opt->cache ? "kv-dtype" : "dtype", op_name(r->p.op));
    if (r->opt->cache && r->p.dtype == E4M3 && r->opt->cache != E4M3)
        return bad(r, "--kv-dtype: %s cannot go with --dtype e4m3", dtype_name(r->opt->cache));
    r->p.cache = r->opt->cache == r->p.dtype ? F32 : r->opt->cache;
    return OK;
}

/* The shapes of the files, as call.h wants them. */
static const struct given *given_files(const struct run *r)
{
    static struct given all[N_ARRAYS];
    for (int i = 0; i < N_ARRAYS; i++)
        all[i] = (struct given){r->in[i].data ? r->in[i].shape : NULL, r->in[i].ndim, r->in[i].data};
    return all;
}

/* Three tiny files can ask for an output of any size: v of no keys may have any head_dim.
 * Without rows such an output is empty, but no reader takes its shape. */
static int outputs_fit(const struct run *r)
{
    size_t bytes = 0, widest = 0;
    for (int i = 0; i < N_ARRAYS; i++) {
        size_t shape[NPY_MAX_DIMS], extent = 1;
        if (array_role(&r->p, i) != OUTPUT) continue;
        bytes = size_plus(bytes, array_bytes(&r->p, i));
        for (size_t rank = call_shape_of(&r->p, given_files(r), i, shape), t = 0; t < rank; t++)
            if (shape[t]) extent = size_times(extent, shape[t]);
        if (extent > widest) widest = extent;
    }
    if (widest <= PTRDIFF_MAX / 8 && bytes <= memory_available()) return OK;
    return bad_file(r, on_heads(&r->p) ? ARRAY_Q : ARRAY_X,
                    "the output does not fit into memory; give fewer rows");
}

int run_problem(struct run *r)
{
    struct fault f;
    int status = read_files(r);
    if (status) return status;
    if (call_shapes(&r->p, given_files(r), &f)) return bad_file(r, f.array, "%s", f.text);
    if (!r->opt->has_scale) r->p.scale = 1 / sqrtf((float)r->p.head_dim);
    if (on_heads(&r->p) && call_scores(&r->p, &f))
        return f.array < N_ARRAYS ? bad_file(r, f.array, "%s", f.text) : bad(r, "--%s", f.text);
    status = choose_type(r);
    return status ? status : outputs_fit(r);
}

/* Array i, 8 bits wide before or after, into the copy of type `to`; its scales become an input. */
static void rescale(struct run *r, enum array i, enum dtype to, void *copy)
{
    struct npy *a = &r->in[i], *scales = &r->in[scales_of(i)];
    struct problem was = r->p;
    was.dtype = a->dtype, was.cache = F32;
    array_set(&r->a, i, a->data);
    float *x = dequantised(&was, &r->a, i);
    for (size_t e = 0; dtype_size(to) > 1 && e < a->count; e++) dtypes[to].store(copy, e, x[e]);
    if (dtype_size(to) == 1) {
        free(scales->data);
        scales->data = xcalloc(r->p.batch * r->p.heads_kv, sizeof(float));
        array_set(&r->a, scales_of(i), scales->data);
        amax_scales(&r->p, &r->a, i, x, scales->data);
        quantise(&r->p, &r->a, i, x, scales->data, copy);
    }
    free(x);
}

/* Array i in dtype `to`, as if the file had held that type; says so. */
static int convert(struct run *r, enum array i, enum dtype to)
{
    struct npy *a = &r->in[i];
    const char *path = r->opt->file[i];
    void *copy = memory_new(size_times(a->count, dtype_size(to)));
    if (!copy) return bad(r, "%s: no memory for its copy in %s", path, dtype_name(to));
    size_t overflowed = 0;
    int scaled = dtype_size(to) == 1 || dtype_size(a->dtype) == 1;
    if (scaled) rescale(r, i, to, copy);
    for (size_t e = 0; !scaled && e < a->count; e++) {
        float x = dtypes[a->dtype].load(a->data, e);
        dtypes[to].store(copy, e, x);
        overflowed += isfinite(x) && !isfinite(dtypes[to].load(copy, e));
    }
    say(r, "%s: %s converted to %s", path, dtype_name(a->dtype), dtype_name(to));
    if (dtype_size(to) == 1)
        say(r, ", scale: largest number / %g per batch and key head", dtypes[to].largest);
    say(r, "\n");
    if (overflowed)
        say(r, "%s: %zu finite values became infinite in %s\n", path, overflowed,
            dtype_name(to));
    free(a->data);
    a->data = copy;
    a->dtype = to;
    return OK;
}

/* Gives the problem the types of this one and points r->a at the inputs, converted to them. */
static int convert_inputs(struct run *r, const struct problem *types)
{
    r->p.dtype = types->dtype, r->p.cache = types->cache;
    for (int i = 0; i < N_ARRAYS; i++) /* prefix sums say whose scale a row has */
        if (r->in[i].data) array_set(&r->a, i, r->in[i].data);
    for (int i = 0; i < N_ARRAYS; i++) {
        const struct npy *a = &r->in[i];
        enum dtype to = array_dtype(&r->p, i);
        if (!a->data) continue;
        int status = a->is_int || a->dtype == to ? OK : convert(r, i, to);
        if (status) return status;
        array_set(&r->a, i, a->data);
    }
    return OK;
}

/* --- Outputs. --- */

/* Is array i an output with a file? */
static int is_written(const struct run *r, enum array i)
{
    return array_role(&r->p, i) == OUTPUT && r->opt->file[i];
}

/* Do the output i, which was begun, and array k lie in one file, whatever its names? */
static int is_one_file(const struct run *r, enum array i, enum array k)
{
    struct stat a, b;
    const char *target = r->writer[k].target; /* of an output, which need not exist yet */
    if (target && !strcmp(target, r->writer[i].target)) return 1;
    return !stat(r->opt->file[i], &a) && !stat(r->opt->file[k], &b) && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Opens the files of the outputs that were asked for. */
static int open_outputs(struct run *r)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        struct npy_writer *w = &r->writer[i];
        const char *path = r->opt->file[i];
        if (!is_written(r, i)) continue;
        const char *why = npy_writer_begin(w, path);
        if (why) return bad(r, "--%s: %s", array_list[i].name, why);
        for (int k = 0; k < N_ARRAYS; k++)
            if (k != i && r->opt->file[k] && is_one_file(r, i, k))
                return bad(r, "--%s: %s is the file of --%s too; give another",
                           array_list[i].name, path, array_list[k].name);
    }
    return OK;
}

/* As f32: all files appear, or none. */
static int write_outputs(struct run *r)
{
    float *wide[N_ARRAYS] = {NULL}; /* files hold float, whatever the output's type */
    for (int i = 0; i < N_ARRAYS; i++) {
        struct npy_writer *w = &r->writer[i];
        const struct output *out = &r->out.array[i];
        if (!is_written(r, i)) continue;
        w->data = out->data;
        if (out->dtype != F32) w->data = wide[i] = widen(out->data, out->dtype, out->n);
        w->ndim = call_shape_of(&r->p, given_files(r), i, w->shape);
    }
    const char *why = npy_writer_commit(r->writer, N_ARRAYS);
    for (int i = 0; i < N_ARRAYS; i++) free(wide[i]);
    if (!why) return OK;
    bad(r, "%s", why);
    return FAILED;
}

/* --- The steps. --- */

/* Backward reads what the forward pass gives: computes o and lse, with the variant
 * that run would take for them. */
static int run_forward(struct run *r)
{
    struct problem p = r->p, asked;
    p.op = OP_ATTENTION, p.has_bias_gradient = 0;
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
    int status = run_choose(r, &asked);
    if (!status) status = open_outputs(r);
    /* --dtype and --kv-dtype ask for rounding even where the variant computes in f32. */
    if (!status && (r->opt->has_dtype || r->p.cache)) status = convert_inputs(r, &r->p);
    return status ? status : convert_inputs(r, &asked);
}

int run_finish(struct run *r)
{
    run_describe(r);
    int status = compute(r);
    return status ? status : write_outputs(r);
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
    r.p.seed = opt->seed;
    r.p.has_bias_gradient = opt->file[ARRAY_DBIAS] != NULL;
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
