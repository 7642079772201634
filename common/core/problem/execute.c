/* execute.c: run a variant on arrays that lie in host memory, wherever the variant lives. */
#include "problem/execute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/layout.h"
#include "problem/variant.h"

/* --- Outputs. --- */

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

/* --- The execution. --- */

/* An array's copy on the GPU, of an output with GUARD bytes on both sides. */
struct mirror { char *host, *device; size_t bytes; };

struct execution {
    const struct variant *v;
    struct problem p;
    struct arrays a;                 /* where the variant works */
    struct mirror mirror[N_ARRAYS];
    int on_gpu;
};

/* Moves array i to the GPU.  NULL, or why it could not be done. */
static const char *upload(struct execution *e, enum array i)
{
    enum role role = array_role(&e->p, i);
    size_t guard = role == OUTPUT ? GUARD : 0;
    struct mirror *m = &e->mirror[i];
    char *given = array_of(&e->a, i);
    if (!given) return NULL;
    m->host = array_start(&e->p, &e->a, i);
    size_t before = (size_t)(given - m->host);
    array_set(&e->a, i, NULL);
    if (role == ABSENT) return NULL;
    m->host -= guard;
    m->bytes = size_plus(array_bytes(&e->p, i), 2 * guard);
    m->device = gpu_alloc(m->bytes ? m->bytes : 1);
    if (!m->device)
        return role == INPUT ? "the inputs do not fit into the GPU's memory"
                             : "the outputs do not fit into the GPU's memory";
    gpu_upload(m->device, m->host, m->bytes);
    array_set(&e->a, i, m->device + guard + before);
    return NULL;
}

struct execution *execution_new(const struct variant *v, const struct problem *p,
                                const struct arrays *host, const char **why)
{
    struct execution *e = xcalloc(1, sizeof *e);
    *e = (struct execution){.v = v, .p = *p, .a = *host, .on_gpu = v->device == ON_GPU};
    *why = NULL;
    for (int i = 0; e->on_gpu && i < N_ARRAYS && !*why; i++) *why = upload(e, i);
    size_t scratch = variant_scratch(v, p);
    e->a.workspace = NULL;
    if (!*why && scratch) {
        e->a.workspace = e->on_gpu ? gpu_alloc(scratch) : memory_new(scratch);
        if (!e->a.workspace) {
            static char text[160];
            snprintf(text, sizeof text, "its scratch of %.3g GB does not fit into the %s memory",
                     (double)scratch / 1e9, e->on_gpu ? "GPU's" : "machine's");
            *why = text;
        }
    }
    if (*why) {
        execution_free(e);
        return NULL;
    }
    return e;
}

void execution_run_nowait(void *e_)
{
    struct execution *e = e_;
    variant_call(e->v, &e->p, &e->a);
}

void execution_run(struct execution *e)
{
    execution_run_nowait(e);
    if (e->on_gpu) gpu_wait();
}

void execution_fetch(struct execution *e)
{
    for (int i = 0; i < N_ARRAYS; i++) {
        const struct mirror *m = &e->mirror[i];
        if (m->device && array_role(&e->p, i) == OUTPUT)
            gpu_download(m->host, m->device, m->bytes);
    }
}

void execution_free(struct execution *e)
{
    if (!e) return;
    for (int i = 0; i < N_ARRAYS; i++)
        if (e->mirror[i].device) gpu_free(e->mirror[i].device);
    if (e->a.workspace) {
        if (e->on_gpu) gpu_free(e->a.workspace);
        else memory_free(e->a.workspace);
    }
    free(e);
}

/* Without keys there is nothing to launch: o = 0, lse is the sink, or -INFINITY. */
static void no_keys(const struct problem *p, const struct arrays *host)
{
    size_t rows = stored_queries(p);
    memset(host->o, 0, array_bytes(p, ARRAY_O));
    for (size_t i = 0; i < array_count(p, ARRAY_LSE); i++)
        host->lse[i] = p->has_sinks ? host->sinks[i / rows % p->heads_q] : -INFINITY;
}

const char *execution_once(const struct variant *v, const struct problem *p,
                           const struct arrays *host)
{
    const char *why = NULL;
    if (p->op == OP_ATTENTION && p->seqlen_k == 0) return no_keys(p, host), why;
    struct execution *e = execution_new(v, p, host, &why);
    if (!e) return why;
    execution_run(e);
    execution_fetch(e);
    execution_free(e);
    return NULL;
}
