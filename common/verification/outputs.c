/* outputs.c: outputs that betray what was not written or was written outside. */
#include "verification/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/operation.h"

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
    return out;
}

static void output_fill(struct output *out)
{
    if (!out->data) return;
    size_t bytes = out->n * dtype_size(out->dtype);
    memset(out->frame, GUARD_BYTE, GUARD);
    memset(out->frame + GUARD + bytes, GUARD_BYTE, GUARD);
    for (size_t i = 0; i < out->n; i++)
        dtype_set_bits(out->dtype, out->data, i, dtypes[out->dtype].filling);
}

struct outputs outputs_new(const struct problem *p)
{
    struct sizes n = problem_sizes(p);
    struct outputs out = {output_new(n.y, p->dtype), output_new(n.o, p->dtype),
                          output_new(n.lse, F32)};
    outputs_fill(&out);
    return out;
}

void outputs_fill(struct outputs *out)
{
    output_fill(&out->y);
    output_fill(&out->o);
    output_fill(&out->lse);
}

void outputs_fill_with(struct outputs *out, float x)
{
    struct output *const all[] = {&out->y, &out->o, &out->lse};
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; all[k]->data && i < all[k]->n; i++)
            dtypes[all[k]->dtype].store(all[k]->data, i, x);
}

void outputs_bind(const struct outputs *out, struct arrays *a)
{
    a->y = out->y.data;
    a->o = out->o.data;
    a->lse = out->lse.data;
}

void outputs_free(struct outputs *out)
{
    memory_free(out->y.frame);
    memory_free(out->o.frame);
    memory_free(out->lse.frame);
    memset(out, 0, sizeof *out);
}

static int output_equal(const struct output *a, const struct output *b)
{
    return a->n == b->n &&
           (!a->n || !memcmp(a->data, b->data, a->n * dtype_size(a->dtype)));
}

int outputs_equal(const struct outputs *a, const struct outputs *b)
{
    return output_equal(&a->y, &b->y) && output_equal(&a->o, &b->o) &&
           output_equal(&a->lse, &b->lse);
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

double output_element(const struct output *out, size_t i, int *untouched)
{
    uint32_t bits = dtype_bits(out->dtype, out->data, i);
    *untouched = bits == dtypes[out->dtype].filling;
    return dtypes[out->dtype].load(out->data, i);
}
