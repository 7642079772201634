/* attention8.h: attention whose q, k and v have 8 bits, as the rungs of this directory configure it.
 * Persistent blocks, turns and overlap are those of rung 13 (hopper/13_first_block_max.cu).  New:
 *
 *   units    pipelines and copies count in units of 16 bits: C::D is half a row of Q or K
 *   scales   of a key head: those of q and k in c, that of v in the last division
 *   maximum  a weight has at most 448, so the reference of the first block does not last.  Weights
 *            become operands without touching the scores.  So the scores are still there when the
 *            weights' sum says that one may be too large: then the block is weighed again with its
 *            maximum as 256, or, where it is not alone, with weights so small that the sum of equal
 *            ones no longer says so
 *
 * Exponentials take as long as both products at d = 128.  A score costs three and a half
 * instructions: a multiply-add, an exponential, an addition to l, half a conversion.  No maximum, no
 * rescaling. */
#pragma once

#include "hopper/store.h"
#include "step8.h"

/* The producer, one thread: Q, then K and V block by block. */
template <class C>
static __device__ __forceinline__ void produce(memory8<C> &sm, const struct params &params,
                                               const struct scheduler &s)
{
    struct pipeline_state q_at = {0, 1}, k_at = {0, 1}, v_at = {0, 1};
    wait_for_previous_kernel(); /* it prepared the values */
    for (int tile = blockIdx.x; tile < s.n_tiles;) {
        const struct work_tile t = find_tile(s, params, tile);
        const int n_blocks = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
        const int head_kv = t.head / params.group;
        mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
        load_q(sm.q, q_at.index, params, t);
        advance<C::Q_STAGES>(q_at);
        load_kv(sm.kv, k_at, v_at, params, n_blocks, head_kv, t.batch);
        tile = next_tile(s, tile);
        load_last_v(sm.kv, v_at, params, n_blocks, head_kv, t.batch);
    }
    mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
    end_of_work(sm.q, q_at.index);
}

static __device__ __forceinline__ float scale_at(const float *scales, int i)
{
    return scales ? scales[i] : 1.0f;
}

/* Consumer w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ __forceinline__ void attend8(consumer8<C> &x, memory8<C> &sm,
                                               const struct params &params,
                                               const struct scales &scales,
                                               const struct work_tile &t, int w, int q_index)
{
    const int first = t.tile * C::Br + 64 * w, row = first + first_row();
    const int n_tile = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
    const int n_blocks = first < params.seqlen_q ? blocks_seen<C>(params, first + 63) : 0;
    const int n_open = blocks_open<C>(params, first);
    const int key_head = t.batch * scales.heads_kv + t.head / params.group;
    int n = 0;
    x.c = params.c * scale_at(scales.q, key_head) * scale_at(scales.k, key_head);
    clear(x.rows, x.o);
    x.rows.mc[0] = x.rows.mc[1] = NO_SCORE;
    if (n_blocks > 0) {
        set_q<C>(x.q, sm.q.q[q_index] + w * 64 * 64);
        step8<C, true>(x, sm, params, w, row, n++, n_open == 0);
        for (; n < n_open; n++) step8<C, false>(x, sm, params, w, row, n, false);
        for (; n < n_blocks; n++) step8<C, false>(x, sm, params, w, row, n, true);
    }
    release_q(&sm.q.empty[q_index]);
    if (n_blocks > 0) last_pv8(x, sm.kv);
    if (C::SUMS > 0 && n > C::SUMS) take_sums(x, sm);
    for (; n < n_tile; n++) { /* the other consumers need these */
        acquire_turn(w);
        pass_turn_on<C>(w);
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w);
    }
    store_tile<C>(x.o, sm.o, params, t, w, [&](int row, size_t head) {
        const float v_scale = scale_at(scales.v, key_head), scale[2] = {v_scale, v_scale};
        normalize(x.o, x.rows, params, row, head);
        scale_rows(x.o, scale);
    });
}

