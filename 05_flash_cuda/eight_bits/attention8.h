/* attention8.h: attention whose q, k and v have 8 bits, as the rungs of this directory configure it.
 * Persistent blocks, turns and overlap are those of rung 13 (hopper/13_first_block_max.cu).  New:
 *
 *   units    pipelines and copies count in units of 16 bits: C::D is half a row of Q or K
 *   scales   of a key head: those of q and k in c, that of v in the last division
 *   maximum  a weight has at most 448, so the reference of the first block does not last.  Weights
 *            become operands without touching the scores.  So the scores are still there when the
 *            weights' sum says that one may be too large: then the block is weighed again with its
 *            maximum, and with smaller weights, so that the sum of equal ones no longer says so
 *
 * Exponentials take as long as both products at d = 128.  A score costs three and a half
 * instructions: a multiply-add, an exponential, an addition to l, half a conversion.  No maximum, no
 * rescaling. */
#ifndef EIGHT_BITS_ATTENTION8_H
#define EIGHT_BITS_ATTENTION8_H

#include "hopper/q_fragments.h"
#include "hopper/scheduler.h"
#include "hopper/store.h"
#include "values.h"

/* SCORES: e4m3 or int8.  VALUES: e4m3, or __half: V is widened.  SUM_TILES: tiles of keys after
 * which o is added to sums in float, 0: never.  CONSUMERS and KEYS: chosen by measurement (tiles8). */
template <int HEAD_DIM, class SCORES, class VALUES, int SUM_TILES, int CONSUMERS, int KEYS,
          int STAGES, bool Q_REGISTERS, bool LATE>
struct config8 {
    using T = __nv_bfloat16; /* o, and a unit of 16 bits */
    using Scores = SCORES;
    static constexpr int D = HEAD_DIM / 2, DV = HEAD_DIM;
    static constexpr bool WIDE = std::is_same_v<VALUES, __half>;
    static constexpr bool IS_INT8 = std::is_same_v<SCORES, int8>;
    static constexpr int SUMS = SUM_TILES;
    static constexpr int WARPGROUPS = CONSUMERS, Br = 64 * WARPGROUPS, Bc = KEYS;
    static constexpr int K_STAGES = STAGES, V_STAGES = STAGES;
    static constexpr int Q_STAGES = HEAD_DIM == 256 ? 1 : 2;
    static constexpr int V_ROWS = WIDE ? Bc : DV, V_COLUMNS = WIDE ? DV : Bc / 2;
    static constexpr int V_TILE = V_ROWS * IN_PANELS<V_COLUMNS>;
    static constexpr int STAGED = 64 * DV * (SUMS ? 2 : 1); /* of o, by a warpgroup; or sums */
    static constexpr bool Q_IN_REGISTERS = Q_REGISTERS;
    static constexpr bool LATE_TURN = LATE; /* it passes when the scores are ready (rung 14) */
    static constexpr int WEIGHTS = WIDE ? Bc / 4 : Bc / 8; /* registers */
    /* The exponent of the largest weight, of the first block and of a block weighed again: then
     * Bc / 4 equal weights do not pass the limit, or a row is weighed twice for ever. */
    static constexpr int FIRST_LARGEST = WIDE ? 0 : 6, LARGEST = WIDE ? 0 : Bc > 96 ? 3 : 4;
    static constexpr float LIMIT_OF_SUM = WIDE ? 64.0f : 448.0f;
    static_assert((Bc / 4 << LARGEST) <= LIMIT_OF_SUM, "see LARGEST");
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 40 : 32;
    static constexpr int REGISTERS = WARPGROUPS == 2 ? 232 : 160;
};

/* The tiles of a head dimension: consumers, keys, stages, Q in registers, late turns. */
template <int HEAD_DIM, class SCORES, class VALUES, int SUMS> struct tiles8 {
    static constexpr bool WIDE = std::is_same_v<VALUES, __half>;
    using config =
        std::conditional_t<HEAD_DIM == 64,
                           config8<64, SCORES, VALUES, SUMS, SUMS ? 2 : 3, WIDE ? 96 : 128, 3, true,
                                   false>,
        std::conditional_t<HEAD_DIM == 256,
                           config8<256, SCORES, VALUES, SUMS, 2, 64, 2, false, false>,
        std::conditional_t<WIDE || SUMS != 0,
                           config8<128, SCORES, VALUES, SUMS, 2, 128, 2, false, false>,
                           config8<128, SCORES, VALUES, SUMS, 3, 96, 3, false, true>>>>;
};

/* The scales: [batch, heads_kv], NULL: 1. */
struct scales { const float *q, *k, *v; int heads_kv; };

