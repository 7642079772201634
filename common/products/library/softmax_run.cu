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

/* A variant and its problem.  The descriptor is a symbol of this library: the name and "_cuda". */
struct found { const struct variant *v; struct problem p; };

static struct found find(const char *name, const char *dtype, size_t rows, size_t cols)
{
    char symbol[128];
    Dl_info here;
    struct found w = {};
    snprintf(symbol, sizeof symbol, "%s_cuda", name);
    void *self = dladdr((void *)find, &here) ? dlopen(here.dli_fname, RTLD_LAZY) : NULL;
    w.v = self ? (const struct variant *)dlsym(self, symbol) : NULL;
    if (w.v && !variant_does(w.v, OP_SOFTMAX)) w.v = NULL;
    w.p.op = OP_SOFTMAX;
    w.p.dtype = !strcmp(dtype, "f32") ? F32 : !strcmp(dtype, "f16") ? F16 : BF16;
    w.p.rows = rows;
    w.p.cols = cols;
    return w;
}

/* NULL if the variant supports the problem, else what it does not; of the others each only then. */
extern "C" const char *softmax_refuses(const char *variant, const char *dtype, size_t rows,
                                       size_t cols)
{
    struct found w = find(variant, dtype, rows, cols);
    if (!w.v) return "being a softmax of this library";
    if (!(w.v->types & TYPE(w.p.dtype))) return dtype;
    return w.v->refuses ? w.v->refuses(&w.p) : NULL;
}

/* Bytes of workspace that softmax_run() needs. */
extern "C" size_t softmax_workspace(const char *variant, const char *dtype, size_t rows,
                                    size_t cols)
{
    struct found w = find(variant, dtype, rows, cols);
    return variant_scratch(w.v, &w.p);
}

/* Bytes of main memory that the variant moves according to its own model. */
extern "C" double softmax_bytes(const char *variant, const char *dtype, size_t rows,
                                size_t cols)
{
    struct found w = find(variant, dtype, rows, cols);
    return w.v->cost ? w.v->cost(&w.p).bytes : 0;
}

/* Starts the variant on device arrays in a stream.  Returns 0. */
extern "C" int softmax_run(const char *variant, const char *dtype, size_t rows, size_t cols,
                           const void *x, void *y, void *workspace, void *stream)
{
    struct found w = find(variant, dtype, rows, cols);
    struct arrays a = {};
    a.x = x;
    a.y = y;
    a.workspace = workspace;
    a.stream = stream;
    variant_call(w.v, &w.p, &a);
    return 0;
}
