/* run_output.c: the files of a run's outputs. */
#include <stdio.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "program/run.h"

/* Is array i an output with a file? */
static int is_written(const struct run *r, enum array i)
{
    return array_role(&r->p, i) == OUTPUT && r->opt->file[i];
}

int run_open_outputs(struct run *r)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        struct npy_writer *w = &r->writer[i];
        const char *path = r->opt->file[i];
        if (!is_written(r, i)) continue;
        const char *why = npy_writer_begin(w, path);
        if (why) return bad(r, "--%s: %s", array_list[i].name, why);
        for (int k = 0; k < i && w->temporary; k++)
            if (r->writer[k].target && !strcmp(w->target, r->writer[k].target))
                return bad(r, "--%s: %s is the file of the other output too; give two",
                           array_list[i].name, path);
    }
    return OK;
}

/* Three tiny files can ask for an output of any size: v of no keys may have any head_dim.
 * Without rows such an output is empty, but no reader takes its shape. */
int run_outputs_fit(const struct run *r)
{
    size_t bytes = 0, widest = 0;
    for (int i = 0; i < N_ARRAYS; i++) {
        size_t shape[NPY_MAX_DIMS], extent = 1;
        if (array_role(&r->p, i) != OUTPUT) continue;
        bytes = size_plus(bytes, array_bytes(&r->p, i));
        for (size_t rank = run_file_shape(r, i, shape), t = 0; t < rank; t++)
            if (shape[t]) extent = size_times(extent, shape[t]);
        if (extent > widest) widest = extent;
    }
    if (widest <= PTRDIFF_MAX / 8 && bytes <= memory_available()) return OK;
    return bad_file(r, on_heads(&r->p) ? ARRAY_Q : ARRAY_X,
                    "the output does not fit into memory; give fewer rows");
}

/* Output i in float, as it is written whatever type it has; NULL without memory. */
static const float *floats(struct run *r, enum array i)
{
    struct output *out = &r->out.array[i];
    if (out->dtype == F32 || out->n == 0) return out->data;
    float *wide = memory_new(size_times(out->n, sizeof *wide));
    if (!wide) return NULL;
    for (size_t e = 0; e < out->n; e++) wide[e] = dtypes[out->dtype].load(out->data, e);
    memory_free(r->converted[i]);
    return r->converted[i] = wide;
}

int run_write_outputs(struct run *r)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        struct npy_writer *w = &r->writer[i];
        if (!is_written(r, i)) continue;
        w->data = floats(r, i);
        if (!w->data && r->out.array[i].n) return bad(r, "no memory for the output in f32");
        w->ndim = run_file_shape(r, i, w->shape);
    }
    const char *why = npy_writer_commit(r->writer, N_ARRAYS);
    if (!why) return OK;
    fprintf(stderr, "%s: %s\n", r->stage->name, why);
    return FAILED;
}