template <class C> struct memory8 {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::WARPGROUPS * C::STAGED];
};

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer8 {
    float s[C::Bc / 2], o[C::DV / 2], c; /* log2(weight) = c s - mc */
    uint32_t p[C::WEIGHTS];
    q_operand<C> q;
    struct rows rows;
    struct pipeline_state k_at, v_at;
};

/* The producer, one thread: Q, then K and V block by block. */
template <class C>
static __device__ __forceinline__ void load_values(kv_pipeline<C> &kv, struct pipeline_state &at,
                                                   const struct params &params, int n,
                                                   int head_kv, int batch)
{
    mbarrier_wait(&kv.v_empty[at.index], at.phase);
    load_tile<C, C::V_ROWS, C::V_COLUMNS>(kv.v[at.index], &params.v, &kv.v_full[at.index],
                                          n * C::V_ROWS, head_kv, batch);
    advance<C::V_STAGES>(at);
}

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
        for (int n = 0; n < n_blocks; n++) {
            load_k(sm.kv, k_at, params, n * C::Bc, head_kv, t.batch);
            if (n > 0) load_values(sm.kv, v_at, params, n - 1, head_kv, t.batch);
        }
        tile = next_tile(s, tile);
        if (n_blocks > 0) load_values(sm.kv, v_at, params, n_blocks - 1, head_kv, t.batch);
    }
    mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
    end_of_work(sm.q, q_at.index);
}

/* A turn is a named barrier for each consumer.  Its owner waits there for the one before. */
static __device__ __forceinline__ void acquire_turn(int w) { named_barrier_sync(1 + w, 256); }

template <class C> static __device__ __forceinline__ void release_turn(int w)
{
    asm("" : "+r"(w)); /* or the number below takes a register for the whole loop */
    named_barrier_arrive(w + 1 == C::WARPGROUPS ? 1 : 2 + w, 256);
}

/* ---- products ---- */

/* Columns 32 i ... 32 i + 31 of the queries. */
template <class C>
static __device__ __forceinline__ auto q_part(const q_operand<C> &q, int i)
{
    if constexpr (C::Q_IN_REGISTERS) return q + 4 * i;
    else return q + i / 4 * (C::Br * 128 >> 4) + i % 4 * 2;
}

template <class C, class NUMBER>
static __device__ __forceinline__ void issue_qk8(NUMBER (&s)[C::Bc / 2],
                                                 const q_operand<C> &q,
                                                 const typename C::T *k_tile)
{
    mark(QK);
    const uint64_t k = descriptor_qk(k_tile);
    wgmma8_qk<typename C::Scores, true>(s, q_part<C>(q, 0), k);
#pragma unroll
    for (int i = 1; i < C::D / 16; i++)
        wgmma8_qk<typename C::Scores, false>(s, q_part<C>(q, i),
                                             k + i / 4 * (C::Bc * 128 >> 4) + i % 4 * 2);
    wgmma_commit();
}

template <class C>
static __device__ __forceinline__ void issue_pv8(float (&o)[C::DV / 2],
                                                 const uint32_t (&p)[C::WEIGHTS],
                                                 const typename C::T *v_tile)
{
    mark(PV);
    if constexpr (C::WIDE) {
        const uint64_t v = descriptor_v(v_tile, C::Bc);
#pragma unroll
        for (int i = 0; i < C::Bc / 16; i++) wgmma_pv<__half>(o, p + 4 * i, v + 128 * i);
    } else {
        const uint64_t v = descriptor_qk(v_tile);
#pragma unroll
        for (int i = 0; i < C::Bc / 32; i++) wgmma8_pv(o, p + 4 * i, v + 2 * i);
    }
    wgmma_commit();
}

/* ---- weights ---- */

/* p = 2^(s c - mc) as the operand of P V, summed into l; s stays. */
template <class C>
static __device__ __forceinline__ void weigh(const float (&s)[C::Bc / 2], struct rows &r, float c,
                                             uint32_t (&p)[C::WEIGHTS])
{
    mark(WEIGHTS);
#pragma unroll
    for (int i = 0; i < C::Bc / 2; i += 8) {
        float x[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            x[j] = exp2_fast(fmaf(s[i + j], c, -r.mc[j / 2 % 2]));
            r.l[j / 2 % 2] += x[j];
        }
        if constexpr (C::WIDE) {
#pragma unroll
            for (int j = 0; j < 8; j += 2) p[(i + j) / 2] = pack<__half>(x[j], x[j + 1]);
        } else {
            p[i / 4] = pack_e4m3(x[0], x[1], x[4], x[5]);
            p[i / 4 + 1] = pack_e4m3(x[2], x[3], x[6], x[7]);
        }
    }
}

/* Whether some weight of a row of the warp may not fit: the sum of a thread's weights is larger than
 * any of them.
 *   l  the rows' l before the block */
