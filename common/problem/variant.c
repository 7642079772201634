/* variant.c: what the harness asks of a variant before and while running it. */
#include "problem/variant.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu.h"
#include "problem/feature.h"
#include "problem/host_memory.h"

const char *op_name(enum op op)
{
    static const char *const names[N_OPS] = {
        [OP_SOFTMAX] = "softmax",
        [OP_LOGSOFTMAX] = "logsoftmax",
        [OP_ATTENTION] = "attention",
        [OP_LOGSOFTMAX_ATTENTION] = "logsoftmax_attention",
        [OP_MEAN] = "mean",
        [OP_SCAN] = "scan",
        [OP_UPDATE] = "update",
        [OP_FUSED_REDUCTION] = "fused_reduction",
    };
    return names[op];
}

const char *dtype_name(enum dtype dtype)
{
    return dtype == F32 ? "f32" : dtype == F16 ? "f16" : "bf16";
}

size_t dtype_size(enum dtype dtype)
{
    return dtype == F32 ? 4 : 2;
}

const char *device_name(enum device device)
{
    return device == ON_CPU ? "cpu" : device == ON_GPU ? "gpu" : "cpu-executed";
}

void needs_gpu(const struct problem *p, const struct arrays *a)
{
    (void)a;
    fprintf(stderr, "%s needs a GPU\n", op_name(p->op));
    exit(1);
}

static int is_gpu_only(const struct variant *v)
{
    for (int op = 0; op < N_OPS; op++)
        if (variant_does(v, (enum op)op) == needs_gpu) return 1;
    return 0;
}

/* The twin is taken only where the GPU can run it, so that a program built with nvcc
 * still executes its kernels on the CPU on a machine without a (fitting) GPU. */
const struct variant *variant_here(const struct variant *v)
{
    return v->on_gpu && !variant_unavailable(v->on_gpu) ? v->on_gpu : v;
}

const char *variant_unavailable(const struct variant *v)
{
    static char text[200];
    const char *lacking = v->lacks ? v->lacks() : NULL;
    if (lacking) snprintf(text, sizeof text, "needs %s", lacking);
    if (v->device == ON_CPU) return lacking ? text : NULL;
    if (v->device == GPU_ON_CPU) {
        if (!is_gpu_only(v)) return NULL;
        if (v->on_gpu) return variant_unavailable(v->on_gpu);
        if (gpu_arch())
            snprintf(text, sizeof text, "this program has no code for it: build with "
                     "CUDA_ARCH=%d%s", v->only_arch ? v->only_arch : gpu_arch(),
                     v->only_arch ? "a" : "");
        else
            snprintf(text, sizeof text, "needs a GPU (%s)", gpu_why_not());
        return text;
    }
    int arch = gpu_arch();
    if (!arch) {
        snprintf(text, sizeof text, "needs a GPU (%s)", gpu_why_not());
        return text;
    }
    if (v->only_arch && arch != v->only_arch) {
        snprintf(text, sizeof text, "needs sm_%d, this GPU is sm_%d", v->only_arch, arch);
        return text;
    }
    if (arch < v->least_arch) {
        snprintf(text, sizeof text, "needs sm_%d or newer, this GPU is sm_%d",
                 v->least_arch, arch);
        return text;
    }
    return gpu_has_code_for(v->only_arch ? v->only_arch : v->least_arch);
}

const char *variant_refuses(const struct variant *v, const struct problem *p)
{
    if (!variant_does(v, p->op)) return op_name(p->op);
    if (!(v->types & TYPE(p->dtype))) return dtype_name(p->dtype);
    unsigned missing = problem_features(p) & ~v->supports;
    if (missing) return feature_text(missing);
    return v->refuses ? v->refuses(p) : NULL;
}

double problem_pairs(const struct problem *p)
{
    double all = (double)p->seqlen_q * (double)p->seqlen_k;
    if (!p->causal) return all;
    if (p->seqlen_q == p->seqlen_k) return all / 2;
    double pairs = 0;
    for (size_t i = 0; i < p->seqlen_q; i++) {
        struct key_range keys = visible_keys(p, i);
        pairs += (double)(keys.end - keys.first);
    }
    return pairs;
}

double problem_flops(const struct problem *p)
{
    if (p->op != OP_ATTENTION && p->op != OP_LOGSOFTMAX_ATTENTION && p->op != OP_SCAN &&
        p->op != OP_UPDATE)
        return 0;
    return 2.0 * (double)(p->head_dim + p->head_dim_v) * (double)p->batch *
           (double)p->heads_q * problem_pairs(p);
}

/* a b c d, or SIZE_MAX when that overflows. */
static size_t product(size_t a, size_t b, size_t c, size_t d)
{
    return size_times(size_times(a, b), size_times(c, d));
}

struct sizes problem_sizes(const struct problem *p)
{
    struct sizes n = {0};
    if (p->op == OP_SOFTMAX || p->op == OP_LOGSOFTMAX || p->op == OP_MEAN ||
        p->op == OP_FUSED_REDUCTION) {
        n.x = size_times(p->rows, p->cols);
        n.w = p->op == OP_FUSED_REDUCTION ? n.x : 0;
        n.y = p->op == OP_MEAN ? p->rows
              : p->op == OP_FUSED_REDUCTION ? size_times(p->rows, N_FUSED) : n.x;
        return n;
    }
    size_t answers = p->op == OP_SCAN ? p->seqlen_k : p->seqlen_q;
    n.q = product(p->batch, p->heads_q, p->seqlen_q, p->head_dim);
    n.k = product(p->batch, p->heads_kv, p->seqlen_k, p->head_dim);
    n.v = product(p->batch, p->heads_kv, p->seqlen_k, p->head_dim_v);
    n.bias = p->has_bias ? size_times(p->seqlen_q, p->seqlen_k) : 0;
    n.o = product(p->batch, p->heads_q, answers, p->head_dim_v);
    n.lse = product(p->batch, p->heads_q, answers, 1);
    if (p->op == OP_UPDATE) {
        n.index = p->n_updates;
        n.k_new = product(p->batch, p->heads_kv, p->n_updates, p->head_dim);
        n.v_new = product(p->batch, p->heads_kv, p->n_updates, p->head_dim_v);
    }
    return n;
}
