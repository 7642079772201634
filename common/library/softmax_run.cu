/* softmax_run.cu: the GPU softmax variants of stages 1 to 3 as a shared library, so that
 * another program (peers_softmax.py) can run them on its own arrays, in turn with others.
 *
 * Arguments that the functions share:
 *   variant  a variant's name; dtype  "f32", "f16" or "bf16"; the matrix is [rows, cols]
 * Arrays start at multiples of 16 bytes, the workspace of 1024. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#include "gpu/cuda_check.h"

/* A CUDA error ends the measuring program. */
void cuda_failed(const char *file, int line, const char *call, const char *name,
                 const char *text)
{
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, text, name);
    exit(1);
}

/* The variant's descriptor is a symbol of this library: its name and "_cuda". */
static const struct variant *find(const char *name)
{
    char symbol[128];
    Dl_info here;
    snprintf(symbol, sizeof symbol, "%s_cuda", name);
    if (!dladdr((void *)find, &here)) return NULL;
    void *self = dlopen(here.dli_fname, RTLD_LAZY);
    return self ? (const struct variant *)dlsym(self, symbol) : NULL;
}

static struct problem problem_of(const char *dtype, size_t rows, size_t cols)
{
    struct problem p = {};
    p.op = OP_SOFTMAX;
    p.dtype = !strcmp(dtype, "f32") ? F32 : !strcmp(dtype, "f16") ? F16 : BF16;
    p.rows = rows;
    p.cols = cols;
    return p;
}

/* NULL if the variant supports the problem, else what it does not. */
extern "C" const char *softmax_refuses(const char *variant, const char *dtype, size_t rows,
                                       size_t cols)
{
    const struct variant *v = find(variant);
    struct problem p = problem_of(dtype, rows, cols);
    if (!v || !variant_does(v, OP_SOFTMAX)) return "being a softmax of this library";
    if (!(v->types & TYPE(p.dtype))) return dtype;
    return v->refuses ? v->refuses(&p) : NULL;
}

/* Bytes of workspace that softmax_run() needs. */
extern "C" size_t softmax_workspace(const char *variant, const char *dtype, size_t rows,
                                    size_t cols)
{
    const struct variant *v = find(variant);
    struct problem p = problem_of(dtype, rows, cols);
    return v ? variant_scratch(v, &p) : 0;
}

/* Bytes of main memory that the variant moves according to its own model. */
extern "C" double softmax_bytes(const char *variant, const char *dtype, size_t rows,
                                size_t cols)
{
    const struct variant *v = find(variant);
    struct problem p = problem_of(dtype, rows, cols);
    return v && v->cost ? v->cost(&p).bytes : 0;
}

/* Starts the variant on device arrays in a stream.  Returns 0, or 1 when there is none. */
extern "C" int softmax_run(const char *variant, const char *dtype, size_t rows, size_t cols,
                           const void *x, void *y, void *workspace, void *stream)
{
    const struct variant *v = find(variant);
    struct problem p = problem_of(dtype, rows, cols);
    struct arrays a = {};
    if (!v || !variant_does(v, OP_SOFTMAX)) return 1;
    a.x = x;
    a.y = y;
    a.workspace = workspace;
    a.stream = stream;
    variant_call(v, &p, &a);
    return 0;
}
