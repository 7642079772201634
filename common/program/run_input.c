/* run_input.c: reads the arrays of a run and converts them to the type that is computed in. */
#include <math.h>
#include <stdlib.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "program/run.h"

static int read_file(struct run *r, enum array i)
{
    struct npy *a = &r->in[i];
    const char *path = r->opt->file[i];
    const char *why = npy_read(path, array_list[i].number == INT32, NULL, a);
    if (why) return bad(r, "--%s: %s", array_list[i].name, why);
    if (a->was_f64) say(r, "%s: f64 rounded to f32\n", path);
    if (a->n_overflowed)
        say(r, "%s: %zu finite f64 values became infinite in f32\n", path, a->n_overflowed);
    if (a->was_big_endian) say(r, "%s: big-endian, bytes swapped\n", path);
    if (a->was_fortran) say(r, "%s: Fortran order, rearranged\n", path);
    return OK;
}

int run_read(struct run *r)
{
    int status = OK;
    for (int i = 0; i < N_ARRAYS && !status; i++)
        if (operations[r->p.op].inputs & HAS(i) && r->opt->file[i]) status = read_file(r, i);
    return status;
}

/* A copy of array i in dtype `to`; says so. */
static int convert(struct run *r, enum array i, enum dtype to)
{
    const struct npy *a = &r->in[i];
    const char *path = r->opt->file[i];
    void *copy = memory_new(size_times(a->count, dtype_size(to)));
    if (!copy) return bad(r, "%s: no memory for its copy in %s", path, dtype_name(to));
    r->converted[i] = copy;
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
    return OK;
}

int run_convert_inputs(struct run *r)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        const struct npy *a = &r->in[i];
        enum dtype to = array_dtype(&r->p, i);
        if (!a->data) continue;
        int status = a->is_int || a->dtype == to ? OK : convert(r, i, to);
        if (status) return status;
        array_set(&r->a, i, r->converted[i] ? r->converted[i] : a->data);
    }
    return OK;
}

void run_adopt_converted(struct run *r)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        if (!r->converted[i]) continue;
        free(r->in[i].data);
        r->in[i].data = r->converted[i];
        r->in[i].dtype = array_dtype(&r->p, i);
        r->converted[i] = NULL;
    }
}