template <class C>
static __device__ __forceinline__ bool may_be_too_large(const struct rows &r, const float (&l)[2])
{
    return __any_sync(0xffffffffu, r.l[0] - l[0] > C::LIMIT_OF_SUM ||
                                       r.l[1] - l[1] > C::LIMIT_OF_SUM);
}

/* m = max(m, the block's), with a weight of 2^largest there.  alpha is the factor of what was summed
 * before. */
template <class C>
static __device__ __forceinline__ void refer_to_block(const float (&s)[C::Bc / 2], struct rows &r,
                                                      float c, float largest, float (&alpha)[2])
{
    float top[2];
    row_maxima(s, top);
    for (int i = 0; i < 2; i++) {
        const float before = r.mc[i];
        r.m[i] = fmaxf(r.m[i], top[i]);
        r.mc[i] = r.m[i] == -INFINITY ? NO_SCORE : fmaf(r.m[i], c, -largest);
        alpha[i] = exp2_fast(before - r.mc[i]);
        r.l[i] *= alpha[i];
    }
}

/* ---- sums in float (C::SUMS): in shared memory, where each thread has its own words ---- */

/* Four sums of the thread, those of o[4 i] ... o[4 i + 3].  They lie where o is staged. */
template <class C> static __device__ __forceinline__ float4 &sum_at(memory8<C> &sm, int i)
{
    const int w = (int)threadIdx.x / 128 - 1, t = (int)threadIdx.x % 128;
    return ((float4 *)(sm.o + w * C::STAGED))[i * 128 + t];
}

/* sums = factor sums + o, row by row. */
template <class C>
static __device__ __forceinline__ void add_sums(memory8<C> &sm, const float (&o)[C::DV / 2],
                                                const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < C::DV / 8; i++) {
        float4 &sum = sum_at(sm, i);
        const float4 x = sum;
        sum = make_float4(fmaf(x.x, factor[0], o[4 * i]), fmaf(x.y, factor[0], o[4 * i + 1]),
                          fmaf(x.z, factor[1], o[4 * i + 2]), fmaf(x.w, factor[1], o[4 * i + 3]));
    }
}

