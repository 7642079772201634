/* five_steps.c: the library's functions: arguments are checked, a kernel is chosen, and the
 * stage's own function is called.  The CPU's kernels are those of stage 4, the GPU's those
 * of stages 3 and 5 (backend.h). */
#include "five_steps.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

#include "../../../05_flash_cuda/hopper/merge_weights.h"
#include "library/backend.h"
#include "library/request.h"
#include "problem/convert.h"
#include "problem/dtype.h"
#include "problem/layout.h"

/* A process that fork() made has none of the threads that OpenMP believes to have: it works with
 * one. */
static void after_fork(void) { omp_set_num_threads(1); }

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* ---- Attention, its gradients, and softmax. ---- */

/* The request for the caller's problem: the problem, checked, and its kernel. */
static int attention_request(struct request *r)
{
    static const size_t sizes[] = {
        sizeof(struct five_steps_attention_problem),
        offsetof(struct five_steps_attention_problem, dropout),         /* 1.8 */
        offsetof(struct five_steps_attention_problem, q_scale),         /* 1.7 */
        offsetof(struct five_steps_attention_problem, kv_type),         /* 1.6 */
        offsetof(struct five_steps_attention_problem, deterministic),   /* 1.4 */
        offsetof(struct five_steps_attention_problem, seqlens_k),       /* 1.3 */
        offsetof(struct five_steps_attention_problem, d_o),             /* 1.2 */
        offsetof(struct five_steps_attention_problem, bias_is_strided), /* 1.1 */
        offsetof(struct five_steps_attention_problem, window),          /* 1.0 */
        0};
    struct five_steps_attention_problem p;
    int status = describe_begin(r, sizes);
    if (status) return status;
    memset(&p, 0, sizeof p);
    memcpy(&p, r->problem, *(const size_t *)r->problem);
    status = describe_attention(r, &p);
    return status || request_is_empty(r) ? status : request_choose(r, p.kernel);
}

static int request_of(struct request *r)
{
    const struct five_steps_softmax_problem *p = r->problem;
    if (r->given.op != OP_SOFTMAX) return attention_request(r);
    int status = describe_begin(r, (const size_t[]){sizeof *p, 0});
    if (!status) status = describe_softmax(r, p);
    return status || request_is_empty(r) ? status : request_choose(r, p->kernel);
}

/* Answers how many bytes of workspace the problem needs. */
static int measure(void *context)
{
    struct request *r = context;
    int status = request_of(r);
    if (!status && !r->asked) status = fail(r, FIVE_STEPS_INVALID, "bytes: is NULL");
    if (!status && !request_is_empty(r)) status = check_overlap(r);
    if (!status) status = request_layout(r);
    if (!status) *r->asked = r->total;
    return status;
}

static int compute(void *context)
{
    struct request *r = context;
    int status = request_of(r);
    if (status || request_is_empty(r)) return status;
    status = check_arrays(r);
    return status ? status : request_run(r);
}

/* The two functions of an operation: how many bytes of workspace, and the results. */
#define FUNCTIONS(name, its_problem, operation)                                                          \
    int name##_workspace(const struct its_problem *p, size_t *bytes, struct five_steps_error *error)     \
    {                                                                                                    \
        struct request r = {.given.op = operation, .problem = p, .asked = bytes, .error = error};        \
        return backend_guard(measure, &r, error);                                                        \
    }                                                                                                    \
                                                                                                         \
    int name(const struct its_problem *p, void *workspace, size_t bytes, struct five_steps_error *error) \
    {                                                                                                    \
        struct request r = {.given.op = operation, .problem = p, .workspace = workspace,                 \
                            .bytes = bytes, .error = error};                                             \
        return backend_guard(compute, &r, error);                                                        \
    }
FUNCTIONS(five_steps_attention, five_steps_attention_problem, OP_ATTENTION)
FUNCTIONS(five_steps_attention_backward, five_steps_attention_problem, OP_BACKWARD)
FUNCTIONS(five_steps_softmax, five_steps_softmax_problem, OP_SOFTMAX)

