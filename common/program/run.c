/* run.c: softmax or attention of real data, .npy in and .npy out. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy.h"
#include "problem/execute.h"
#include "problem/host_memory.h"
#include "problem/variant.h"
#include "program/choose.h"
#include "program/complain.h"
#include "program/verbs.h"

enum { OK = 0, FAILED = 1, BAD = 2, SKIPPED = 77 };
enum { X, Q = X, K, V, BIAS, N_FILES };

/* Everything of one run: what was read, what is computed, what is written. */
struct run {
    const struct stage *stage;
    const struct options *opt;
    FILE *report;               /* what was done: stdout, or stderr when an array goes there */
    struct npy in[N_FILES];
    const char *path[N_FILES];
    struct problem p;
    struct arrays a;
    void *converted[N_FILES];   /* inputs in the problem's type, where the file's differs */
    char *out[2];               /* y or o, and lse, each with GUARD bytes on both sides */
    struct npy_writer writer[2];
    size_t n_writers;
};

static int bad(const struct run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_list(r->stage, format, arguments);
    va_end(arguments);
    return BAD;
}

static void __attribute__((format(printf, 2, 3))) say(const struct run *r,
                                                      const char *format, ...)
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

static int read_file(struct run *r, int which, const char *option, const char *path)
{
    if (!path) return OK;
    const char *why = npy_read(path, &r->in[which]);
    if (why) return bad(r, "%s: %s", option, why);
    r->path[which] = path;
    const struct npy *a = &r->in[which];
    if (a->was_f64) say(r, "%s: f64 rounded to f32\n", path);
    if (a->n_overflowed)
        say(r, "%s: %zu finite f64 values became infinite in f32\n", path,
            a->n_overflowed);
    if (a->was_big_endian) say(r, "%s: big-endian, bytes swapped\n", path);
    if (a->was_fortran) say(r, "%s: Fortran order, rearranged\n", path);
    return OK;
}

static int open_output(struct run *r, const char *option, const char *path)
{
    if (!path) return OK;
    struct npy_writer *w = &r->writer[r->n_writers];
    const char *why = npy_writer_begin(w, path);
    if (why) return bad(r, "%s: %s", option, why);
    r->n_writers++;
    if (w != r->writer && !w->direct && !strcmp(w->target, r->writer[0].target))
        return bad(r, "%s: %s is the file of the other output too; give two", option, path);
    return OK;
}

static int softmax_shape(struct run *r)
{
    const struct npy *x = &r->in[X];
    if (x->ndim == 0)
        return bad(r, "--x: %s: a single number without dimensions; give [rows, cols]",
                   r->path[X]);
    r->p.op = r->opt->log ? OP_LOGSOFTMAX : OP_SOFTMAX;
    r->p.cols = x->shape[x->ndim - 1];
    r->p.rows = r->p.cols ? x->count / r->p.cols : 0;
    return OK;
}

/* The dimension `from_end` places before the last, 1 where the array has none. */
static size_t dim(const struct npy *a, size_t from_end)
{
    return from_end < a->ndim ? a->shape[a->ndim - 1 - from_end] : 1;
}

static int attention_ranks(const struct run *r)
{
    static const char *const names[] = {"--q", "--k", "--v"};
    for (int i = Q; i <= V; i++) {
        size_t n = r->in[i].ndim;
        if (n < 2 || n > 4)
            return bad(r, "%s: %s: %s has %zu dimensions; give [seqlen, head_dim], [heads, "
                       "seqlen, head_dim] or [batch, heads, seqlen, head_dim]", names[i],
                       r->path[i], npy_describe(&r->in[i]), n);
        if (n != r->in[Q].ndim)
            return bad(r, "%s: %s: %s has %zu dimensions, q %s has %zu; give them alike",
                       names[i], r->path[i], npy_describe(&r->in[i]), n,
                       npy_describe(&r->in[Q]), r->in[Q].ndim);
    }
    return OK;
}