/* Moves o to the sums; the first time of a tile, when the o of the tile before has been stored. */
template <class C>
static __device__ __forceinline__ void flush(consumer8<C> &x, memory8<C> &sm, int w, bool begins)
{
    const float one[2] = {1.0f, 1.0f};
    if (begins) {
        if (threadIdx.x % 128 == 0) tma_store_wait_read();
        named_barrier_sync(8 + w, 128);
#pragma unroll
        for (int i = 0; i < C::DV / 8; i++) sum_at(sm, i) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    add_sums(sm, x.o, one);
#pragma unroll
    for (int i = 0; i < C::DV / 2; i++) x.o[i] = 0.0f;
}

/* o += sums. */
template <class C>
static __device__ __forceinline__ void take_sums(consumer8<C> &x, memory8<C> &sm)
{
#pragma unroll
    for (int i = 0; i < C::DV / 8; i++) {
        const float4 sum = sum_at(sm, i);
        x.o[4 * i] += sum.x, x.o[4 * i + 1] += sum.y;
        x.o[4 * i + 2] += sum.z, x.o[4 * i + 3] += sum.w;
    }
}

/* Weighs the block again with its maximum; `l` is the rows' l without it.  It is not in o yet. */
template <class C>
static __device__ __forceinline__ void weigh_again(consumer8<C> &x, memory8<C> &sm, int n,
                                                   const float (&l)[2], uint32_t (&p)[C::WEIGHTS])
{
    float alpha[2];
    x.rows.l[0] = l[0], x.rows.l[1] = l[1];
    refer_to_block<C>(x.s, x.rows, x.c, C::LARGEST, alpha);
    weigh<C>(x.s, x.rows, x.c, p);
    scale_rows(x.o, alpha);
    if (C::SUMS > 0 && n >= C::SUMS) {
        const float nothing[C::DV / 2] = {};
        add_sums(sm, nothing, alpha);
    }
}

/* Key block n, and the output of block n - 1 (there is none before block 0). */
template <class C, bool FIRST>
static __device__ __forceinline__ void step8(consumer8<C> &x, memory8<C> &sm,
                                             const struct params &params, int w, int row, int n,
                                             bool mask)
{
    kv_pipeline<C> &kv = sm.kv;
    uint32_t p[C::WEIGHTS], raw[C::IS_INT8 ? C::Bc / 2 : 1];
    float alpha[2];
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    if constexpr (C::IS_INT8) issue_qk8<C>(raw, x.q, kv.k[x.k_at.index]);
    else issue_qk8<C>(x.s, x.q, kv.k[x.k_at.index]);
    if (!FIRST) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv8<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    if (!C::LATE_TURN) release_turn<C>(w);
    wgmma_wait<FIRST ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    if (C::LATE_TURN) release_turn<C>(w);
    if constexpr (C::IS_INT8) {
        warpgroup_fence_operand(raw);
#pragma unroll
        for (int i = 0; i < C::Bc / 2; i++) x.s[i] = (float)(int32_t)raw[i]; /* exact */
    }
    warpgroup_fence_operand(x.s);
    release(kv.k_empty, x.k_at);
    if (mask) mask_block<C>(x.s, params, row, n);
    if (FIRST) refer_to_block<C>(x.s, x.rows, x.c, C::FIRST_LARGEST, alpha);
    const float l[2] = {x.rows.l[0], x.rows.l[1]};
    weigh<C>(x.s, x.rows, x.c, p);
    if (!FIRST) {
        wgmma_wait<0>();
        warpgroup_fence_operand(x.o);
        release(kv.v_empty, x.v_at);
        if (C::SUMS > 0 && n % (C::SUMS > 0 ? C::SUMS : 1) == 0) flush(x, sm, w, n == C::SUMS);
    }
    if (!FIRST && may_be_too_large<C>(x.rows, l)) weigh_again(x, sm, n, l, p);
#pragma unroll
    for (int i = 0; i < C::WEIGHTS; i++) x.p[i] = copied(p[i]);
    warpgroup_fence_operand(x.o);
    warpgroup_fence_operand(x.p);
}

/* The output of the last block. */
template <class C>
static __device__ __forceinline__ void last_pv8(consumer8<C> &x, kv_pipeline<C> &kv)
{
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    wgmma_fence();
    issue_pv8<C>(x.o, x.p, kv.v[x.v_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.o);
    release(kv.v_empty, x.v_at);
}

/* Writes the consumer's 64 rows of o and lse. */
template <class C>
static __device__ __forceinline__ void epilogue8(consumer8<C> &x, memory8<C> &sm,
                                                 const struct params &params,
                                                 const struct work_tile &t, int w, float v_scale)
{
    const int first = t.tile * C::Br + 64 * w, row = first + first_row();
    const size_t head = (size_t)t.batch * params.heads_q + t.head;
    normalize(x.o, x.rows, params, row, head);
    const float scale[2] = {v_scale, v_scale};
    scale_rows(x.o, scale);
    if (threadIdx.x % 128 == 0) tma_store_wait_read(); /* the tile before */
    named_barrier_sync(8 + w, 128);
    store_through_tma<C>(x.o, sm.o + w * C::STAGED, params, first, t, 8 + w);
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
        release_turn<C>(w);
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w);
    }
    epilogue8(x, sm, params, t, w, scale_at(scales.v, key_head));
}

template <class C>
static __device__ __forceinline__ void consume(memory8<C> &sm, const struct params &params,
                                               const struct scales &scales, int w)
{
    consumer8<C> x;
    struct pipeline_state q_at = {0, 0};
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) release_turn<C>(w); /* consumer 0 begins */
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
    start<C, memory8<C>, true>(attention8_kernel<C>, persistent_blocks(s.n_tiles), a->stream,
                               params, s, scales);
}

/* What these rungs do not do beside a bias. */
[[maybe_unused]] static const char *eight_bits_refuses(const struct problem *p)
{
    const struct strides rows[] = {p->q_strides, p->k_strides, p->v_strides};
    for (struct strides s : rows)
        if (s.batch % 16 || s.head % 16 || s.row % 16)
            return "a stride that is no multiple of 16 bytes";
    if (p->head_dim % 16 || p->head_dim_v % 16)
        return "a head_dim that is no multiple of 16 in 8 bits";
    return hopper_refuses(p);
}

[[maybe_unused]] static const char *sums_refuse(const struct problem *p)
{
    return wider_head(p) > 128 ? "a head_dim above 128: shared memory has no room for the sums"
                               : eight_bits_refuses(p);
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
    GPU_VARIANT(rung) = {.name = #rung, .idea = words, .group = IN_EIGHT_BITS,             \
                         .device = GPU_DEVICE, .least_arch = 90, .only_arch = 90,          \
                         .types = TYPE(type),                                              \
                         .supports = HOPPER_SUPPORTS | WITH_EIGHT_BITS,                    \
                         .max_score = INFINITY, .masked_rows = 1,                          \
                         .refuses = SUMS ? sums_refuse : eight_bits_refuses, .workspace = workspace,            \
                         .cost = cost, .does = {{OP_ATTENTION, attention}},                \
                         .on_gpu = GPU_TWIN(rung)}
#endif
