/* hopper_launch.h: the host's side of the Hopper rungs of the backward ladder. */
#pragma once

#include "attention.h"
#include "backward/hopper_tiles.h"

/* Tiles of queries and keys: S^T and dP^T take Br / 2 registers each, dK and dV D / 2
 * each; at head dims 64 and 128 that makes 192.  At 256 two consumers share dK and dV (rung 6). */
template <class Type, enum dtype DTYPE, int HEAD_DIM> struct backward_config {
    using T = Type;
    static constexpr enum dtype TYPE_OF_T = DTYPE;
    static constexpr int D = HEAD_DIM, Bc = D == 256 ? 64 : 128, Br = D == 64 ? 128 : 64;
    static constexpr int STAGES = 2, DO_STAGES = D == 256 ? 1 : 2; /* tiles of Q and of dO */
    static constexpr int THREADS = 384, DS_WARPS = D == 256 ? 4 : 8; /* warps that write dS */
    /* Arrivals that release a tile of Q or dO: one of each consumer; at 256 of each warp, which is
     * more than it needs (hopper_asynchrony.md, section 3). */
    static constexpr int RELEASES = D == 256 ? 8 : 2;
    static constexpr bool PACKED = false; /* are sequences, in one array? */
    static constexpr bool STAGED = false; /* dq passes through shared memory (rung 5) */
    static constexpr int STEP = 1; /* to the next tile of queries; 0: as key_work says (rung 8) */
    static constexpr int DQ_BLOCKS = Br * D / (2 * 64 * 64); /* of a consumer, in a tile */
    static_assert(STAGES == 2, "dS has two places, too");
    static_assert(D == 64 || D == 128 || D == 256, "dQ: 64 queries of 128, or 64 columns");
};

/* Bytes before dq_sum in the workspace; dq_sum has whole tiles of D columns. */
template <class C> static size_t backward_workspace(const struct problem *p)
{
    return (8 + C::D) * padded_rows(p, C::Br) * sizeof(float);
}

/* The map of an array [batch, heads, n.rows, columns].  In packed ones a box at row n.rows -
 * length + i, "batch" first + length is that of row i of the sequence first ... first + length
 * - 1: both dimensions go by rows, from n.rows rows before the array.  So what lies behind a
 * *sequence* is outside: zeros. */
static CUtensorMap sequences_map(const struct problem *p, const void *array, struct shape4 n,
                                 struct strides s, int box_rows)
{
    if (!p->packed) return tensor_map(array, p->dtype, n, s, box_rows);
    n.batch = n.rows + 1, s.batch = s.row;
    return tensor_map((const uint16_t *)array - n.rows * s.row, p->dtype, n, s, box_rows);
}

template <class C>
static struct backward_params<C::TYPE_OF_T> backward_params_of(const struct problem *p,
                                                              const struct arrays *a)
{
    struct backward_params<C::TYPE_OF_T> params;
    const struct shape4 q = {p->batch, p->heads_q, stored_queries(p), p->head_dim};
    const struct shape4 k = {p->batch, p->heads_kv, stored_keys(p), p->head_dim};
    const struct shape4 v = {p->batch, p->heads_kv, stored_keys(p), p->head_dim_v};
    const struct shape4 o = {p->batch, p->heads_q, stored_queries(p), p->head_dim_v};
    params.q = sequences_map(p, a->q, q, strides_of_q(p), C::Br);
    params.k = sequences_map(p, a->k, k, strides_of_k(p), C::Bc);
    params.v = sequences_map(p, a->v, v, strides_of_v(p), C::Bc);
    params.d_o = sequences_map(p, a->d_o, o, strides_or({0, 0, 0}, o.heads, o.rows, o.columns),
                               C::Br);
    params.x = gradient_of<C::TYPE_OF_T>(p, a, C::Br, C::Bc);
    params.x.terms = (uint16_t *)a->workspace;
    params.x.dq_sum = (float *)a->workspace + 8 * params.x.rows;
    params.c = p->scale * 1.44269504f;
    params.window = is_causal(params.x) ? 8 : 1;
    params.counter = NULL;
    return params;
}

/* lse and D, dq_sum = 0 unless the first adder stores, the kernel given, dq.
 *   lasting  a block for each multiprocessor, and a counter behind dq_sum, 0, too */
