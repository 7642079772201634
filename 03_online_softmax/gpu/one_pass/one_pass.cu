/* one_pass.cu: the kernel for a row length: registers, shared, cluster or two_pass.
 *
 * One read and one write of main memory where a row fits on the chip (row E5 of the table of
 * traffic), two reads and one write where it does not. */
#include "harness.h"
#include "gpu/cuda_check.h"
#include "gpu/gpu_rows.h"
#include "row_parts.h"

#ifdef __CUDACC__
#define HERE(name) name##_cuda
#else
#define HERE(name) name
#endif

extern "C" const struct variant HERE(gpu_registers); /* registers.cu */
extern "C" const struct variant HERE(gpu_cluster);   /* clusters.cu */
extern "C" const struct variant HERE(gpu_shared);    /* shared.cu */
extern "C" const struct variant HERE(gpu_two_pass);  /* two_pass.cu */

#define BLOCK_MOST (40 << 10) /* bytes of a row: several blocks on a multiprocessor */

/* Where the CPU executes kernels, those for a GPU alone are no choice. */
static bool takes(const struct variant *v, const struct problem *p)
{
#ifndef __CUDACC__
    if (variant_only_on_gpu(v, p->op)) return false;
#endif
    return !v->refuses(p);
}

/* The first that takes the row, in the order of preference. */
static const struct variant *choose(const struct problem *p)
{
    static const struct variant *const preferred[] = {
        &HERE(gpu_registers), &HERE(gpu_shared), /* up to BLOCK_MOST */
        &HERE(gpu_cluster), &HERE(gpu_shared)};
    for (int i = row_bytes(p) <= BLOCK_MOST ? 0 : 2; i < 4; i++)
        if (takes(preferred[i], p)) return preferred[i];
    return &HERE(gpu_two_pass);
}

static const char *refuses(const struct problem *p)
{
    return HERE(gpu_two_pass).refuses(p);
}

static const char *picks(const struct problem *p) { return choose(p)->name; }

static size_t workspace(const struct problem *p)
{
    const struct variant *v = choose(p);
    return variant_scratch(v, p);
}

static struct cost cost(const struct problem *p) { return choose(p)->cost(p); }

static void one_pass(const struct problem *p, const struct arrays *a)
{
    variant_call(choose(p), p, a);
}

GPU_VARIANT(gpu_one_pass, "best of these four",
    SAFE_ON_GPU(75, ALL_TYPES), .refuses = refuses,
    .picks = picks, .workspace = workspace, .cost = cost,
    .does = {{OP_SOFTMAX, one_pass}, {OP_LOGSOFTMAX, one_pass}});