template <class C>
static __device__ __forceinline__ void consume(memory8<C> &sm, const struct params &params,
                                               const struct scales &scales, int w)
{
    consumer8<C> x;
    struct pipeline_state q_at = {0, 0};
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) pass_turn_on<C>(w); /* consumer 0 begins */
    for (;; advance<C::Q_STAGES>(q_at)) {
        mbarrier_wait(&sm.q.full[q_at.index], q_at.phase);
        const struct work_tile t = sm.q.tile[q_at.index];
        if (t.tile < 0) break;
        attend8(x, sm, params, scales, t, w, q_at.index);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    attention8_kernel(const __grid_constant__ struct params params, const struct scheduler s,
                      const struct scales scales)
{
    memory8<C> &sm = dynamic_shared<memory8<C>>();
    if (threadIdx.x == 0) {
        q_init(sm.q);
        kv_init(sm.kv);
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(sm, params, s);
    } else {
        setmaxnreg_inc<C::REGISTERS>();
        consume(sm, params, scales, w - 1);
    }
}

/* ---- the host's side ---- */

/* Strides in units of 16 bits. */
static inline struct strides in_pairs(struct strides s)
{
    return {s.batch / 2, s.head / 2, s.row / 2};
}

template <class C> static void launch8(const struct problem *p, const struct arrays *a)
{
    const struct shape4 q = {p->batch, p->heads_q, p->seqlen_q, p->head_dim / 2};
    const struct shape4 k = {p->batch, p->heads_kv, p->seqlen_k, p->head_dim / 2};
    const struct shape4 o = {p->batch, p->heads_q, p->seqlen_q, p->head_dim_v};
    struct params params = scalar_params(p, a, C::Br);
    params.q = tensor_map(a->q, BF16, q, in_pairs(strides_of_q(p)), C::Br);
    params.k = tensor_map(a->k, BF16, k, in_pairs(strides_of_k(p)), C::Bc);
    params.o = tensor_map(a->o, BF16, o, strides_of_o(p), 64);
    struct arrays with_counter = *a;
    with_counter.workspace = (char *)a->workspace + value_bytes<C>(p);
    const struct scheduler s = scheduler_of(params, p, &with_counter);
    const struct scales scales = {a->q_scale, a->k_scale, a->v_scale, (int)p->heads_kv};
    params.v = prepare_values<C>(p, a);
    start<EARLY>(attention8_kernel<C>, persistent_blocks(s.n_tiles), C::THREADS, sizeof(memory8<C>),
                 a->stream, params, s, scales);
}

/* What these rungs do not do beside a bias. */
template <int SUMS> static const char *eight_bits_refuses(const struct problem *p)
{
    if (SUMS > 0 && wider_head(p) > 128)
        return "a head_dim above 128: shared memory has no room for the sums";
    const struct strides rows[] = {p->q_strides, p->k_strides, p->v_strides};
    for (struct strides s : rows)
        if (s.batch % 16 || s.head % 16 || s.row % 16)
            return "a stride that is no multiple of 16 bytes";
    if (p->head_dim % 16 || p->head_dim_v % 16)
        return "a head_dim that is no multiple of 16 in 8 bits";
    return hopper_refuses(p);
}

/* f<config>(arguments) for the smallest head dimension that holds both heads. */
#define FOR_WIDTH(f, SCORES, VALUES, SUMS, p, ...)                                         \
    (wider_head(p) <= 64 ? f<tiles8<64, SCORES, VALUES, SUMS>::config>(__VA_ARGS__)        \
     : wider_head(p) <= 128 ? f<tiles8<128, SCORES, VALUES, SUMS>::config>(__VA_ARGS__)    \
                            : f<tiles8<SUMS ? 128 : 256, SCORES, VALUES, SUMS>::config>(__VA_ARGS__))

template <class C> static size_t bytes8(const struct problem *p)
{
    return value_bytes<C>(p) + sizeof(int); /* and the counter that gives out work tiles */
}

/* The end of a rung: its functions, and its descriptor. */
#define EIGHT_BITS_RUNG(rung, words, type, SCORES, VALUES, SUMS)                           \
    static void attention(const struct problem *p, const struct arrays *a)                 \
    {                                                                                      \
        FOR_WIDTH(launch8, SCORES, VALUES, SUMS, p, p, a);                                 \
    }                                                                                      \
    static size_t workspace(const struct problem *p)                                       \
    {                                                                                      \
        return FOR_WIDTH(bytes8, SCORES, VALUES, SUMS, p, p);                              \
    }                                                                                      \
    static struct cost cost(const struct problem *p) { return attention_cost(p, 128); }    \
    GPU_VARIANT(rung, words, .group = IN_EIGHT_BITS, .device = GPU_DEVICE,                  \
                .least_arch = 90, .only_arch = 90, .types = TYPE(type),                    \
                .supports = HOPPER_SUPPORTS | WITH_EIGHT_BITS, .max_score = INFINITY,      \
                .masked_rows = 1, .refuses = eight_bits_refuses<SUMS>,                     \
                .workspace = workspace, .cost = cost, .does = {{OP_ATTENTION, attention}})
