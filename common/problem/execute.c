/* execute.c: run a variant on arrays that lie in host memory, wherever the variant lives. */
#include "problem/execute.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu.h"
#include "problem/feature.h"
#include "problem/host_memory.h"
#include "problem/part.h"
#include "problem/variant.h"

enum { N_INPUTS = 13, N_OUTPUTS = 3 };

/* An array on the host and its copy on the GPU.  Outputs carry GUARD bytes on both sides. */
struct mirror {
    void *host;      /* first element, or NULL */
    size_t bytes;
    char *device;    /* start of the device allocation: the front guard of an output */
};

struct execution {
    const struct variant *v;
    struct problem p;
    struct arrays a;                 /* where the variant works */
    struct mirror out[N_OUTPUTS];
    char *device[N_INPUTS + 1];
    int n_device;
    int on_gpu;
};

/* Uploads bytes from h; NULL and *why set when the GPU is full. */
static void *upload(struct execution *e, const void *h, size_t bytes, const char **why)
{
    if (!h || *why) return NULL;
    char *d = gpu_alloc(bytes ? bytes : 1);
    if (!d) {
        *why = "the inputs do not fit into the GPU's memory";
        return NULL;
    }
    gpu_upload(d, h, bytes);
    e->device[e->n_device++] = d;
    return d;
}

static void *upload_output(struct mirror *m, void *h, size_t bytes, const char **why)
{
    if (!h || *why) return NULL;
    m->device = gpu_alloc(size_plus(bytes, 2 * GUARD));
    if (!m->device) {
        *why = "the outputs do not fit into the GPU's memory";
        return NULL;
    }
    m->host = h;
    m->bytes = bytes;
    gpu_upload(m->device, (const char *)h - GUARD, bytes + 2 * GUARD);
    return m->device + GUARD;
}

static void bind_gpu(struct execution *e, const struct arrays *h, const char **why)
{
    struct sizes n = problem_sizes(&e->p);
    size_t size = dtype_size(e->p.dtype);
    struct arrays *a = &e->a;
    a->x = upload(e, h->x, size_times(n.x, size), why);
    a->w = upload(e, h->w, size_times(n.w, size), why);
    a->q = upload(e, h->q, size_times(n.q, size), why);
    a->k = upload(e, h->k, size_times(n.k, size), why);
    a->v = upload(e, h->v, size_times(n.v, size), why);
    a->bias = upload(e, h->bias, size_times(n.bias, sizeof(float)), why);
    a->sinks = upload(e, h->sinks, size_times(n.sinks, sizeof(float)), why);
    a->cu_seqlens_q = upload(e, h->cu_seqlens_q, size_times(n.cu_seqlens, sizeof(int32_t)), why);
    a->cu_seqlens_k = upload(e, h->cu_seqlens_k, size_times(n.cu_seqlens, sizeof(int32_t)), why);
    a->page_table = upload(e, h->page_table, size_times(n.pages, sizeof(int32_t)), why);
    a->index = upload(e, h->index, size_times(n.index, sizeof(size_t)), why);
    a->k_new = upload(e, h->k_new, size_times(n.k_new, size), why);
    a->v_new = upload(e, h->v_new, size_times(n.v_new, size), why);
    a->y = upload_output(&e->out[0], h->y, size_times(n.y, size), why);
    a->o = upload_output(&e->out[1], h->o, size_times(n.o, size), why);
    a->lse = upload_output(&e->out[2], h->lse, size_times(n.lse, sizeof(float)), why);
}

struct execution *execution_new(const struct variant *v, const struct problem *p,
                                const struct arrays *host, const char **why)
{
    struct execution *e = calloc(1, sizeof *e);
    *why = NULL;
    if (!e) {
        *why = "no memory";
        return NULL;
    }
    e->v = v;
    e->p = *p;
    e->a = *host;
    e->on_gpu = v->device == ON_GPU;
    if (e->on_gpu) bind_gpu(e, host, why);
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

void execution_run(struct execution *e)
{
    variant_call(e->v, &e->p, &e->a);
    if (e->on_gpu) gpu_wait();
}

void execution_run_nowait(void *e_)
{
    struct execution *e = e_;
    variant_call(e->v, &e->p, &e->a);
}

void execution_fetch(struct execution *e)
{
    for (int i = 0; i < N_OUTPUTS; i++)
        if (e->out[i].device)
            gpu_download((char *)e->out[i].host - GUARD, e->out[i].device,
                         e->out[i].bytes + 2 * GUARD);
}

void execution_free(struct execution *e)
{
    if (!e) return;
    for (int i = 0; i < e->n_device; i++) gpu_free(e->device[i]);
    for (int i = 0; i < N_OUTPUTS; i++)
        if (e->out[i].device) gpu_free(e->out[i].device);
    if (e->a.workspace) {
        if (e->on_gpu) gpu_free(e->a.workspace);
        else memory_free(e->a.workspace);
    }
    free(e);
}

int execute_in_parts(const struct variant *v, const struct problem *p)
{
    return (problem_features(p) & ~v->supports & (LAYOUTS | WITH_SINKS)) != 0;
}

static const char *execute_parts(const struct variant *v, const struct problem *p,
                                 const struct arrays *host)
{
    const char *why = NULL;
    for (size_t b = 0; b < p->batch && !why; b++) {
        struct part part;
        why = part_new(&part, p, host, b);
        if (why) break;
        part.p.has_sinks = 0;
        if (part.s.seqlen_q) {
            if (part.s.seqlen_k) why = execute(v, &part.p, &part.a);
            else part_without_keys(&part);
            if (p->has_sinks) part_add_sinks(&part);
            part_deliver(&part, p, host);
        }
        part_free(&part);
    }
    return why;
}

const char *execute(const struct variant *v, const struct problem *p,
                    const struct arrays *host)
{
    const char *why;
    if (execute_in_parts(v, p)) return execute_parts(v, p, host);
    struct execution *e = execution_new(v, p, host, &why);
    if (!e) return why;
    execution_run(e);
    execution_fetch(e);
    execution_free(e);
    return NULL;
}
