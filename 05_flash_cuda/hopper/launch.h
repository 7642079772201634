/* hopper_launch.h: the host's side of the Hopper kernels: tensor maps, the kernel
 * argument, the choice of an instance, the descriptor's functions.  The C++ compiler of
 * the CPU build sees only the last. */
#ifndef HOPPER_LAUNCH_H
#define HOPPER_LAUNCH_H

#include "stage.h"
#include "gpu/cuda_check.h"

/* What no Hopper rung does: a bias, rows that are no multiple of 16 bytes (TMA), heads
 * wider than 256, and a scale that turns the order of the scores round. */
static const char *hopper_refuses(const struct problem *p)
{
    if (p->head_dim % 8 || p->head_dim_v % 8)
        return "a head_dim that is no multiple of 8";
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if (!(p->scale > 0.0f && p->scale < INFINITY)) return "a scale that is not positive";
    if (p->seqlen_q > 1u << 30 || p->seqlen_k > 1u << 30) return "a seqlen above 2^30";
    if (p->batch * p->heads_q * (p->seqlen_q / 64 + 1) > 1u << 30)
        return "over 2^30 tiles";
    return NULL;
}

/* Q and O once; K and V once for every br queries that see them. */
static struct cost hopper_cost(const struct problem *p, size_t br)
{
    double heads = (double)p->batch * p->heads_q, keys = 0.0, pairs = 0.0;
    for (size_t i = 0; i < p->seqlen_q; i += br) {
        size_t last = i + br < p->seqlen_q ? i + br : p->seqlen_q;
        double seen = p->seqlen_k;
        if (p->causal) seen = fmax(0.0, fmin(seen, (double)last + seen - p->seqlen_q));
        keys += seen;
        pairs += seen * (double)(last - i);
    }
    double d = (double)p->head_dim + p->head_dim_v;
    struct cost c = {0.0, heads * (2.0 * d * p->seqlen_q + 2.0 * d * keys),
                     heads * pairs};
    return c;
}

#ifdef __CUDACC__
#include <cuda.h>
#include <cudaTypedefs.h>

/* What every kernel is told.  The maps carry the addresses and sizes of the arrays. */
struct job {
    CUtensorMap q, k, v, o;
    void *o_rows; /* o itself, for rungs that write it without TMA */
    float *lse;
    int seqlen_q, seqlen_k, heads_q, head_dim_v, causal;
    int tiles; /* of Br queries in a head */
    int group; /* query heads that share a key head */
    float c;   /* scale log2(e): weights are 2^(s c - mc) */
};

/* The driver's function that fills a tensor map, found at run time so that nothing must
 * be linked with libcuda. */
static PFN_cuTensorMapEncodeTiled_v12000 encode_function(void)
{
    void *f = NULL;
    cudaDriverEntryPointQueryResult found;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
                                                cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
        cuda_failed(__FILE__, __LINE__, "cuTensorMapEncodeTiled", "not found",
                    "the driver has no such function");
    return (PFN_cuTensorMapEncodeTiled_v12000)f;
}

/* The map of an array [batch, heads, rows, columns] of 16-bit values, read or written in
 * boxes of box_rows rows and 64 columns, swizzled.  Rows keep a dimension of their own:
 * what lies beyond the last one is zeros, not the next head. */
static CUtensorMap tensor_map(const void *array, enum dtype dtype, size_t batch,
                              size_t heads, size_t rows, size_t columns, int box_rows)
{
    static const PFN_cuTensorMapEncodeTiled_v12000 encode = encode_function();
    CUtensorMap map;
    if ((uintptr_t)array % 16)
        cuda_failed(__FILE__, __LINE__, "tensor_map", "misaligned",
                    "the copy engine needs arrays that start at multiples of 16");
    cuuint64_t size[4] = {columns, rows, heads, batch};
    cuuint64_t stride[3] = {2 * columns, 2 * columns * rows, 2 * columns * rows * heads};
    cuuint32_t box[4] = {64, (cuuint32_t)box_rows, 1, 1}, step[4] = {1, 1, 1, 1};
    CUresult status =
        encode(&map,
               dtype == BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                             : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
               4, (void *)array, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS) {
        char text[32];
        snprintf(text, sizeof text, "error %d", (int)status);
        cuda_failed(__FILE__, __LINE__, "cuTensorMapEncodeTiled", "refused", text);
    }
    return map;
}

