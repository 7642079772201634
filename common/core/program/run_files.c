/* run_files.c: the files of a run: reads its inputs, finds the problem that their shapes and types
 * describe, converts them to the type that is computed in, and writes its outputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
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

static int rows_shape(struct run *r)
{
    const struct npy *x = &r->in[ARRAY_X];
    if (x->ndim == 0)
        return bad_file(r, ARRAY_X, "a single number without dimensions; give [rows, cols]");
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
    for (int i = ARRAY_Q; i <= ARRAY_V; i++) {
        const struct npy *a = &r->in[i], *q = &r->in[ARRAY_Q];
        if (a->ndim < 2 || a->ndim > 4)
            return bad_file(r, i, "%s has %zu dimensions; give [seqlen, head_dim], [heads, "
                            "seqlen, head_dim] or [batch, heads, seqlen, head_dim]",
                            npy_describe(a), a->ndim);
        if (a->ndim != q->ndim)
            return bad_file(r, i, "%s has %zu dimensions, q %s has %zu; give them alike",
                            npy_describe(a), a->ndim, npy_describe(q), q->ndim);
    }
    return OK;
}

/* The prefix sums of --cu-seqlens-q or -k: 0 first, never falling, `total` last.  Sets the
 * number of sequences and the longest. */
static int packed_lengths(const struct run *r, enum array i, size_t total, size_t *batch,
                          size_t *longest)
{
    const struct npy *a = &r->in[i];
    const int32_t *sums = a->data;
    if (a->ndim != 1 || a->count == 0)
        return bad_file(r, i, "is %s; give one dimension, [sequences + 1]", npy_describe(a));
    if (sums[0] != 0)
        return bad_file(r, i, "begins with %d; give prefix sums, 0 first", sums[0]);
    *longest = 0;
    for (size_t b = 0; b + 1 < a->count; b++) {
        if (sums[b + 1] < sums[b])
            return bad_file(r, i, "falls from %d to %d at element %zu; give prefix sums",
                            sums[b], sums[b + 1], b + 1);
        size_t n = (size_t)(sums[b + 1] - sums[b]);
        if (n > *longest) *longest = n;
    }
    *batch = a->count - 1;
    if ((size_t)sums[*batch] == total) return OK;
    return bad_file(r, i, "ends with %d, but the sequences of --%c have %zu rows", sums[*batch],
                    i == ARRAY_CU_SEQLENS_Q ? 'q' : 'k', total);
}

/* q, k and v hold several sequences, one after another: p's lengths become the longest. */
static int packed_shape(struct run *r)
{
    struct problem *p = &r->p;
    const struct npy *q = &r->in[ARRAY_Q];
    size_t batch_k;
    if (!r->opt->file[ARRAY_CU_SEQLENS_Q]) return OK;
    if (q->ndim > 3)
        return bad_file(r, ARRAY_Q, "%s has 4 dimensions; packed sequences have [heads, total, "
                        "head_dim]", npy_describe(q));
    p->packed = 1;
    p->total_q = p->seqlen_q, p->total_k = p->seqlen_k;
    int status = packed_lengths(r, ARRAY_CU_SEQLENS_Q, p->total_q, &p->batch, &p->seqlen_q);
    if (!status)
        status = packed_lengths(r, ARRAY_CU_SEQLENS_K, p->total_k, &batch_k, &p->seqlen_k);
    if (status || batch_k == p->batch) return status;
    return bad_file(r, ARRAY_CU_SEQLENS_K, "has %zu sequences, --cu-seqlens-q has %zu; give them "
                    "alike", batch_k, p->batch);
}

/* The shape that array i has in a file; returns its rank.  An array of rows has as many dimensions
 * before its rows as q has, an array of results those of x. */
static size_t file_shape(const struct run *r, enum array i, size_t *shape)
{
    const struct npy *q = &r->in[on_heads(&r->p) ? ARRAY_Q : ARRAY_X];
    struct extents e = array_extents(&r->p, i);
    size_t skip = array_has_rows(i) ? 4 - q->ndim : 0, rank = e.rank - skip;
    memcpy(shape, e.size + skip, rank * sizeof *shape);
    if (on_heads(&r->p)) return rank;
    memcpy(shape, q->shape, q->ndim * sizeof *shape);
    if (e.rank == 2) shape[q->ndim - 1] = e.size[1];
    return q->ndim - (e.rank < 2);
}