static int attention_shape(struct run *r)
{
    const struct npy *q = &r->in[Q], *k = &r->in[K], *v = &r->in[V], *bias = &r->in[BIAS];
    int status = attention_ranks(r);
    if (status) return status;
    struct problem *p = &r->p;
    p->op = OP_ATTENTION;
    p->batch = dim(q, 3), p->heads_q = dim(q, 2), p->heads_kv = dim(k, 2);
    p->seqlen_q = dim(q, 1), p->seqlen_k = dim(k, 1);
    p->head_dim = dim(q, 0), p->head_dim_v = dim(v, 0);
    p->causal = r->opt->causal;
    if (p->head_dim == 0 || p->head_dim_v == 0)
        return bad(r, "--%s: %s: head_dim is 0; give at least 1", p->head_dim ? "v" : "q",
                   r->path[p->head_dim ? V : Q]);
    if (dim(k, 0) != p->head_dim)
        return bad(r, "--k: %s: head_dim is %zu in k %s and %zu in q %s; give them alike",
                   r->path[K], dim(k, 0), npy_describe(k), p->head_dim, npy_describe(q));
    if (dim(k, 3) != p->batch || dim(v, 3) != p->batch)
        return bad(r, "--%s: %s: the batch differs: q %s, k %s, v %s; give them alike",
                   dim(k, 3) != p->batch ? "k" : "v", r->path[dim(k, 3) != p->batch ? K : V],
                   npy_describe(q), npy_describe(k), npy_describe(v));
    if (dim(v, 1) != p->seqlen_k || dim(v, 2) != p->heads_kv)
        return bad(r, "--v: %s: k %s and v %s differ in heads or seqlen; give them alike",
                   r->path[V], npy_describe(k), npy_describe(v));
    if (p->heads_kv == 0 ? p->heads_q != 0 : p->heads_q % p->heads_kv != 0)
        return bad(r, "--k: %s: %zu query heads cannot share %zu key-value heads; heads of q "
                   "must be a multiple of heads of k", r->path[K], p->heads_q, p->heads_kv);
    if (r->path[BIAS] && (bias->ndim != 2 || bias->shape[0] != p->seqlen_q ||
                          bias->shape[1] != p->seqlen_k))
        return bad(r, "--bias: %s: is %s; give [seqlen_q, seqlen_k] = [%zu, %zu]",
                   r->path[BIAS], npy_describe(bias), p->seqlen_q, p->seqlen_k);
    p->has_bias = r->path[BIAS] != NULL;
    p->scale = r->opt->has_scale ? r->opt->scale : 1 / sqrtf((float)p->head_dim);
    return OK;
}

/* The problem's type: --dtype, else what the files have in common. */
static int choose_type(struct run *r)
{
    static const char *const names[] = {"--q", "--k", "--v"};
    int attention = on_heads(&r->p);
    r->p.dtype = r->opt->has_dtype ? r->opt->dtype : r->in[Q].dtype;
    for (int i = K; attention && !r->opt->has_dtype && i <= V; i++)
        if (r->in[i].dtype != r->p.dtype)
            return bad(r, "%s: %s: is %s but q is %s; give them alike or choose with --dtype",
                       names[i], r->path[i], dtype_name(r->in[i].dtype),
                       dtype_name(r->p.dtype));
    return OK;
}

/* Array `which` in dtype `to`: the file's own data, or a converted copy that is told of. */
static int convert(struct run *r, int which, enum dtype to, const void **result)
{
    const struct npy *a = &r->in[which];
    *result = a->data;
    if (a->dtype == to) return OK;
    void *copy = memory_new(size_times(a->count, dtype_size(to)));
    if (!copy)
        return bad(r, "%s: no memory for its copy in %s", r->path[which], dtype_name(to));
    r->converted[which] = copy;
    size_t overflowed = 0;
    for (size_t i = 0; i < a->count; i++) {
        float x = dtypes[a->dtype].load(a->data, i);
        dtypes[to].store(copy, i, x);
        overflowed += isfinite(x) && !isfinite(dtypes[to].load(copy, i));
    }
    say(r, "%s: %s converted to %s\n", r->path[which], dtype_name(a->dtype),
        dtype_name(to));
    if (overflowed)
        say(r, "%s: %zu finite values became infinite in %s\n", r->path[which], overflowed,
            dtype_name(to));
    *result = copy;
    return OK;
}

/* Is there a NaN or inf in a, or will there be one when it is rounded to `dtype`? */
static int holds_nonfinite(const struct npy *a, enum dtype dtype)
{
    for (size_t i = 0; i < a->count; i++)
        if (!isfinite(dtype_round(dtype, dtypes[a->dtype].load(a->data, i)))) return 1;
    return 0;
}

/* The variant named by --variant; sets the type that is computed in.
 *   isolate  v holds NaN or inf */
static int named_variant(struct run *r, int isolate, const struct variant **chosen,
                         enum dtype *type)
{
    const struct variant *const *all = r->stage->variants;
    size_t i = 0;
    while (strcmp(all[i]->name, r->opt->variant)) i++;
    const struct variant *v = variant_here(all[i]);
    /* Naming a 16-bit variant asks for rounding, unless --dtype asks for something else. */
    if (!choice_type(v, &r->p, !r->opt->has_dtype, type))
        return bad(r, "variant %s does not support %s; without --variant one that does "
                   "is taken", v->name, choice_refusal(v, &r->p, r->opt->has_dtype));
    const char *why = variant_unavailable(v);
    if (why) {
        fprintf(stderr, "%s: variant %s cannot run here: %s\n", r->stage->name, v->name, why);
        return SKIPPED;
    }
    if (on_heads(&r->p) && (r->p.causal || r->p.has_bias) && !v->isolates_v &&
        r->stage->number > 1 && (isolate || holds_nonfinite(&r->in[V], *type)))
        return bad(r, "variant %s does not support NaN or inf in v beside masked keys; "
                   "without --variant one that does is taken", v->name);
    *chosen = v;
    return OK;
}

