/* gpu_gemm.cu: the GPU's ceiling of matrix products: cuBLAS, where it is installed. */
#include "gpu/gpu.h"

#include <dlfcn.h>

#include "harness.h"
#include "gpu/cuda_check.h"

/* cuBLAS is opened at run time: it is a ceiling, not a requirement.  The few declarations
 * needed are repeated here so that no header is needed either. */
typedef int gemm_function(void *handle, int transa, int transb, int m, int n, int k,
                          const void *alpha, const void *a, int atype, int lda, const void *b,
                          int btype, int ldb, const void *beta, void *c, int ctype, int ldc,
                          int compute, int algorithm);
struct gemm { gemm_function *run; void *handle, *a, *b, *c; int n, type, compute; };

static void gemm_call(void *context)
{
    struct gemm *g = (struct gemm *)context;
    float one = 1, zero = 0;
    int status = g->run(g->handle, 1, 0, g->n, g->n, g->n, &one, g->a, g->type, g->n, g->b,
                        g->type, g->n, &zero, g->c, g->type, g->n, g->compute, -1);
    if (status) {
        fprintf(stderr, "cublasGemmEx failed with status %d\n", status);
        exit(1);
    }
}

/* Random values in (-1, 1): constants would let the chip clock higher than real data. */
static __global__ void noise_kernel(void *x, size_t n, int dtype)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned h = (unsigned)i * 2654435761u;
        h ^= h >> 15; h *= 2246822519u; h ^= h >> 13; h *= 3266489917u; h ^= h >> 16;
        float u = (float)(int)h * (1.0f / 2147483648.0f);
        unsigned bits = __float_as_uint(u);
        if (dtype == F32) ((float *)x)[i] = u;
        else if (dtype == BF16) ((unsigned short *)x)[i] = (unsigned short)(bits >> 16);
        else ((unsigned short *)x)[i] = (unsigned short)(((bits >> 16) & 0x8000u) | 0x3000u |
                                                         ((bits >> 13) & 0x3ffu));
    }
}

static void fill_noise(void *x, size_t n, int dtype)
{
    const cudaLaunchConfig_t config = {.gridDim = dim3(1024), .blockDim = dim3(256)};
    CUDA_CHECK(cudaLaunchKernelEx(&config, noise_kernel, x, n, dtype));
}

static double measure_gemm(int dtype)
{
    static const char *const names[] = {"libcublas.so", "libcublas.so.13", "libcublas.so.12",
                                        "libcublas.so.11"};
    void *library = NULL;
    for (int i = 0; i < 4 && !library; i++) library = dlopen(names[i], RTLD_NOW);
    if (!library) return 0;
    int (*create)(void **) = (int (*)(void **))dlsym(library, "cublasCreate_v2");
    struct gemm g = {};
    g.run = (gemm_function *)dlsym(library, "cublasGemmEx");
    if (!create || !g.run || create(&g.handle)) return 0;
    g.n = 8192;
    g.type = dtype == F32 ? CUDA_R_32F : dtype == F16 ? CUDA_R_16F : CUDA_R_16BF;
    g.compute = 68; /* CUBLAS_COMPUTE_32F */
    size_t count = (size_t)g.n * (size_t)g.n, size = dtype_size((enum dtype)dtype);
    g.a = gpu_alloc(count * size);
    g.b = gpu_alloc(count * size);
    g.c = gpu_alloc(count * size);
    double best = 1e30;
    if (g.a && g.b && g.c) {
        fill_noise(g.a, count, dtype);
        fill_noise(g.b, count, dtype);
        for (int i = 0; i < 12; i++) {
            double t = gpu_time(gemm_call, &g, 1);
            if (i > 1 && t < best) best = t;
        }
    }
    if (g.a) gpu_free(g.a);
    if (g.b) gpu_free(g.b);
    if (g.c) gpu_free(g.c);
    double n = g.n;
    return best < 1e30 ? 2 * n * n * n / best / 1e9 : 0;
}

extern "C" double gpu_gemm_gflops(int dtype)
{
    static double gflops[3];
    static int known[3];
    if (dtype > BF16) return 0; /* of 8 bits cuBLAS has another interface */
    if (gpu_arch() && !known[dtype]) {
        known[dtype] = 1;
        gflops[dtype] = measure_gemm(dtype);
    }
    return gflops[dtype];
}
