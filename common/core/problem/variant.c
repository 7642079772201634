/* variant.c: what the harness asks of a variant before and while running it. */
#include "problem/variant.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu.h"

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

int variant_only_on_gpu(const struct variant *v, enum op op)
{
    for (int i = 0; i < N_OPS && v->does[i].function; i++)
        if (v->does[i].op == op) return v->does[i].function == needs_gpu;
    return 0;
}

static int is_gpu_only(const struct variant *v)
{
    for (int op = 0; op < N_OPS; op++)
        if (variant_only_on_gpu(v, (enum op)op)) return 1;
    return 0;
}

/* The twin is taken only where the GPU can run it, so that a program built with nvcc
 * still executes its kernels on the CPU on a machine without a (fitting) GPU. */
const struct variant *variant_here(const struct variant *v)
{
    return v->on_gpu && !variant_unavailable(v->on_gpu) ? v->on_gpu : v;
}

/* Why the CPU's form of a kernel stands for it here, and not the GPU's. */
static const char *no_twin(const struct variant *v)
{
    static char text[200];
    if (v->on_gpu) return variant_unavailable(v->on_gpu);
    if (gpu_arch())
        snprintf(text, sizeof text, "this program has no code for it: build with CUDA_ARCH=%d%s",
                 v->only_arch ? v->only_arch : gpu_arch(), v->only_arch ? "a" : "");
    else
        snprintf(text, sizeof text, "needs a GPU (%s)", gpu_why_not());
    return text;
}

const char *variant_unavailable(const struct variant *v)
{
    static char text[200];
    const char *lacking = v->lacks ? v->lacks() : NULL;
    if (lacking) snprintf(text, sizeof text, "needs %s", lacking);
    if (v->device == ON_CPU) return lacking ? text : NULL;
    if (v->device == GPU_ON_CPU) return is_gpu_only(v) ? no_twin(v) : NULL;
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

const char *variant_not_by_default(const struct variant *v)
{
    static char text[300];
    const char *why = variant_unavailable(v);
    if (why || v->device != GPU_ON_CPU || !v->only_arch) return why;
    snprintf(text, sizeof text, "%s; with --variant the CPU executes it", no_twin(v));
    return text;
}
