/* outputs.c: outputs that betray what was not written or was written outside. */
#include "verification/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"

enum { GUARD_BYTE = 0xa5 };

static struct output output_new(size_t n, enum dtype dtype)
{
    struct output out = {.n = n, .dtype = dtype};
    if (n == 0) return out;
    size_t bytes = size_plus(size_times(n, dtype_size(dtype)), 2 * GUARD);
    out.frame = memory_new(bytes);
    if (!out.frame) {
        fprintf(stderr, "no memory for an output of %zu bytes\n", bytes);
        exit(1);
    }
    out.data = out.frame + GUARD;
    memset(out.frame, GUARD_BYTE, GUARD);
    memset(out.frame + bytes - GUARD, GUARD_BYTE, GUARD);
    for (size_t i = 0; i < n; i++) dtype_set_bits(dtype, out.data, i, dtypes[dtype].filling);
    return out;
}

struct outputs outputs_new(const struct problem *p)
{
    struct outputs out = {{{0}}};
    for (int i = 0; i < N_ARRAYS; i++)
        if (array_role(p, i) == OUTPUT)
            out.array[i] = output_new(array_count(p, i), array_dtype(p, i));
    return out;
}

void outputs_bind(const struct outputs *out, struct arrays *a)
{
    for (int i = 0; i < N_ARRAYS; i++)
        if (out->array[i].data) array_set(a, i, out->array[i].data);
}

void outputs_free(struct outputs *out)
{
    for (int i = 0; i < N_ARRAYS; i++) memory_free(out->array[i].frame);
    memset(out, 0, sizeof *out);
}

int outputs_equal(const struct outputs *a, const struct outputs *b)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        const struct output *x = &a->array[i], *y = &b->array[i];
        if (x->n != y->n) return 0;
        if (x->n && memcmp(x->data, y->data, x->n * dtype_size(x->dtype))) return 0;
    }
    return 1;
}

const char *output_damage(const struct output *out)
{
    const unsigned char *after = out->frame + GUARD + out->n * dtype_size(out->dtype);
    for (size_t i = 0; i < GUARD; i++) {
        if (out->frame[i] != GUARD_BYTE) return "written before the first element";
        if (after[i] != GUARD_BYTE) return "written behind the last element";
    }
    return NULL;
}

int output_untouched(const struct output *out, size_t i)
{
    return dtype_bits(out->dtype, out->data, i) == dtypes[out->dtype].filling;
}
