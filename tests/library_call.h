/* library_call.h: problems of the suite as calls of the C library.  FIVE_STEPS_GPU is the GPU's code
 * executed on the CPU: the same kernels, launchers and checks. */
#pragma once

#include <criterion/criterion.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "attention_problem.h"
#include "library/five_steps.h"
#include "problem/dtype.h"
#include "problem/feature.h"

enum { CPU = FIVE_STEPS_CPU, GPU = FIVE_STEPS_GPU };

static inline struct five_steps_strides strides_as(struct strides s)
{
    return (struct five_steps_strides){s.batch, s.head, s.row};
}

static inline int type_as(enum dtype type)
{
    static const int types[N_DTYPES] = {[F32] = FIVE_STEPS_F32, [F16] = FIVE_STEPS_F16, [BF16] = FIVE_STEPS_BF16,
                                        [E4M3] = FIVE_STEPS_E4M3, [INT8] = FIVE_STEPS_INT8};
    return types[type];
}

static inline struct five_steps_attention_problem
attention_as(const struct problem *p, const struct arrays *a, int device)
{
    return (struct five_steps_attention_problem){
        .size = sizeof(struct five_steps_attention_problem), .device = device,
        .type = type_as(p->dtype), .batch = p->batch, .heads_q = p->heads_q,
        .heads_kv = p->heads_kv, .seqlen_q = p->seqlen_q, .seqlen_k = p->seqlen_k,
        .head_dim = p->head_dim, .head_dim_v = p->head_dim_v, .causal = p->causal,
        .isolate_v = 1, .scale = p->scale, .q = a->q, .k = a->k, .v = a->v, .bias = a->bias,
        .o = a->o, .lse = a->lse, .window = p->has_window, .softcap = p->softcap,
        .window_left = p->window_left, .window_right = p->window_right, .sinks = a->sinks,
        .cu_seqlens_q = a->cu_seqlens_q, .cu_seqlens_k = a->cu_seqlens_k, .total_q = p->total_q,
        .total_k = p->total_k, .page_table = a->page_table, .page_size = p->page_size,
        .n_pages = p->n_pages, .pages_per_sequence = p->pages_per_sequence,
        .q_strides = strides_as(p->q_strides), .k_strides = strides_as(p->k_strides),
        .v_strides = strides_as(p->v_strides), .o_strides = strides_as(p->o_strides),
        .bias_is_strided = p->has_bias_strides, .bias_strides = strides_as(p->bias_strides),
        .d_o = a->d_o, .dq = a->dq, .dk = a->dk, .dv = a->dv, .dsinks = a->dsinks, .dbias = a->dbias,
        .dropout = p->dropout, .seed = p->seed,
        .seqlens_k = a->seqlens_k, .kv_type = p->cache ? type_as(p->cache) : 0,
        .k_scale = a->k_scale, .v_scale = a->v_scale, .q_scale = a->q_scale};
}

/* Memory that begins at an odd address and is framed by what must stay. */
struct framed { char *base, *at; size_t bytes; };
enum { FRAME = 64 };

static inline struct framed framed_new(size_t bytes)
{
    struct framed f = {.bytes = bytes, .base = malloc(bytes + 2 * FRAME + 3)};
    memset(f.base, 0x5a, bytes + 2 * FRAME + 3);
    f.at = f.base + FRAME + 3;
    return f;
}

static inline void framed_free(struct framed f, const char *what)
{
    for (size_t i = 0; i < FRAME; i++)
        cr_assert(f.at[-1 - (ptrdiff_t)i] == 0x5a && f.at[f.bytes + i] == 0x5a,
                  "%s: written outside of the workspace", what);
    free(f.base);
}

/* Calls the library, with a workspace of exactly the size that it asks for; its code. */
#define CALL_WITH_WORKSPACE(function, p, error, what)                                      \
    ({                                                                                     \
        size_t bytes_ = 0;                                                                 \
        int code_ = function##_workspace(p, &bytes_, error);                               \
        if (!code_) {                                                                      \
            struct framed work_ = framed_new(bytes_);                                      \
            code_ = function(p, work_.at, bytes_, error);                                  \
            framed_free(work_, what);                                                      \
        }                                                                                  \
        code_;                                                                             \
    })

static inline int call_library(const struct problem *p, const struct arrays *a, int device,
                               const char *kernel, struct five_steps_error *error)
{
    struct five_steps_attention_problem call = attention_as(p, a, device);
    struct five_steps_softmax_problem rows = {
        .size = sizeof rows, .device = device, .type = type_as(p->dtype), .rows = p->rows,
        .cols = p->cols, .log = p->op == OP_LOGSOFTMAX, .x = a->x, .y = a->y};
    call.kernel = rows.kernel = kernel;
    call.isolate_v = !kernel; /* not all kernels do */
    if (p->rows) return CALL_WITH_WORKSPACE(five_steps_softmax, &rows, error, "softmax");
    if (p->op == OP_BACKWARD)
        return CALL_WITH_WORKSPACE(five_steps_attention_backward, &call, error, "backward");
    return CALL_WITH_WORKSPACE(five_steps_attention, &call, error, "attention");
}

/* Fails unless the library's answer is accepted as `check` accepts one.  Returns its code, which is
 * 0, or of a GPU FIVE_STEPS_UNSUPPORTED. */
static inline int judge_library(struct inputs *in, int device, const char *kernel, const char *what)
{
    struct outputs out = outputs_new(&in->problem), again = outputs_new(&in->problem);
    struct arrays a = in->arrays;
    struct five_steps_error error = {.code = 99};
    outputs_bind(&out, &a);
    int code = call_library(&in->problem, &a, device, kernel, &error);
    cr_expect((!code && !error.code && !error.message[0]) ||
              (device == GPU && code == FIVE_STEPS_UNSUPPORTED), "%s: %s", what, error.message);
    if (!code) {
        struct standard *s = standard_new(&in->problem, &in->arrays);
        struct verdict v = compare(s, &out);
        cr_expect(v.ok, "%s in %s on %s: %s: got %g, want %g, allowed %g", what,
                  dtypes[in->problem.dtype].name, device == GPU ? "gpu" : "cpu", v.reason, v.got,
                  v.want, v.allowed);
        standard_free(s);
    }
    if (!code && in->problem.op == OP_ATTENTION) { /* nobody wants lse: the same o */
        outputs_bind(&again, &a);
        void *lse = a.lse;
        a.lse = NULL;
        cr_expect(!call_library(&in->problem, &a, device, kernel, &error), "%s", error.message);
        a.lse = lse;
        memcpy(again.array[ARRAY_LSE].data, out.array[ARRAY_LSE].data,
               out.array[ARRAY_LSE].n * sizeof(float));
        cr_expect(outputs_equal(&out, &again), "%s: another o without lse", what);
    }
    outputs_free(&out), outputs_free(&again);
    return code;
}