/* The kernel's name, cost and choice, for who wants them. */
struct question { struct request r; const char **name, **choice; double *moved; };

static int answer(void *context)
{
    struct question *q = context;
    struct request *r = &q->r;
    int status = attention_request(r);
    if (status) return status;
    if (!r->v) return fail(r, FIVE_STEPS_INVALID, "sizes: there are no elements");
    if (q->name) *q->name = r->v->name;
    if (q->moved) *q->moved = r->v->cost ? r->v->cost(&r->p).bytes : 0;
    if (q->choice) *q->choice = r->v->picks ? r->v->picks(&r->p) : "";
    return FIVE_STEPS_OK;
}

int five_steps_attention_kernel(const struct five_steps_attention_problem *p, const char **name,
                                double *bytes_moved, struct five_steps_error *error)
{
    struct question q = {.r = {.given.op = OP_ATTENTION, .problem = p, .error = error},
                         .name = name, .moved = bytes_moved};
    return backend_guard(answer, &q, error);
}

int five_steps_attention_choice(const struct five_steps_attention_problem *p, const char **choice,
                                struct five_steps_error *error)
{
    struct question q = {.r = {.given.op = OP_ATTENTION, .problem = p, .error = error},
                         .choice = choice};
    int status = backend_guard(answer, &q, error);
    return status || choice ? status : fail(&q.r, FIVE_STEPS_INVALID, "choice: is NULL");
}

/* ---- Merge. ---- */

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

