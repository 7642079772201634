/* five_steps.c: the library's functions: arguments are checked, a kernel is chosen, and the
 * stage's own function is called.  The CPU's kernels are those of stage 4, the GPU's those
 * of stages 3 and 5 (backend.h). */
#include "five_steps.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "library/backend.h"
#include "library/call.h"
#include "library/request.h"

/* ---- The arguments of attention. ---- */

/* NULL, or which array is missing or starts where it may not. */
static const char *pointer_fault(const void *array, size_t count, size_t alignment)
{
    if (count == 0) return NULL;
    if (!array) return "is NULL";
    if ((uintptr_t)array % alignment) return "starts at no multiple of its alignment";
    return NULL;
}

static int attention_sizes(const struct five_steps_attention_problem *p, struct request *r)
{
    const struct { const char *name; size_t value; } widths[] = {
        {"head_dim", p->head_dim}, {"head_dim_v", p->head_dim_v}};
    for (int i = 0; i < 2; i++)
        if (widths[i].value == 0)
            return fail(r, FIVE_STEPS_INVALID, "%s: is 0; give at least 1", widths[i].name);
    if (p->heads_kv ? p->heads_q % p->heads_kv != 0 : p->heads_q != 0)
        return fail(r, FIVE_STEPS_INVALID, "heads_q: %zu is no multiple of heads_kv %zu",
                    p->heads_q, p->heads_kv);
    if (!(p->scale - p->scale == 0))
        return fail(r, FIVE_STEPS_INVALID, "scale: is not finite");
    if (request_bytes(r) > PTRDIFF_MAX)
        return fail(r, FIVE_STEPS_INVALID, "sizes: the arrays have more bytes than memory "
                    "has addresses");
    return FIVE_STEPS_OK;
}

/* The request for `given`: its problem, checked, and its kernel.  *p becomes the problem in
 * the form of this version. */
static int attention_request(const struct five_steps_attention_problem *given,
                             struct five_steps_attention_problem *p, struct request *r)
{
    size_t oldest = offsetof(struct five_steps_attention_problem, window);
    int status = request_begin(r, given, given ? given->size : 0, oldest, sizeof *p);
    if (status) return status;
    memset(p, 0, sizeof *p);
    memcpy(p, given, given->size);
    status = request_place(r, p->device, p->type);
    if (status) return status;
    r->p.op = OP_ATTENTION;
    r->p.batch = p->batch, r->p.heads_q = p->heads_q, r->p.heads_kv = p->heads_kv;
    r->p.seqlen_q = p->seqlen_q, r->p.seqlen_k = p->seqlen_k;
    r->p.head_dim = p->head_dim, r->p.head_dim_v = p->head_dim_v;
    r->p.causal = p->causal != 0;
    r->p.has_bias = p->bias != NULL;
    r->p.scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)p->head_dim);
    r->isolate_v = p->isolate_v;
    status = request_call(r, p);
    if (!status) status = attention_sizes(p, r);
    if (status || request_is_empty(r)) return status;
    return request_choose(r, p->kernel);
}

static int attention_pointers(const struct five_steps_attention_problem *p, struct request *r)
{
    struct sizes n = problem_sizes(&r->p);
    size_t element = r->on_gpu ? 16 : dtype_size(r->type), word = sizeof(float);
    const struct { const char *name; const void *array; size_t count, alignment; } all[] = {
        {"q", p->q, n.q, element}, {"k", p->k, n.k, element}, {"v", p->v, n.v, element},
        {"bias", p->bias, p->bias ? n.bias : 0, word}, {"o", p->o, n.o, element},
        {"lse", p->lse, p->lse ? n.lse : 0, word}, {"sinks", p->sinks, n.sinks, word},
        {"cu_seqlens_q", p->cu_seqlens_q, n.cu_seqlens, word},
        {"cu_seqlens_k", p->cu_seqlens_k, n.cu_seqlens, word},
        {"page_table", p->page_table, n.pages, word}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *fault = pointer_fault(all[i].array, all[i].count, all[i].alignment);
        if (fault)
            return fail(r, FIVE_STEPS_INVALID, "%s: %s (%zu bytes)", all[i].name, fault,
                        all[i].alignment);
    }
    return r->on_gpu ? FIVE_STEPS_OK : request_indices(r, p);
}

