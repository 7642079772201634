/* run_output.c: the memory and the files of a run's outputs. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/execute.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "program/run.h"

int run_open_output(struct run *r, const char *option, const char *path)
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

/* Bytes of the first output (y or o) and of lse; SIZE_MAX when they are no size_t. */
static size_t output_bytes(const struct run *r, int which)
{
    struct sizes n = problem_sizes(&r->p);
    if (which) return size_times(n.lse, sizeof(float));
    return size_times(on_heads(&r->p) ? n.o : n.y, dtype_size(r->p.dtype));
}

/* Three tiny files can ask for an output of any size: v of no keys may have any head_dim.
 * Without rows such an output is empty, but no reader takes its shape. */
int run_outputs_fit(const struct run *r)
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

int run_allocate_outputs(struct run *r)
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

int run_write_outputs(struct run *r)
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
