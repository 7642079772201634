/* request.c: checks that all functions of the library share, the choice of the kernel, the
 * workspace, and 16-bit numbers on the CPU, which computes in float. */
#include "library/request.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "library/backend.h"
#include "library/merge.h"
#include "problem/feature.h"
#include "problem/half.h"
#include "problem/layout.h"

enum { ALIGNMENT = 1024 };

/* The CPU's kernels: stage 4.  The last that supports a problem is taken. */
extern const struct variant tiled_loops, tiled_microkernel, tiled_all_cores;
static const struct variant *const on_cpu[] = {&tiled_loops, &tiled_microkernel,
                                               &tiled_all_cores};

int fail(struct request *r, int code, const char *format, ...)
{
    if (r->error) {
        va_list arguments;
        va_start(arguments, format);
        r->error->code = code;
        vsnprintf(r->error->message, sizeof r->error->message, format, arguments);
        va_end(arguments);
    }
    return code;
}

int request_begin(struct request *r, const void *problem, size_t size, size_t oldest,
                  size_t known)
{
    if (r->error) *r->error = (struct five_steps_error){.code = FIVE_STEPS_OK};
    if (!problem) return fail(r, FIVE_STEPS_INVALID, "problem: is NULL");
    if (size != known && size != oldest)
        return fail(r, FIVE_STEPS_INVALID, "size: is %zu, but the problem of this library "
                    "(version %s) has %zu bytes", size, FIVE_STEPS_VERSION, known);
    return FIVE_STEPS_OK;
}

int request_place(struct request *r, int device, int type)
{
    static const enum dtype types[] = {
        [FIVE_STEPS_F32] = F32, [FIVE_STEPS_F16] = F16, [FIVE_STEPS_BF16] = BF16};
    const char *why = NULL;
    if (type < 0 || type >= (int)(sizeof types / sizeof *types))
        return fail(r, FIVE_STEPS_INVALID, "type: %d is none of FIVE_STEPS_F32, "
                    "FIVE_STEPS_F16, FIVE_STEPS_BF16", type);
    if (device != FIVE_STEPS_CPU && device != FIVE_STEPS_GPU)
        return fail(r, FIVE_STEPS_INVALID, "device: %d is neither FIVE_STEPS_CPU nor "
                    "FIVE_STEPS_GPU", device);
    r->type = types[type];
    r->on_gpu = device == FIVE_STEPS_GPU;
    r->p.dtype = r->on_gpu ? r->type : F32;
    if (r->on_gpu && !(r->arch = backend_arch(&why)))
        return fail(r, FIVE_STEPS_NO_GPU, "device: no GPU: %s", why);
    return FIVE_STEPS_OK;
}

size_t request_bytes(const struct request *r)
{
    struct sizes n = problem_sizes(&r->p);
    const size_t all[] = {n.x,    n.y, n.q,   n.k,     n.v,          n.bias,
                          n.o,    n.lse, n.sinks, n.cu_seqlens, n.pages};
    size_t sum = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sum = size_plus(sum, size_times(all[i], 2 * sizeof(float)));
    return sum;
}

int request_is_empty(const struct request *r)
{
    struct sizes n = problem_sizes(&r->p);
    return n.y == 0 && n.o == 0;
}

/* ---- The kernel. ---- */

/* Why v does not do the problem, in `text`; 0 when it does. */
struct question { struct request *r; const struct variant *v; char text[160]; };

static void refuse(struct question *q, const char *format, const char *what)
{
    snprintf(q->text, sizeof q->text, format, what);
}

static void ask(void *context)
{
    struct question *q = context;
    const struct variant *v = q->v;
    const struct request *r = q->r;
    unsigned missing = problem_features(&r->p) & ~v->supports;
    if (!variant_does(v, r->p.op)) refuse(q, "%s", op_name(r->p.op));
    else if (!(v->types & TYPE(r->p.dtype))) refuse(q, "%s", dtype_name(r->p.dtype));
    else if (missing) refuse(q, "%s", feature_text(missing));
    else if (r->isolate_v && !v->isolates_v) refuse(q, "%s", "isolate_v");
    else if (v->only_arch && r->arch != v->only_arch)
        snprintf(q->text, sizeof q->text, "this GPU: it is sm_%d, the kernel for sm_%d",
                 r->arch, v->only_arch);
    else if (r->arch < v->least_arch)
        snprintf(q->text, sizeof q->text, "this GPU: it is sm_%d, the kernel for sm_%d and "
                 "newer", r->arch, v->least_arch);
    else {
        const char *why = v->refuses ? v->refuses(&r->p) : NULL;
        if (why) refuse(q, "%s", why);
    }
}

/* 0 with q->text empty: v supports the problem. */
static int supports(struct question *q, const struct variant *v)
{
    q->v = v;
    q->text[0] = 0;
    return backend_guard(ask, q, q->r->error);
}

/* The kernels of the operation on the device, *n of them. */
static const struct variant *const *kernels_of(const struct request *r, size_t *n)
{
    int attention = r->p.op == OP_ATTENTION;
    *n = sizeof on_cpu / sizeof *on_cpu;
    if (!r->on_gpu) return on_cpu;
    *n = attention ? n_backend_attention : n_backend_softmax;
    return attention ? backend_attention : backend_softmax;
}

