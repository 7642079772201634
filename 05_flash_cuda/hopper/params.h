/* params.h: the host's side of the Hopper kernels: tensor maps, the kernel's parameters, the
 * choice of an instance, the descriptor's functions. */
#pragma once

#include "harness.h"
#include "cost.h"
#include "mask32.h"
#include "start.h"
#include "problem/layout.h"
#include "gpu/ptx.h"

/* Whether TMA can step through an array: by multiples of 16 bytes, and forward. */
static bool steps_of_16_bytes(struct strides s)
{
    return (s.row || !(s.batch || s.head)) && s.batch % 8 == 0 && s.head % 8 == 0 &&
           s.row % 8 == 0;
}

/* What no Hopper rung does beside a bias: rows that are no multiple of 16 bytes (TMA), heads
 * wider than 256, and a scale that turns the order of the scores round. */
[[maybe_unused]] static const char *hopper_refuses(const struct problem *p)
{
    if (p->head_dim % 8 || p->head_dim_v % 8)
        return "a head_dim that is no multiple of 8";
    if (p->head_dim > 256 || p->head_dim_v > 256) return "a head_dim above 256";
    if (!steps_of_16_bytes(p->q_strides) || !steps_of_16_bytes(p->k_strides) ||
        !steps_of_16_bytes(p->v_strides) || !steps_of_16_bytes(p->o_strides))
        return "a stride that is no multiple of 16 bytes";
    if (!(p->scale > 0.0f && p->scale < INFINITY)) return "a scale that is not positive";
    if (p->seqlen_q > LONGEST || p->seqlen_k > LONGEST) return "a seqlen above 2^29";
    if (p->batch * p->heads_q * (p->seqlen_q / 64 + 1) > 1u << 30)
        return "over 2^30 tiles";
    return NULL;
}

/* The parameters of every kernel.  The maps carry the addresses and sizes of the arrays. */
struct params {
    CUtensorMap q, k, v, o;
    void *o_rows; /* o itself, for a store without TMA, and its strides */
    struct strides o_strides;
    float *lse;
    struct mask32 mask;
    int seqlen_q, heads_q, head_dim_v, causal;
    int tiles; /* of Br queries in a head */
    int group; /* query heads that share a key head */
    float c;   /* scale log2(e): weights are 2^(s c - mc) */
};

#ifdef __CUDACC__
#include <cudaTypedefs.h>

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
#else
static decltype(&cuTensorMapEncodeTiled) encode_function(void) { return cuTensorMapEncodeTiled; }
#endif

/* The shape of an array [batch, heads, rows, columns]. */
struct shape4 { size_t batch, heads, rows, columns; };

/* Makes the device's context current in a thread that has none yet: the driver, unlike the
 * runtime, does not do so by itself. */
static void make_context_current(void)
{
    int device;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaSetDevice(device));
}

/* The map of an array of 16-bit values, read or written in boxes of box_rows rows and 64
 * columns, swizzled.  Rows keep a dimension of their own: what lies beyond the last one is
 * zeros, not the next head. */