/* Is the file of array i, whose shape follows from those of q, k and v, or of x, right? */
static int has_its_shape(const struct run *r, enum array i)
{
    const struct npy *a = &r->in[i];
    size_t shape[NPY_MAX_DIMS], rank = file_shape(r, i, shape);
    const enum dimension *d = array_list[i].dimensions;
    char names[160] = "", sizes[160] = "";
    if (a->ndim == rank && !memcmp(a->shape, shape, rank * sizeof *shape)) return OK;
    if (array_has_rows(i)) d += 4 - r->in[ARRAY_Q].ndim;
    for (size_t t = 0; t < rank; t++) {
        size_t n = strlen(names), m = strlen(sizes);
        snprintf(names + n, sizeof names - n, "%s%s", t ? ", " : "", dimension_name(d[t]));
        snprintf(sizes + m, sizeof sizes - m, "%s%zu", t ? ", " : "", shape[t]);
    }
    return bad_file(r, i, "is %s; give [%s] = [%s]", npy_describe(a), names, sizes);
}

static int attention_shape(struct run *r)
{
    const struct npy *q = &r->in[ARRAY_Q], *k = &r->in[ARRAY_K], *v = &r->in[ARRAY_V];
    int status = attention_ranks(r);
    if (status) return status;
    struct problem *p = &r->p;
    p->batch = dim(q, 3), p->heads_q = dim(q, 2), p->heads_kv = dim(k, 2);
    p->seqlen_q = dim(q, 1), p->seqlen_k = dim(k, 1);
    p->head_dim = dim(q, 0), p->head_dim_v = dim(v, 0);
    if (p->head_dim == 0 || p->head_dim_v == 0)
        return bad_file(r, p->head_dim ? ARRAY_V : ARRAY_Q, "head_dim is 0; give at least 1");
    for (int i = ARRAY_K; i <= ARRAY_V; i++) {
        status = has_its_shape(r, i);
        if (status) return status;
    }
    if (p->heads_kv == 0 ? p->heads_q != 0 : p->heads_q % p->heads_kv != 0)
        return bad_file(r, ARRAY_K, "%zu query heads cannot share %zu key-value heads; heads of "
                        "q must be a multiple of heads of k", p->heads_q, p->heads_kv);
    if (!r->opt->has_scale) p->scale = 1 / sqrtf((float)p->head_dim);
    p->has_bias = r->opt->file[ARRAY_BIAS] != NULL;
    p->has_sinks = r->opt->file[ARRAY_SINKS] != NULL;
    return packed_shape(r);
}

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
    return OK;
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
        for (size_t rank = file_shape(r, i, shape), t = 0; t < rank; t++)
            if (shape[t]) extent = size_times(extent, shape[t]);
        if (extent > widest) widest = extent;
    }
    if (widest <= PTRDIFF_MAX / 8 && bytes <= memory_available()) return OK;
    return bad_file(r, on_heads(&r->p) ? ARRAY_Q : ARRAY_X,
                    "the output does not fit into memory; give fewer rows");
}

int run_problem(struct run *r)
{
    int status = read_files(r);
    if (!status) status = on_heads(&r->p) ? attention_shape(r) : rows_shape(r);
    for (int i = 0; i < N_ARRAYS && !status; i++)
        if (array_role(&r->p, i) == INPUT && r->opt->file[i]) status = has_its_shape(r, i);
    if (!status) status = choose_type(r);
    return status ? status : outputs_fit(r);
}

/* Array i in dtype `to`, as if the file had held that type; says so. */
static int convert(struct run *r, enum array i, enum dtype to)
{
    struct npy *a = &r->in[i];
    const char *path = r->opt->file[i];
    void *copy = memory_new(size_times(a->count, dtype_size(to)));
    if (!copy) return bad(r, "%s: no memory for its copy in %s", path, dtype_name(to));
    size_t overflowed = 0;
    for (size_t e = 0; e < a->count; e++) {
        float x = dtypes[a->dtype].load(a->data, e);
        dtypes[to].store(copy, e, x);
        overflowed += isfinite(x) && !isfinite(dtypes[to].load(copy, e));
    }
    say(r, "%s: %s converted to %s\n", path, dtype_name(a->dtype), dtype_name(to));
    if (overflowed)
        say(r, "%s: %zu finite values became infinite in %s\n", path, overflowed,
            dtype_name(to));
    free(a->data);
    a->data = copy;
    a->dtype = to;
    return OK;
}

int run_convert_inputs(struct run *r, enum dtype dtype)
{
    r->p.dtype = dtype;
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

int run_open_outputs(struct run *r)
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

int run_write_outputs(struct run *r)
{
    float *wide[N_ARRAYS] = {NULL}; /* files hold float, whatever the output's type */
    for (int i = 0; i < N_ARRAYS; i++) {
        struct npy_writer *w = &r->writer[i];
        const struct output *out = &r->out.array[i];
        if (!is_written(r, i)) continue;
        w->data = out->data;
        if (out->dtype != F32) w->data = wide[i] = widen(out->data, out->dtype, out->n);
        w->ndim = file_shape(r, i, w->shape);
    }
    const char *why = npy_writer_commit(r->writer, N_ARRAYS);
    for (int i = 0; i < N_ARRAYS; i++) free(wide[i]);
    if (!why) return OK;
    bad(r, "%s", why);
    return FAILED;
}
