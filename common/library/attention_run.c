/* attention_run.c: the rungs as a shared library, so that another program (peers_gpu.py) can
 * run them on its own arrays, in turn with other implementations.
 *
 * Arguments that the functions share:
 *   variant  a rung's name; dtype  "f32", "f16" or "bf16"
 *   shape    batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v
 *   scale    multiplies q.k
 * Arrays start at multiples of 16 bytes, the workspace of 1024. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "problem/feature.h"
#include "stage.h"

/* The rung's descriptor for the GPU is a symbol of this library: its name and "_cuda". */
static const struct variant *find(const char *name)
{
    char symbol[128];
    Dl_info here;
    snprintf(symbol, sizeof symbol, "%s_cuda", name);
    if (!dladdr((void *)find, &here)) return NULL;
    void *self = dlopen(here.dli_fname, RTLD_LAZY);
    return self ? dlsym(self, symbol) : NULL;
}

static struct problem problem_of(const char *dtype, const size_t shape[7], int causal,
                                 int has_bias, float scale)
{
    return (struct problem){
        .op = OP_ATTENTION,
        .dtype = !strcmp(dtype, "f32") ? F32 : !strcmp(dtype, "f16") ? F16 : BF16,
        .batch = shape[0], .heads_q = shape[1], .heads_kv = shape[2],
        .seqlen_q = shape[3], .seqlen_k = shape[4],
        .head_dim = shape[5], .head_dim_v = shape[6],
        .causal = causal, .has_bias = has_bias, .scale = scale,
    };
}

/* NULL if the rung supports the problem, else what it does not. */
const char *attention_refuses(const char *variant, const char *dtype,
                              const size_t shape[7], int causal, int has_bias,
                              float scale)
{
    const struct variant *v = find(variant);
    struct problem p = problem_of(dtype, shape, causal, has_bias, scale);
    if (!v) return "being a rung of this library";
    if (!(v->types & TYPE(p.dtype))) return dtype;
    unsigned missing = problem_features(&p) & ~v->supports;
    if (missing) return feature_text(missing);
    return v->refuses ? v->refuses(&p) : NULL;
}

/* Bytes of workspace that attention_run() needs. */
size_t attention_workspace(const char *variant, const char *dtype, const size_t shape[7],
                           int causal, int has_bias, float scale)
{
    const struct variant *v = find(variant);
    struct problem p = problem_of(dtype, shape, causal, has_bias, scale);
    return v && v->workspace ? v->workspace(&p) : 0;
}

/* Bytes of main memory that the rung moves according to its own model. */
double attention_bytes(const char *variant, const char *dtype, const size_t shape[7],
                       int causal, int has_bias, float scale)
{
    const struct variant *v = find(variant);
    struct problem p = problem_of(dtype, shape, causal, has_bias, scale);
    return v && v->cost ? v->cost(&p).bytes : 0;
}

/* What compiled the rungs, for the CSV. */
const char *attention_compiler(void) { return CUDA_COMPILER; }

/* Starts the rung on device arrays (stage.h) in a stream.  bias may be NULL.  Returns
 * 0, or 1 when there is no such rung. */
int attention_run(const char *variant, const char *dtype, const size_t shape[7],
                  int causal, float scale, const void *q, const void *k, const void *v,
                  const float *bias, void *o, float *lse, void *workspace, void *stream)
{
    const struct variant *rung = find(variant);
    struct problem p = problem_of(dtype, shape, causal, bias != NULL, scale);
    struct arrays a = {.q = q, .k = k, .v = v, .bias = bias, .o = o, .lse = lse,
                       .workspace = workspace, .stream = stream};
    if (!rung || !variant_does(rung, OP_ATTENTION)) return 1;
    variant_does(rung, OP_ATTENTION)(&p, &a);
    return 0;
}
