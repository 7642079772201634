/* five_steps.c: the library's functions: arguments are checked, a kernel is chosen, and the
 * stage's own function is called.  The CPU's kernels are those of stage 4, the GPU's those
 * of stages 3 and 5 (backend.h). */
#include "five_steps.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

#include "library/backend.h"
#include "library/merge.h"
#include "library/request.h"

/* A process that fork() made has none of the threads that OpenMP believes to have: it works with
 * one. */
static void after_fork(void) { omp_set_num_threads(1); }

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* The size that the query gives. */
static int workspace_of(struct request *r, int status, size_t *bytes)
{
    if (!status && !bytes) status = fail(r, FIVE_STEPS_INVALID, "bytes: is NULL");
    if (!status) status = request_layout(r);
    if (!status) *bytes = r->total;
    return status;
}

static int computed(struct request *r, int status, void *workspace, size_t bytes)
{
    if (status || request_is_empty(r)) return status;
    status = check_arrays(r);
    return status ? status : request_run(r, workspace, bytes);
}

/* ---- Attention and its gradients. ---- */

/* The request for `given`: its problem, checked, and its kernel. */
static int attention_request(enum op op, const struct five_steps_attention_problem *given,
                             struct request *r)
{
    static const size_t sizes[] = {
        sizeof(struct five_steps_attention_problem),
        offsetof(struct five_steps_attention_problem, seqlens_k),       /* 1.3 */
        offsetof(struct five_steps_attention_problem, d_o),             /* 1.2 */
        offsetof(struct five_steps_attention_problem, bias_is_strided), /* 1.1 */
        offsetof(struct five_steps_attention_problem, window),          /* 1.0 */
        0};
    struct five_steps_attention_problem p;
    int status = describe_begin(r, given, given ? given->size : 0, sizes);
    if (status) return status;
    memset(&p, 0, sizeof p);
    memcpy(&p, given, given->size);
    r->given.op = op;
    status = describe_place(r, p.device, p.type);
    if (!status) status = describe_attention(r, &p);
    return status || request_is_empty(r) ? status : request_choose(r, p.kernel);
}

int five_steps_attention_workspace(const struct five_steps_attention_problem *p, size_t *bytes,
                                   struct five_steps_error *error)
{
    struct request r = {.error = error};
    return workspace_of(&r, attention_request(OP_ATTENTION, p, &r), bytes);
}

int five_steps_attention_backward_workspace(const struct five_steps_attention_problem *p,
                                            size_t *bytes, struct five_steps_error *error)
{
    struct request r = {.error = error};
    return workspace_of(&r, attention_request(OP_BACKWARD, p, &r), bytes);
}

int five_steps_attention(const struct five_steps_attention_problem *p, void *workspace,
                         size_t bytes, struct five_steps_error *error)
{
    struct request r = {.error = error};
    return computed(&r, attention_request(OP_ATTENTION, p, &r), workspace, bytes);
}

int five_steps_attention_backward(const struct five_steps_attention_problem *p, void *workspace,
                                  size_t bytes, struct five_steps_error *error)
{
    struct request r = {.error = error};
    return computed(&r, attention_request(OP_BACKWARD, p, &r), workspace, bytes);
}

/* The chosen kernel's own words, inside the guard. */
static void ask_kernel(void *context)
{
    struct request *r = context;
    r->bytes_moved = r->v->cost ? r->v->cost(&r->p).bytes : 0;
    r->choice = r->v->picks ? r->v->picks(&r->p) : "";
}

static int kernel_of(const struct five_steps_attention_problem *p, struct request *r)
{
    int status = attention_request(OP_ATTENTION, p, r);
    if (status) return status;
    if (!r->v) return fail(r, FIVE_STEPS_INVALID, "sizes: there are no elements");
    return backend_guard(ask_kernel, r, r->error);
}

int five_steps_attention_kernel(const struct five_steps_attention_problem *p, const char **name,
                                double *bytes_moved, struct five_steps_error *error)
{
    struct request r = {.error = error};
    int status = kernel_of(p, &r);
    if (!status && name) *name = r.v->name;
    if (!status && bytes_moved) *bytes_moved = r.bytes_moved;
    return status;
}

int five_steps_attention_choice(const struct five_steps_attention_problem *p, const char **choice,
                                struct five_steps_error *error)
{
    struct request r = {.error = error};
    int status = kernel_of(p, &r);
    if (!status && !choice) status = fail(&r, FIVE_STEPS_INVALID, "choice: is NULL");
    if (!status) *choice = r.choice;
    return status;
}

/* ---- Softmax. ---- */

static int softmax_request(const struct five_steps_softmax_problem *p, struct request *r)
{
    static const size_t sizes[] = {sizeof *p, 0};
    int status = describe_begin(r, p, p ? p->size : 0, sizes);
    if (!status) status = describe_place(r, p->device, p->type);
    if (!status) status = describe_softmax(r, p);
    return status || request_is_empty(r) ? status : request_choose(r, p->kernel);
}

int five_steps_softmax_workspace(const struct five_steps_softmax_problem *p, size_t *bytes,
                                 struct five_steps_error *error)
{
    struct request r = {.error = error};
    return workspace_of(&r, softmax_request(p, &r), bytes);
}

int five_steps_softmax(const struct five_steps_softmax_problem *p, void *workspace,
                       size_t bytes, struct five_steps_error *error)
{
    struct request r = {.error = error};
    return computed(&r, softmax_request(p, &r), workspace, bytes);
}

/* ---- Merge. ---- */

struct merge_call { enum dtype type; const struct five_steps_merge_problem *p; };

static void merge_on_cpu(enum dtype type, const struct five_steps_merge_problem *p)
{
    size_t n = p->head_dim_v;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < p->rows; row++) {
        struct merge_weights w = merge_weights_of(p->lse1[row], p->lse2[row]);
        for (size_t i = row * n; i < (row + 1) * n; i++)
            store_number(type, p->o, i, merge_element(w, load_number(type, p->o1, i),
                                                      load_number(type, p->o2, i)));
        p->lse[row] = w.lse;
    }
}

static void merge_on_gpu(void *context)
{
    const struct merge_call *call = context;
    backend_merge(call->type, call->p);
}

int five_steps_merge(const struct five_steps_merge_problem *p, struct five_steps_error *error)
{
    struct request r = {.error = error};
    static const size_t sizes[] = {sizeof *p, 0};
    int status = describe_begin(&r, p, p ? p->size : 0, sizes);
    if (!status) status = describe_place(&r, p->device, p->type);
    if (status) return status;
    if (p->head_dim_v == 0)
        return fail(&r, FIVE_STEPS_INVALID, "head_dim_v: is 0; give at least 1");
    size_t n = size_times(p->rows, p->head_dim_v), element = dtype_size(r.given.dtype);
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
        struct merge_call call = {r.given.dtype, p};
        return backend_guard(merge_on_gpu, &call, error);
    }
    merge_on_cpu(r.given.dtype, p);
    return FIVE_STEPS_OK;
}

const char *five_steps_version(void) { return FIVE_STEPS_VERSION; }

const char *five_steps_built_with(void) { return backend_built_with(); }

#ifdef __x86_64__
int five_steps_cpu_level(void)
{
    int v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    int v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    return 1 + v2 + v3 + v4;
}
#else
int five_steps_cpu_level(void) { return 0; }
#endif