int five_steps_attention_workspace(const struct five_steps_attention_problem *given,
                                   size_t *bytes, struct five_steps_error *error)
{
    struct five_steps_attention_problem p;
    struct request r = {.error = error};
    int status = attention_request(given, &p, &r);
    if (!status && !bytes) status = fail(&r, FIVE_STEPS_INVALID, "bytes: is NULL");
    if (!status) status = request_layout(&r, p.lse == NULL);
    if (!status) *bytes = r.layout.total;
    return status;
}

/* What runs inside the guard. */
static void attend(void *context)
{
    struct request *r = context;
    struct sizes n = problem_sizes(&r->p);
    if (request_has_no_keys(r))
        backend_no_keys(r->p.dtype, n.lse, r->p.head_dim_v, r->a.o, r->a.lse, r->a.stream);
    else
        variant_call(r->v, &r->p, &r->a);
}

int five_steps_attention(const struct five_steps_attention_problem *given, void *workspace,
                         size_t bytes, struct five_steps_error *error)
{
    struct five_steps_attention_problem p;
    struct request r = {.error = error};
    int status = attention_request(given, &p, &r);
    if (!status) status = attention_pointers(&p, &r);
    if (status || request_is_empty(&r)) return status;
    status = request_layout(&r, p.lse == NULL);
    if (!status) status = request_workspace(&r, workspace, bytes);
    if (status) return status;
    struct sizes n = problem_sizes(&r.p);
    r.a.q = request_input(&r, r.layout.q, p.q, n.q);
    r.a.k = request_input(&r, r.layout.k, p.k, n.k);
    r.a.v = request_input(&r, r.layout.v, p.v, n.v);
    r.a.bias = p.bias, r.a.sinks = p.sinks;
    r.a.cu_seqlens_q = p.cu_seqlens_q, r.a.cu_seqlens_k = p.cu_seqlens_k;
    r.a.page_table = p.page_table;
    r.a.o = request_output(&r, r.layout.o, p.o);
    r.a.lse = p.lse ? p.lse : (float *)(void *)(r.memory + r.layout.lse);
    r.a.stream = p.stream;
    status = backend_guard(attend, &r, error);
    if (!status) request_deliver_rows(&r, r.a.o, p.o);
    return status;
}

static void count_bytes(void *context)
{
    struct request *r = context;
    r->bytes_moved = r->v->cost ? r->v->cost(&r->p).bytes : 0;
}

int five_steps_attention_kernel(const struct five_steps_attention_problem *given,
                                const char **name, double *bytes_moved,
                                struct five_steps_error *error)
{
    struct five_steps_attention_problem p;
    struct request r = {.error = error};
    int status = attention_request(given, &p, &r);
    if (!status && !r.v) status = fail(&r, FIVE_STEPS_INVALID, "sizes: there are no elements");
    if (!status && bytes_moved) status = backend_guard(count_bytes, &r, error);
    if (status) return status;
    if (name) *name = r.v->name;
    if (bytes_moved) *bytes_moved = r.bytes_moved;
    return FIVE_STEPS_OK;
}

static void find_choice(void *context)
{
    struct request *r = context;
    r->choice = r->v->picks ? r->v->picks(&r->p) : "";
}

int five_steps_attention_choice(const struct five_steps_attention_problem *given,
                                const char **choice, struct five_steps_error *error)
{
    struct five_steps_attention_problem p;
    struct request r = {.error = error};
    int status = attention_request(given, &p, &r);
    if (!status && !r.v) status = fail(&r, FIVE_STEPS_INVALID, "sizes: there are no elements");
    if (!status && !choice) status = fail(&r, FIVE_STEPS_INVALID, "choice: is NULL");
    if (!status) status = backend_guard(find_choice, &r, error);
    if (!status) *choice = r.choice;
    return status;
}

/* ---- Softmax. ---- */