static CUtensorMap tensor_map(const void *array, enum dtype dtype, struct shape4 n,
                              struct strides s, int box_rows)
{
    static const auto encode = encode_function();
    CUtensorMap map;
    if ((uintptr_t)array % 16)
        cuda_failed(__FILE__, __LINE__, "tensor_map", "misaligned",
                    "the copy engine needs arrays that start at multiples of 16");
    cuuint64_t size[4] = {n.columns, n.rows, n.heads, n.batch};
    cuuint64_t stride[3] = {2 * s.row, 2 * s.head, 2 * s.batch};
    cuuint32_t box[4] = {64, (cuuint32_t)box_rows, 1, 1}, step[4] = {1, 1, 1, 1};
    const auto type = dtype == BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                    : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    CUresult status = CUDA_SUCCESS;
    for (int attempt = 0; attempt < 2; attempt++) {
        status = encode(&map, type, 4, (void *)array, size, stride, box, step,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        if (status != CUDA_ERROR_INVALID_CONTEXT) break;
        make_context_current();
    }
    if (status != CUDA_SUCCESS) {
        char text[32];
        snprintf(text, sizeof text, "error %d", (int)status);
        cuda_failed(__FILE__, __LINE__, "cuTensorMapEncodeTiled", "refused", text);
    }
    return map;
}

/* The parameters beside the maps of q, k and v, for tiles of br queries. */
[[maybe_unused]] static struct params scalar_params(const struct problem *p,
                                                    const struct arrays *a, int br)
{
    return {.o_rows = a->o, .o_strides = strides_of_o(p), .lse = a->lse, .mask = problem_mask32(p),
            .seqlen_q = (int)p->seqlen_q, .heads_q = (int)p->heads_q,
            .head_dim_v = (int)p->head_dim_v, .causal = p->causal,
            .tiles = (int)((p->seqlen_q + br - 1) / br),
            .group = (int)(p->heads_q / p->heads_kv), .c = p->scale * 1.44269504f};
}

/* The parameters for tiles of br queries and bc keys. */
[[maybe_unused]] static struct params params_of(const struct problem *p, const struct arrays *a,
                                                int br, int bc)
{
    struct params x = scalar_params(p, a, br);
    const size_t batch = p->packed ? 1 : p->batch;
    const size_t queries = stored_queries(p), keys = stored_keys(p);
    const struct shape4 q = {batch, p->heads_q, queries, p->head_dim};
    const struct shape4 k = {batch, p->heads_kv, keys, p->head_dim};
    const struct shape4 v = {batch, p->heads_kv, keys, p->head_dim_v};
    const struct shape4 o = {batch, p->heads_q, queries, p->head_dim_v};
    x.q = tensor_map(a->q, p->dtype, q, strides_of_q(p), br);
    x.k = tensor_map(a->k, p->dtype, k, strides_of_k(p), bc);
    x.v = tensor_map(a->v, p->dtype, v, strides_of_v(p), bc);
    x.o = tensor_map(a->o, p->dtype, o, strides_of_o(p), 64);
    return x;
}

/* Work tiles of all heads. */
static inline int n_work_tiles(const struct params &params, const struct problem *p)
{
    return (int)(params.tiles * p->heads_q * p->batch);
}

/* `per_sm` blocks for each multiprocessor, or as many as work tiles if these are fewer. */
static inline int persistent_blocks(int n_tiles, int per_sm = 1)
{
    int n = per_sm * device_attribute<cudaDevAttrMultiProcessorCount>();
    return n_tiles < n ? n_tiles : n;
}

/* The larger of the two head dimensions. */
static inline size_t wider_head(const struct problem *p)
{
    return p->head_dim > p->head_dim_v ? p->head_dim : p->head_dim_v;
}

/* Calls LAUNCH<type, head dimension>: the smallest instance that holds both heads; the
 * columns that are missing are zeros, which TMA writes and does not store. */
#define LAUNCH_FOR(LAUNCH, p, a)                                                         \
    do {                                                                                 \
        if ((p)->dtype == BF16) LAUNCH_IN(LAUNCH, __nv_bfloat16, p, a);                  \
        else LAUNCH_IN(LAUNCH, __half, p, a);                                            \
    } while (0)
#define LAUNCH_IN(LAUNCH, T, p, a)                                                       \
    (wider_head(p) <= 64 ? LAUNCH<T, 64>(p, a)                                           \
     : wider_head(p) <= 128 ? LAUNCH<T, 128>(p, a) : LAUNCH<T, 256>(p, a))

/* Calls LAUNCH<type, D, DV>, the columns of Q and K, and of V, with widths in between.  192 and 128
 * are those of DeepSeek's models. */
#define LAUNCH_FOR_WIDTHS(LAUNCH, p, a)                                                  \
    do {                                                                                 \
        if ((p)->dtype == BF16) LAUNCH_WIDTHS_IN(LAUNCH, __nv_bfloat16, p, a);           \
        else LAUNCH_WIDTHS_IN(LAUNCH, __half, p, a);                                     \
    } while (0)
#define LAUNCH_WIDTHS_IN(LAUNCH, T, p, a)                                                \
    (wider_head(p) <= 64 ? LAUNCH<T, 64, 64>(p, a)                                       \
     : wider_head(p) <= 96 ? LAUNCH<T, 96, 96>(p, a)                                     \
     : wider_head(p) <= 128 ? LAUNCH<T, 128, 128>(p, a)                                  \
     : wider_head(p) > 192 ? LAUNCH<T, 256, 256>(p, a)                                   \
     : (p)->head_dim_v <= 128 ? LAUNCH<T, 192, 128>(p, a) : LAUNCH<T, 192, 192>(p, a))

/* The part of the descriptor that is the same for all, and what the rungs support. */
#define HOPPER_DEVICE                                                                    \
    .group = IN_HOPPER, .device = GPU_DEVICE, .least_arch = 90, .only_arch = 90,         \
    .types = TYPE(F16) | TYPE(BF16)
#define HOPPER_SUPPORTS                                                                  \
    (WITH_CAUSAL | WITH_GROUPS | WITH_HEAD_DIM_V | WITH_SHIFT | WITH_STRIDES)
#define HOPPER_VARIANT                                                                   \
    HOPPER_DEVICE, .supports = HOPPER_SUPPORTS, .max_score = INFINITY, .masked_rows = 1, \
    .refuses = hopper_refuses

/* The end of a rung with launch() and config, whose tiles above d = 64 are alike: what it costs, and
 * its descriptor.  A third argument is the function `workspace`. */
#define HOPPER_RUNG(rung, words, ...)                                                    \
    static void attention(const struct problem *p, const struct arrays *a)               \
    {                                                                                    \
        LAUNCH_FOR(launch, p, a);                                                        \
    }                                                                                    \
    static struct cost cost(const struct problem *p)                                     \
    {                                                                                    \
        const int rows[] = {config<__half, 64>::Br, config<__half, 128>::Br};            \
        return attention_cost(p, (size_t)rows[wider_head(p) > 64]);                      \
    }                                                                                    \
    GPU_VARIANT(rung, words, HOPPER_VARIANT, __VA_OPT__(.workspace = __VA_ARGS__,)       \
                .cost = cost, .does = {{OP_ATTENTION, attention}})