/* The argument for tiles of br queries and bc keys. */
static struct job job_of(const struct problem *p, const struct arrays *a, int br, int bc)
{
    struct job j;
    j.q = tensor_map(a->q, p->dtype, p->batch, p->heads_q, p->seqlen_q, p->head_dim, br);
    j.k = tensor_map(a->k, p->dtype, p->batch, p->heads_kv, p->seqlen_k, p->head_dim, bc);
    j.v =
        tensor_map(a->v, p->dtype, p->batch, p->heads_kv, p->seqlen_k, p->head_dim_v, bc);
    j.o =
        tensor_map(a->o, p->dtype, p->batch, p->heads_q, p->seqlen_q, p->head_dim_v, 64);
    j.o_rows = a->o;
    j.lse = a->lse;
    j.seqlen_q = (int)p->seqlen_q;
    j.seqlen_k = (int)p->seqlen_k;
    j.heads_q = (int)p->heads_q;
    j.head_dim_v = (int)p->head_dim_v;
    j.causal = p->causal;
    j.tiles = (int)((p->seqlen_q + br - 1) / br);
    j.group = (int)(p->heads_q / p->heads_kv);
    j.c = p->scale * 1.44269504f;
    return j;
}

/* The kernel's launch: blocks of `threads` threads with `shared` bytes each. */
static cudaLaunchConfig_t configuration(const void *kernel, dim3 grid, int threads,
                                        size_t shared, void *stream)
{
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)shared));
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = (cudaStream_t)stream;
    return config;
}

/* One block for each tile of each head. */
static inline dim3 a_block_a_tile(const struct job &j, const struct problem *p)
{
    return dim3((unsigned)(j.tiles * p->heads_q * p->batch));
}

/* Calls LAUNCH<type, head dimension>: the smallest instance that holds both heads; the
 * columns that are missing are zeros, which TMA writes and does not store. */
#define LAUNCH_FOR(LAUNCH, p, a)                                                         \
    do {                                                                                 \
        size_t d_ = (p)->head_dim > (p)->head_dim_v ? (p)->head_dim : (p)->head_dim_v;   \
        if ((p)->dtype == BF16) {                                                        \
            if (d_ <= 64)                                                                \
                LAUNCH<__nv_bfloat16, 64>(p, a);                                         \
            else if (d_ <= 128)                                                          \
                LAUNCH<__nv_bfloat16, 128>(p, a);                                        \
            else                                                                         \
                LAUNCH<__nv_bfloat16, 256>(p, a);                                        \
        } else {                                                                         \
            if (d_ <= 64)                                                                \
                LAUNCH<__half, 64>(p, a);                                                \
            else if (d_ <= 128)                                                          \
                LAUNCH<__half, 128>(p, a);                                               \
            else                                                                         \
                LAUNCH<__half, 256>(p, a);                                               \
        }                                                                                \
    } while (0)
#endif

/* The part of the descriptor that is the same for all. */
#define HOPPER_VARIANT                                                                   \
    .group = IN_HOPPER, .device = GPU_DEVICE, .least_arch = 90, .only_arch = 90,         \
    .types = TYPE(F16) | TYPE(BF16),                                                     \
    .supports = WITH_CAUSAL | WITH_GROUPS | WITH_HEAD_DIM_V, .max_score = INFINITY,      \
    .masked_rows = 1, .refuses = hopper_refuses
#endif