static int softmax_request(const struct five_steps_softmax_problem *p, struct request *r)
{
    int status = request_begin(r, p, p ? p->size : 0, sizeof *p, sizeof *p);
    if (!status) status = request_place(r, p->device, p->type);
    if (status) return status;
    r->p.op = p->log ? OP_LOGSOFTMAX : OP_SOFTMAX;
    r->p.rows = p->rows, r->p.cols = p->cols;
    if (request_bytes(r) > PTRDIFF_MAX)
        return fail(r, FIVE_STEPS_INVALID, "sizes: the arrays have more bytes than memory "
                    "has addresses");
    return request_is_empty(r) ? FIVE_STEPS_OK : request_choose(r, p->kernel);
}

int five_steps_softmax_workspace(const struct five_steps_softmax_problem *p, size_t *bytes,
                                 struct five_steps_error *error)
{
    struct request r = {.error = error};
    int status = softmax_request(p, &r);
    if (!status && !bytes) status = fail(&r, FIVE_STEPS_INVALID, "bytes: is NULL");
    if (!status) status = request_layout(&r, 0);
    if (!status) *bytes = r.layout.total;
    return status;
}

int five_steps_softmax(const struct five_steps_softmax_problem *p, void *workspace,
                       size_t bytes, struct five_steps_error *error)
{
    struct request r = {.error = error};
    int status = softmax_request(p, &r);
    if (status || request_is_empty(&r)) return status;
    size_t n = r.p.rows * r.p.cols, element = r.on_gpu ? 16 : dtype_size(r.type);
    const char *fault = pointer_fault(p->x, n, element), *name = fault ? "x" : "y";
    if (!fault) fault = pointer_fault(p->y, n, element);
    if (fault)
        return fail(&r, FIVE_STEPS_INVALID, "%s: %s (%zu bytes)", name, fault, element);
    status = request_layout(&r, 0);
    if (!status) status = request_workspace(&r, workspace, bytes);
    if (status) return status;
    r.a.x = request_input(&r, r.layout.q, p->x, n);
    r.a.y = request_output(&r, r.layout.o, p->y);
    r.a.stream = p->stream;
    status = backend_guard(attend, &r, error);
    if (!status) request_deliver(&r, r.a.y, p->y, n);
    return status;
}

/* ---- Merge. ---- */

struct merge_call { enum dtype type; const struct five_steps_merge_problem *p; };

static void merge_on_gpu(void *context)
{
    const struct merge_call *call = context;
    backend_merge(call->type, call->p);
}

int five_steps_merge(const struct five_steps_merge_problem *p, struct five_steps_error *error)
{
    struct request r = {.error = error};
    int status = request_begin(&r, p, p ? p->size : 0, sizeof *p, sizeof *p);
    if (!status) status = request_place(&r, p->device, p->type);
    if (status) return status;
    if (p->head_dim_v == 0)
        return fail(&r, FIVE_STEPS_INVALID, "head_dim_v: is 0; give at least 1");
    size_t n = size_times(p->rows, p->head_dim_v), element = dtype_size(r.type);
    if (size_times(n, 4) > PTRDIFF_MAX)
        return fail(&r, FIVE_STEPS_INVALID, "sizes: the arrays have more bytes than memory "
                    "has addresses");
    const struct { const char *name; const void *array; size_t alignment; } all[] = {
        {"o1", p->o1, element}, {"o2", p->o2, element}, {"o", p->o, element},
        {"lse1", p->lse1, sizeof(float)}, {"lse2", p->lse2, sizeof(float)},
        {"lse", p->lse, sizeof(float)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *fault = pointer_fault(all[i].array, n, all[i].alignment);
        if (fault)
            return fail(&r, FIVE_STEPS_INVALID, "%s: %s (%zu bytes)", all[i].name, fault,
                        all[i].alignment);
    }
    if (n == 0) return FIVE_STEPS_OK;
    if (r.on_gpu) {
        struct merge_call call = {r.type, p};
        return backend_guard(merge_on_gpu, &call, error);
    }
    merge_rows(r.type, p);
    return FIVE_STEPS_OK;
}

const char *five_steps_version(void) { return FIVE_STEPS_VERSION; }

const char *five_steps_built_with(void) { return backend_built_with(); }