/* The variant named by --variant, or the default; sets the type that is computed in. */
static int choose_variant(struct run *r, const struct variant **chosen, enum dtype *type)
{
    int isolate = on_heads(&r->p) && holds_nonfinite(&r->in[V], r->p.dtype);
    if (r->opt->variant) return named_variant(r, isolate, chosen, type);
    *chosen = choice_default(r->stage, &r->p, isolate, type);
    if (!*chosen)
        return bad(r, "--%s: %s: no variant of this stage does this %s; %s list shows what "
                   "they do", on_heads(&r->p) ? "q" : "x", r->path[X],
                   op_name(r->p.op), r->stage->name);
    return OK;
}

/* Bytes of the first output (y or o) and of lse; SIZE_MAX when they are no size_t. */
static size_t output_bytes(const struct run *r, int which)
{
    struct sizes n = problem_sizes(&r->p);
    if (which) return size_times(n.lse, sizeof(float));
    return size_times(on_heads(&r->p) ? n.o : n.y, dtype_size(r->p.dtype));
}

/* Three tiny files can ask for an output of any size: v of no keys may have any head_dim.
 * Without rows such an output is empty, but no reader takes its shape. */
static int outputs_fit(const struct run *r)
{
    const struct npy *q = &r->in[Q];
    size_t extent = on_heads(&r->p) ? r->p.head_dim_v : 1;
    for (size_t t = 0; t + (on_heads(&r->p)) < q->ndim; t++)
        if (q->shape[t]) extent = size_times(extent, q->shape[t]);
    if (extent <= PTRDIFF_MAX / 8 &&
        size_plus(output_bytes(r, 0), output_bytes(r, 1)) <= memory_available())
        return OK;
    return bad(r, "--%s: %s: the output does not fit into memory; give fewer rows",
               on_heads(&r->p) ? "q" : "x", r->path[X]);
}

static int allocate_outputs(struct run *r)
{
    size_t first = output_bytes(r, 0), second = output_bytes(r, 1);
    r->out[0] = memory_new(size_plus(first, 2 * GUARD));
    r->out[1] = memory_new(size_plus(second, 2 * GUARD));
    if (!r->out[0] || !r->out[1])
        return bad(r, "--%s: %s: the output does not fit into memory; give fewer rows",
                   on_heads(&r->p) ? "q" : "x", r->path[X]);
    if (on_heads(&r->p)) {
        r->a.o = r->out[0] + GUARD;
        r->a.lse = (float *)(void *)(r->out[1] + GUARD);
    } else {
        r->a.y = r->out[0] + GUARD;
    }
    return OK;
}

/* Without keys there is nothing to launch: o = 0, lse = -INFINITY. */
static void no_keys(const struct run *r, const struct sizes *n)
{
    memset(r->a.o, 0, n->o * dtype_size(r->p.dtype));
    for (size_t i = 0; i < n->lse; i++) r->a.lse[i] = -INFINITY;
}

