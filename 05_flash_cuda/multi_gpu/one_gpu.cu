/* one_gpu.cu: what bench measures beside several GPUs: one of them alone, with the last rung, or with
 * split-KV for few queries. */
#include <stdio.h>

#include "gpu/gpu.h"
#include "part.h"
#include "team.h"

extern "C" const struct variant split_kv_cuda;

static struct one_gpu {
    const struct variant *v;
    struct problem p;
    struct arrays a;
    void *owned[6];
    double bytes;
    bool fits;
} one;

static void one_gpu_new(const struct problem *p)
{
    const struct variant *v = part_split_refuses(p) ? &tuned_cuda : &split_kv_cuda;
    size_t rows = p->batch * p->heads_q * p->seqlen_q, keys = p->batch * p->heads_kv * p->seqlen_k;
    size_t n[6] = {rows * p->head_dim * 2, keys * p->head_dim * 2, keys * p->head_dim_v * 2,
                   rows * p->head_dim_v * 2, rows * 4, v->workspace(p)};
    one.v = v;
    one.p = *p;
    for (int i = 0; i < 6; i++) one.bytes += (double)n[i];
    one.fits = one.bytes <= 0.98 * (double)gpu_memory_free();
    if (!one.fits) {
        printf("%-18s 1 GPU  its %.1f GB do not fit into one GPU's memory\n", v->name,
               1e-9 * one.bytes);
        return;
    }
    for (int i = 0; i < 6; i++) CUDA_CHECK(cudaMalloc(&one.owned[i], n[i] ? n[i] : 16));
    for (int i = 0; i < 3; i++) draw_normal(one.owned[i], n[i] / 2, p->dtype, 7 + (uint64_t)i);
    one.a.q = one.owned[0];
    one.a.k = one.owned[1];
    one.a.v = one.owned[2];
    one.a.o = one.owned[3];
    one.a.lse = (float *)one.owned[4];
    one.a.workspace = one.owned[5];
}

static void run_one(void *ignored)
{
    (void)ignored;
    variant_call(one.v, &one.p, &one.a);
}

int alone(const struct problem *p, double *seconds)
{
    CUDA_CHECK(cudaSetDevice(gpus[0].device));
    if (!one.v) one_gpu_new(p);
    if (one.fits) *seconds = gpu_time(run_one, NULL, 0);
    return one.fits;
}

int alone_done(struct measurement *m)
{
    CUDA_CHECK(cudaSetDevice(gpus[0].device));
    for (int i = 0; i < 6; i++)
        if (one.owned[i]) CUDA_CHECK(cudaFree(one.owned[i]));
    if (!one.fits) return 0;
    m->variant = one.v->name;
    m->peak_bytes = one.bytes;
    return 1;
}