static int merge(void *context)
{
    struct request *r = context;
    const struct five_steps_merge_problem *p = r->problem;
    int status = describe_begin(r, (const size_t[]){sizeof *p, 0});
    if (status) return status;
    if (p->head_dim_v == 0)
        return fail(r, FIVE_STEPS_INVALID, "head_dim_v: is 0; give at least 1");
    size_t n = size_times(p->rows, p->head_dim_v), element = dtype_size(r->given.dtype);
    if (size_times(n, 4) > PTRDIFF_MAX)
        return fail(r, FIVE_STEPS_INVALID, "sizes: the arrays have more bytes than memory "
                    "has addresses");
    const struct { const char *name; const void *array; size_t alignment; } all[] = {
        {"o1", p->o1, element}, {"o2", p->o2, element}, {"o", p->o, element},
        {"lse1", p->lse1, sizeof(float)}, {"lse2", p->lse2, sizeof(float)},
        {"lse", p->lse, sizeof(float)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int fault = check_pointer(r, all[i].name, all[i].array, n, all[i].alignment);
        if (fault) return fault;
    }
    if (n) (r->on_gpu ? backend_merge : merge_on_cpu)(r->given.dtype, p);
    return FIVE_STEPS_OK;
}

int five_steps_merge(const struct five_steps_merge_problem *p, struct five_steps_error *error)
{
    struct request r = {.problem = p, .error = error};
    return backend_guard(merge, &r, error);
}

/* ---- Numbers as codes of 8 bits. ---- */

enum { WIDEST_ROW = 256 };

/* Row j of head bh as floats, less the mean row, rotated. */
static void prepare_row(enum dtype type, const struct five_steps_quantise_problem *p, size_t bh, size_t j,
                        const float *mean, float *x)
{
    size_t at = bh / p->heads * p->strides.batch + bh % p->heads * p->strides.head + j * p->strides.row;
    widen_row(type, (const char *)p->x + at * dtype_size(type), p->head_dim, x);
    for (size_t c = 0; mean && c < p->head_dim; c++) x[c] -= mean[c];
    if (p->rotate) rotate_row(x, p->head_dim);
}

static void quantise_on_cpu(enum dtype type, const struct five_steps_quantise_problem *p)
{
    const enum dtype to = p->to == FIVE_STEPS_INT8 ? INT8 : E4M3;
    const size_t d = p->head_dim;
#pragma omp parallel for schedule(static)
    for (size_t bh = 0; bh < p->batch * p->heads; bh++) {
        struct five_steps_quantise_problem plain = *p;
        float x[WIDEST_ROW], *mean = p->smooth ? p->mean + bh * d : NULL, most = 0;
        double sums[WIDEST_ROW] = {0};
        plain.rotate = 0;
        for (size_t j = 0; mean && j < p->rows; j++) {
            prepare_row(type, &plain, bh, j, NULL, x);
            for (size_t c = 0; c < d; c++) sums[c] += (double)x[c];
        }
        for (size_t c = 0; mean && c < d; c++) mean[c] = (float)(sums[c] / (double)p->rows);
        for (size_t j = 0; j < p->rows; j++) {
            prepare_row(type, p, bh, j, mean, x);
            for (size_t c = 0; c < d; c++) most = fmaxf(most, fabsf(x[c]));
        }
        uint32_t bits = f32_bits(most / dtypes[to].largest);
        if (to == E4M3) bits = (bits + 0x7fffffu) & 0xff800000u; /* up to a power of two */
        p->scale[bh] = f32_from_bits(bits);
        for (size_t j = 0; j < p->rows; j++) {
            prepare_row(type, p, bh, j, mean, x);
            for (size_t c = 0; c < d; c++)
                dtypes[to].store(p->codes, (bh * p->rows + j) * d + c, most > 0 ? x[c] / p->scale[bh] : 0);
        }
    }
}

static int quantise_call(void *context)
{
    struct request *r = context;
    const struct five_steps_quantise_problem *p = r->problem;
    int status = describe_begin(r, (const size_t[]){sizeof *p, 0});
    if (status) return status;
    if (p->to != FIVE_STEPS_E4M3 && p->to != FIVE_STEPS_INT8)
        return fail(r, FIVE_STEPS_INVALID, "to: %d is none of FIVE_STEPS_E4M3, FIVE_STEPS_INT8", p->to);
    if (p->head_dim < 32 || p->head_dim > WIDEST_ROW || p->head_dim & (p->head_dim - 1))
        return fail(r, FIVE_STEPS_UNSUPPORTED, "head_dim: %zu; give 32, 64, 128 or 256", p->head_dim);
    size_t heads = size_times(p->batch, p->heads), n = size_times(size_times(heads, p->rows), p->head_dim);
    if (size_times(n, 4) > PTRDIFF_MAX)
        return fail(r, FIVE_STEPS_INVALID, "sizes: the arrays have more bytes than memory has addresses");
    if (r->on_gpu && ((p->batch > 1 && p->strides.batch % 8) || (p->heads > 1 && p->strides.head % 8) ||
                      (p->rows > 1 && p->strides.row % 8)))
        return fail(r, FIVE_STEPS_UNSUPPORTED, "strides: no multiples of 8");
    size_t element = dtype_size(r->given.dtype);
    status = check_pointer(r, "x", p->x, n, r->on_gpu ? 16 : element);
    if (!status) status = check_pointer(r, "codes", p->codes, n, r->on_gpu ? 16 : 1);
    if (!status) status = check_pointer(r, "scale", p->scale, n, sizeof(float));
    if (!status && p->smooth) status = check_pointer(r, "mean", p->mean, n, sizeof(float));
    if (status || !n) return status;
    const struct strides s = strides_or((struct strides){p->strides.batch, p->strides.head, p->strides.row},
                                        p->heads, p->rows, p->head_dim);
    struct five_steps_quantise_problem strided = *p;
    strided.strides = (struct five_steps_strides){s.batch, s.head, s.row};
    (r->on_gpu ? backend_quantise : quantise_on_cpu)(r->given.dtype, &strided);
    return FIVE_STEPS_OK;
}

int five_steps_quantise(const struct five_steps_quantise_problem *p, struct five_steps_error *error)
{
    struct request r = {.problem = p, .error = error};
    return backend_guard(quantise_call, &r, error);
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