static int compute(struct run *r, const struct variant *v)
{
    struct sizes n = problem_sizes(&r->p);
    int status = allocate_outputs(r);
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

/* The first output in float: o and y are written as f32 whatever type they have. */
static int output_floats(struct run *r, size_t count, const float **data)
{
    const void *out = r->out[0] + GUARD;
    *data = out;
    if (r->p.dtype == F32) return OK;
    float *wide = memory_new(size_times(count, sizeof(float)));
    if (!wide) return bad(r, "no memory for the output in f32");
    for (size_t i = 0; i < count; i++) wide[i] = dtypes[r->p.dtype].load(out, i);
    memory_free(r->out[0]);
    r->out[0] = (char *)wide;
    *data = wide;
    return OK;
}

static int write_outputs(struct run *r)
{
    const struct npy *q = &r->in[Q];
    struct sizes n = problem_sizes(&r->p);
    size_t shape[NPY_MAX_DIMS];
    const float *data;
    memcpy(shape, q->shape, sizeof shape);
    if (on_heads(&r->p)) shape[q->ndim - 1] = r->p.head_dim_v;
    int status = output_floats(r, on_heads(&r->p) ? n.o : n.y, &data);
    if (status) return status;
    npy_writer_set(&r->writer[0], q->ndim, shape, data);
    if (r->n_writers == 2) npy_writer_set(&r->writer[1], q->ndim - 1, q->shape, r->a.lse);
    const char *why = npy_writer_commit(r->writer, r->n_writers);
    r->n_writers = 0;
    if (!why) return OK;
    fprintf(stderr, "%s: %s\n", r->stage->name, why);
    return FAILED;
}

/* --verbose: why none of the variants listed after the chosen one was taken; a line for
 * those with the same reason. */
static void say_why(const struct run *r, const struct variant *chosen)
{
    const struct variant *const *all = r->stage->variants;
    char why[300], last[300] = "";
    size_t i = 0;
    while (strcmp(all[i]->name, chosen->name)) i++;
    while (all[++i]) {
        const struct variant *v = variant_here(all[i]);
        choice_why_not(r->stage, &r->p, v, why, sizeof why);
        if (!strcmp(why, last)) {
            say(r, ", %s", v->name);
            continue;
        }
        say(r, "%s%s%s  not %s", *last ? ": " : "", last, *last ? "\n" : "", v->name);
        strcpy(last, why);
    }
    if (*last) say(r, ": %s\n", last);
}

static void say_what(const struct run *r, const struct variant *v)
{
    const struct problem *p = &r->p;
    say(r, "variant %s (%s, %s): %s\n", v->name, device_name(v->device),
        dtype_name(p->dtype), v->idea);
    if (v->picks) say(r, "  for this shape it takes %s\n", v->picks(p));
    if (r->opt->verbose && !r->opt->variant) say_why(r, v);
    if (v->device == GPU_ON_CPU)
        say(r, "no GPU is used: the kernel is executed on the CPU, block by block\n");
    if (!on_heads(p)) {
        say(r, "%s of x [%zu, %zu]\n", op_name(p->op), p->rows, p->cols);
        return;
    }
    say(r, "attention of q [%zu, %zu, %zu, %zu], k [%zu, %zu, %zu, %zu], v [%zu, %zu, %zu, "
        "%zu], scale %g%s%s\n", p->batch, p->heads_q, p->seqlen_q, p->head_dim, p->batch,
        p->heads_kv, p->seqlen_k, p->head_dim, p->batch, p->heads_kv, p->seqlen_k,
        p->head_dim_v, p->scale, p->causal ? ", causal" : "", p->has_bias ? ", bias" : "");
}

static int convert_inputs(struct run *r)
{
    const void *data[N_FILES] = {NULL};
    int attention = on_heads(&r->p), last = attention ? BIAS : X;
    for (int i = X; i <= last; i++) {
        if (!r->path[i]) continue;
        int status = convert(r, i, i == BIAS ? F32 : r->p.dtype, &data[i]);
        if (status) return status;
    }
    if (attention) r->a.q = data[Q], r->a.k = data[K], r->a.v = data[V], r->a.bias = data[BIAS];
    else r->a.x = data[X];
    return OK;
}

/* Makes the converted copies the inputs, as if the files had held that type. */
static int adopt_converted(struct run *r)
{
    for (int i = X; i <= BIAS; i++) {
        if (!r->converted[i]) continue;
        free(r->in[i].data);
        r->in[i].data = r->converted[i];
        r->in[i].dtype = i == BIAS ? F32 : r->p.dtype;
        r->converted[i] = NULL;
    }
    return OK;
}

static int do_run(struct run *r)
{
    const struct options *opt = r->opt;
    const struct variant *v;
    int softmax = opt->x != NULL, status = OK;
    if (softmax) {
        status = read_file(r, X, "--x", opt->x);
    } else {
        status = read_file(r, Q, "--q", opt->q);
        if (!status) status = read_file(r, K, "--k", opt->k);
        if (!status) status = read_file(r, V, "--v", opt->v);
        if (!status) status = read_file(r, BIAS, "--bias", opt->bias);
    }
    if (!status) status = softmax ? softmax_shape(r) : attention_shape(r);
    if (!status) status = choose_type(r);
    if (!status) status = outputs_fit(r);
    enum dtype type = F32;
    if (!status) status = choose_variant(r, &v, &type);
    if (!status) status = open_output(r, softmax ? "--y" : "--o", softmax ? opt->y : opt->o);
    if (!status) status = open_output(r, "--lse", opt->lse);
    if (status) return status;
    /* --dtype asks for rounding even where the variant computes in f32. */
    if (opt->has_dtype && type != opt->dtype) {
        r->p.dtype = opt->dtype;
        status = convert_inputs(r);
        if (!status) status = adopt_converted(r);
        if (status) return status;
    }
    r->p.dtype = type;
    status = convert_inputs(r);
    if (status) return status;
    say_what(r, v);
    status = compute(r, v);
    return status ? status : write_outputs(r);
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