template <class C, class MEMORY, bool ZERO = true, class KERNEL>
static void launch_backward(KERNEL kernel, const struct backward_params<C::TYPE_OF_T> &params,
                            void *stream, bool lasting = false)
{
    const struct gradient<C::TYPE_OF_T> &x = params.x;
    const int blocks = x.batch * x.heads_kv * x.key_tiles;
    const size_t numbers = x.rows * C::D;
    launch_row_sums<C::TYPE_OF_T, true, C::PACKED ? C::Br : 0>(x, stream);
    if (ZERO)
        CUDA_CHECK(cudaMemsetAsync(x.dq_sum, 0, (numbers + lasting) * sizeof(float),
                                   (cudaStream_t)stream));
    start(kernel, lasting ? persistent_blocks(blocks) : blocks, C::THREADS, sizeof(MEMORY), stream,
          params);
    start(store_dq_kernel<C, C::TYPE_OF_T>, numbers / 4096, 128, 0, stream, x);
}

/* A config, but of packed sequences. */
template <class C> struct packed : C { static constexpr bool PACKED = true; };

/* Calls use(config) with the one for the problem: the least of the DIMS that holds its two. */
template <template <class, enum dtype, int> class CONFIG, int... DIMS, class F>
static void with_config(const struct problem *p, F use)
{
    const int d = head_dim_of<DIMS...>(p);
    auto if_it_is = [&](auto config) {
        if (config.D != d || config.TYPE_OF_T != p->dtype) return;
        if (p->packed) use(packed<decltype(config)>());
        else use(config);
    };
    (if_it_is(CONFIG<__nv_bfloat16, BF16, DIMS>()), ...);
    (if_it_is(CONFIG<__half, F16, DIMS>()), ...);
}

template <template <class, enum dtype, int> class CONFIG, int... DIMS>
static size_t workspace_of(const struct problem *p)
{
    size_t bytes = 0;
    with_config<CONFIG, DIMS...>(p, [&](auto c) { bytes = backward_workspace<decltype(c)>(p); });
    return bytes;
}

[[maybe_unused]] static const char *hopper_gradient_refuses(const struct problem *p, size_t widest)
{
    if (p->head_dim > widest || p->head_dim_v > widest)
        return widest == 128 ? "a head_dim above 128" : "a head_dim above 256";
    if (p->head_dim % 8 || p->head_dim_v % 8) return "a head_dim that is no multiple of 8";
    if (!steps_of_16_bytes(p->q_strides) || !steps_of_16_bytes(p->k_strides) ||
        !steps_of_16_bytes(p->v_strides) || !steps_of_16_bytes(p->o_strides))
        return "a stride that is no multiple of 16 bytes";
    /* lse / scale, as terms: in float16 |lse| may be 2^31 scale */
    if (!(fabsf(p->scale) >= 1e-6f)) return "a scale below 1e-6";
    if (p->dtype == F16 && fabsf(p->scale) < 1e-4f) return "float16 with a scale below 1e-4";
    if (!p->seqlen_q || !p->seqlen_k || !p->batch) return "no queries or keys";
    return gradient_too_large(p);
}

/* Is a fixed order of additions (rung 8) faster?  Where an element of dq has few terms: nobody sets dq
 * to 0, and few wait (notes/gradient_on_gpus.md has the times). */
#define IN_ORDER_UP_TO (1 << 17) /* keys x head_dim */
[[maybe_unused]] static int is_faster_in_order(const struct problem *p)
{
    return p->seqlen_k * max(p->head_dim, p->head_dim_v) <= IN_ORDER_UP_TO;
}

[[maybe_unused]] static const char *narrow_refuses(const struct problem *p)
{
    return hopper_gradient_refuses(p, 128);
}

[[maybe_unused]] static const char *wide_refuses(const struct problem *p)
{
    return hopper_gradient_refuses(p, 256);
}

#define HOPPER_GRADIENT                                                                       \
    .group = IN_BACKWARD, .device = GPU_DEVICE, .least_arch = 90, .only_arch = 90,            \
    .types = TYPE(F16) | TYPE(BF16),                                                          \
    .supports = WITH_CAUSAL | WITH_GROUPS | WITH_HEAD_DIM_V | WITH_SHIFT | WITH_WINDOW |      \
                WITH_STRIDES | WITH_PACKED,                                                   \
    .max_score = INFINITY, .masked_rows = 1
