/* run_input.c: reads the arrays of a run and converts them to the type that is computed in. */
#include <math.h>
#include <stdlib.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "program/run.h"

int run_read(struct run *r, int which, const char *option, const char *path)
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

int run_read_ints(struct run *r, int which, const char *option, const char *path)
{
    if (!path) return OK;
    const char *why = npy_read_ints(path, &r->in[which]);
    r->path[which] = path;
    return why ? bad(r, "%s: %s", option, why) : OK;
}

/* Array `which` in dtype `to`: the file's own data, or a converted copy (and says so). */
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

int run_convert_inputs(struct run *r)
{
    const void *data[N_FILES] = {NULL};
    int attention = on_heads(&r->p), last = attention ? SINKS : X;
    for (int i = X; i <= last; i++) {
        if (!r->path[i]) continue;
        int status = convert(r, i, i >= BIAS ? F32 : r->p.dtype, &data[i]);
        if (status) return status;
    }
    if (!attention) {
        r->a.x = data[X];
        return OK;
    }
    r->a.q = data[Q], r->a.k = data[K], r->a.v = data[V];
    r->a.bias = data[BIAS], r->a.sinks = data[SINKS];
    r->a.cu_seqlens_q = r->in[CU_SEQLENS_Q].data;
    r->a.cu_seqlens_k = r->in[CU_SEQLENS_K].data;
    return OK;
}

/* Makes the converted copies the inputs, as if the files had held that type. */
int run_adopt_converted(struct run *r)
{
    for (int i = X; i <= SINKS; i++) {
        if (!r->converted[i]) continue;
        free(r->in[i].data);
        r->in[i].data = r->converted[i];
        r->in[i].dtype = i >= BIAS ? F32 : r->p.dtype;
        r->converted[i] = NULL;
    }
    return OK;
}