static int choose_named(struct request *r, const char *name)
{
    size_t i = 0, n;
    const struct variant *const *all = kernels_of(r, &n);
    struct question q = {.r = r};
    while (i < n && !(all[i] && !strcmp(all[i]->name, name))) i++;
    if (i == n) return fail(r, FIVE_STEPS_INVALID, "kernel: there is no '%.80s' here", name);
    int status = supports(&q, all[i]);
    if (status) return status;
    if (q.text[0])
        return fail(r, FIVE_STEPS_UNSUPPORTED, "kernel %s does not support %s", name, q.text);
    r->v = all[i];
    return FIVE_STEPS_OK;
}

int request_choose(struct request *r, const char *name)
{
    size_t n;
    const struct variant *const *all = kernels_of(r, &n);
    struct question q = {.r = r};
    if (name) return choose_named(r, name);
    for (size_t i = n; i-- > 0;) {
        if (!all[i]) continue;
        int status = supports(&q, all[i]);
        if (status) return status;
        if (q.text[0]) continue;
        r->v = all[i];
        return FIVE_STEPS_OK;
    }
    /* Say what the first one for this type lacks: it supports the most. */
    char last[sizeof q.text];
    memcpy(last, q.text, sizeof last);
    for (size_t i = 0; i < n; i++)
        if (all[i] && all[i]->types & TYPE(r->p.dtype)) {
            int status = supports(&q, all[i]);
            return status ? status : fail(r, FIVE_STEPS_UNSUPPORTED, "no kernel supports "
                                          "this: %s does not support %s", all[i]->name,
                                          q.text);
        }
    return fail(r, FIVE_STEPS_UNSUPPORTED, "no kernel supports %s", last);
}

/* ---- The workspace. ---- */

static void ask_scratch(void *context)
{
    struct request *r = context;
    r->scratch = variant_scratch(r->v, &r->p);
}

/* Room for n floats at the end of the layout, on a multiple of 1024 bytes. */
static size_t place(struct layout *l, size_t n)
{
    size_t at = l->end;
    l->end = size_plus(at, size_times(size_plus(size_times(n, sizeof(float)), ALIGNMENT - 1)
                                      / ALIGNMENT, ALIGNMENT));
    return at;
}

int request_layout(struct request *r, int own_lse)
{
    struct sizes n = problem_sizes(&r->p);
    r->layout = (struct layout){.end = 0};
    r->scratch = 0;
    if (!r->v) return FIVE_STEPS_OK;
    int status = backend_guard(ask_scratch, r, r->error);
    if (status) return status;
    struct layout *l = &r->layout;
    place(l, size_plus(r->scratch, sizeof(float) - 1) / sizeof(float));
    if (own_lse) l->lse = place(l, n.lse);
    if (r->p.dtype != r->type) {
        l->q = place(l, size_plus(n.q, n.x));
        l->k = place(l, n.k), l->v = place(l, n.v), l->o = place(l, size_plus(n.o, n.y));
    }
    l->total = l->end ? size_plus(l->end, ALIGNMENT - 1) : 0;
    if (l->total <= PTRDIFF_MAX) return FIVE_STEPS_OK;
    return fail(r, FIVE_STEPS_INVALID, "sizes: the workspace has more bytes than memory has "
                "addresses");
}

int request_workspace(struct request *r, void *workspace, size_t bytes)
{
    if (bytes < r->layout.total || (r->layout.total && !workspace))
        return fail(r, FIVE_STEPS_WORKSPACE, "workspace: has %zu bytes, but %zu are needed",
                    workspace ? bytes : 0, r->layout.total);
    r->memory = (char *)workspace;
    if (r->layout.total) r->memory += -(uintptr_t)workspace % ALIGNMENT;
    r->a.workspace = r->layout.total ? r->memory : NULL;
    return FIVE_STEPS_OK;
}

/* ---- 16-bit numbers on the CPU. ---- */

static float load(enum dtype type, const void *array, size_t i)
{
    if (type == F32) return ((const float *)array)[i];
    uint16_t bits = ((const uint16_t *)array)[i];
    return type == F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

static void store(enum dtype type, void *array, size_t i, float x)
{
    if (type == F32) ((float *)array)[i] = x;
    else ((uint16_t *)array)[i] = type == F16 ? float_to_half(x) : float_to_bfloat(x);
}

const void *request_input(struct request *r, size_t at, const void *array, size_t n)
{
    if (r->p.dtype == r->type) return array;
    float *copy = (float *)(void *)(r->memory + at);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) copy[i] = load(r->type, array, i);
    return copy;
}

void *request_output(struct request *r, size_t at, void *array)
{
    return r->p.dtype == r->type ? array : r->memory + at;
}

void request_deliver(struct request *r, const void *from, void *to, size_t n)
{
    if (r->p.dtype == r->type) return;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) store(r->type, to, i, load(F32, from, i));
}

void request_deliver_rows(struct request *r, const void *from, void *to)
{
    if (r->p.dtype == r->type) return;
    size_t rows = problem_sizes(&r->p).lse, n = r->p.head_dim_v;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        size_t at = o_row_at(&r->p, row);
        for (size_t c = 0; c < n; c++) store(r->type, to, at + c, load(F32, from, at + c));
    }
}

void merge_rows(enum dtype type, const struct five_steps_merge_problem *p)
{
    size_t n = p->head_dim_v;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < p->rows; row++) {
        struct merge_weights w = merge_weights_of(p->lse1[row], p->lse2[row]);
        for (size_t i = row * n; i < (row + 1) * n; i++)
            store(type, p->o, i, merge_element(w, load(type, p->o1, i), load(type, p->o2, i)));
        p->lse[row] = w.lse;
    }
}
