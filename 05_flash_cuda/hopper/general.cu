/* arch: sm_90a */
/* What a model asks of attention beside the plain operation, in one kernel with the structure of
 * rung 14.  What is added:
 *
 *   windows  blocks of keys outside of a tile's window are neither loaded nor computed; only
 *            blocks at its two edges are masked (key_blocks.h)
 *   packed   sequences of different lengths: a list of tiles, the heaviest first, is sorted on
 *            the GPU (work_list.h).  A copy may run over the end of a sequence: what it brings
 *            is masked, and the last rows of o leave from registers
 *   scores   soft cap, bias, sinks (score_terms.h); the first two are compiled in where they are
 *            asked for, so the plain path stays as it is */
#include "launch.h"
#include "q_fragments.h"
#include "score_terms.h"
#include "store.h"
#include "work_list.h"

template <class Type, int HEAD_DIM, bool HAS_SOFTCAP, bool HAS_BIAS> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = D == 64 ? 3 : 2, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 256 || (D == 128 && HAS_BIAS) ? 64 : 128;
    static constexpr int K_STAGES = D == 64 ? 3 : 2, V_STAGES = K_STAGES, K_RELEASES = 1;
    static constexpr int Q_STAGES = D == 256 ? 1 : 2;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = D == 64 ? 32 : 40, REGISTERS = D == 64 ? 160 : 232;
    static constexpr bool SOFTCAP = HAS_SOFTCAP, BIAS = HAS_BIAS;
    static constexpr bool Q_IN_REGISTERS = D == 128 && !BIAS;
    static constexpr bool TMA_STORE = D <= 128; /* shared memory is left for a tile of o */
};

/* The parameters beside the maps. */
struct call {
    struct sequences sequences;
    struct score_terms terms;
    struct scheduler scheduler;
    struct work_list list;
    int lse_rows; /* of a head in lse */
};

template <class C> struct memory {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::TMA_STORE ? C::Br * C::D : 8];
};

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer {
    float s[C::Bc / 2], o[C::D / 2], unit; /* log2(weight) = unit s + an offset */
    uint32_t p[C::Bc / 4];
    q_operand<C> q;
    struct rows rows;
    struct pipeline_state k_at, v_at;
};

/* The producer, one thread: Q, then K and V block by block. */
template <class C>
static __device__ __forceinline__ void produce(memory<C> &sm, const struct params &params,
                                               const struct call &call)
{
    struct pipeline_state q_at = {0, 1}, k_at = {0, 1}, v_at = {0, 1};
    const int n_tiles = tiles_of(call.list, call.scheduler, params);
    for (int n = blockIdx.x; n < n_tiles;) {
        const struct work_tile t = tile_of(call.list, call.scheduler, params, n);
        const rows_of_sequence s = find_sequence(call.sequences, t.batch);
        const struct blocks seen = blocks_some_see<C>(s, t.tile * C::Br, C::Br);
        mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
        sm.q.tile[q_at.index] = t;
        load_tile<C, C::Br>(sm.q.q[q_at.index], &params.q, &sm.q.full[q_at.index],
                            s.q + t.tile * C::Br, t.head, s.batch);
        advance<C::Q_STAGES>(q_at);
        int n_blocks = seen.end - seen.first, row = s.k + seen.first * C::Bc;
        int head_kv = t.head / params.group;
        load_kv(sm.kv, k_at, v_at, params, n_blocks, head_kv, s.batch, row);
        n = next_tile(call.scheduler, params, n);
        load_last_v(sm.kv, v_at, params, n_blocks, head_kv, s.batch, row);
    }
    mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
    end_of_work(sm.q, q_at.index);
}

/* A turn is a named barrier for each consumer.  Its owner waits there for the one before. */
static __device__ __forceinline__ void acquire_turn(int w) { named_barrier_sync(1 + w, 256); }
template <class C> static __device__ __forceinline__ void release_turn(int w)
{
    named_barrier_arrive(w + 1 == C::WARPGROUPS ? 1 : 2 + w, 256);
}

/* Key block n, and the output of the block before (there is none before the first). */
template <class C, bool FIRST>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct score_terms &terms,
                                            const rows_of_sequence &seq, int w, int row, int n,
                                            bool mask)
{
    float top[2], alpha[2];
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    issue_qk<C>(x.s, x.q, kv.k[x.k_at.index]);
    if (!FIRST) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    release_turn<C>(w);
    wgmma_wait<FIRST ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    warpgroup_fence_operand(x.s);
    release(kv.k_empty, x.k_at);
    if (C::SOFTCAP) cap_scores(x.s, terms);
    if (C::BIAS) add_bias<C>(x.s, terms, row, seq.seqlen_q, n, !mask);
    if (mask) mask_both_ends<C>(x.s, seq.mask, row, n);
    row_maxima(x.s, top);
    bool grown = FIRST || has_grown(x.rows, top, x.unit);
    if (grown) update_maximum(x.rows, top, x.unit, alpha);
    exponentials(x.s, x.rows, x.unit);
    if (!FIRST) {
        wgmma_wait<0>();
        warpgroup_fence_operand(x.o);
        release(kv.v_empty, x.v_at);
        if (grown) scale_rows(x.o, alpha);
        warpgroup_fence_operand(x.o);
    }
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.p);
}

/* The output of the last block. */
template <class C>
static __device__ __forceinline__ void last_pv(consumer<C> &x, kv_pipeline<C> &kv)
{
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    wgmma_fence();
    issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.o);
    release(kv.v_empty, x.v_at);
}

/* A block that other consumers need. */
template <class C>
static __device__ __forceinline__ void pass(consumer<C> &x, kv_pipeline<C> &kv, int w)
{
    acquire_turn(w);
    release_turn<C>(w);
    skip_block(kv, x.k_at, x.v_at, 8 + w);
}

/* Writes the consumer's 64 rows of o and lse, from query `first` of the sequence on. */
template <class C>
static __device__ __forceinline__ void
epilogue(consumer<C> &x, memory<C> &sm, const struct params &params, const struct call &call,
         const struct work_tile &t, const rows_of_sequence &seq, int first, int w)
{
    const int row = first + first_row(), n_rows = seq.seqlen_q - row;
    const size_t head = (size_t)seq.batch * params.heads_q + t.head;
    end_of_unit(x.rows, score_offset<C>(call.terms));
    if (call.terms.sinks) add_sink(x.rows, x.o, call.terms.sinks[t.head]);
    normalize(x.o, x.rows, params.lse + head * call.lse_rows + seq.q + row, n_rows);
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait_read(); /* the tile before */
    named_barrier_sync(8 + w, 128);
    if (C::TMA_STORE && first + 64 <= seq.seqlen_q)
        store_through_tma<C>(x.o, sm.o + w * 64 * C::D, params, seq.q + first,
                             work_tile{t.tile, t.head, seq.batch}, 8 + w);
    else
        store_from_registers<C>(x.o, params, seq.q + row, n_rows, t.head, seq.batch);
}

/* Consumer w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct call &call,
                                              const struct work_tile &t, int w, int q_index)
{
    const rows_of_sequence seq = find_sequence(call.sequences, t.batch);
    const int first = t.tile * C::Br + 64 * w, row = first + first_row();
    const struct blocks tile = blocks_some_see<C>(seq, t.tile * C::Br, C::Br);
    const struct blocks seen = blocks_some_see<C>(seq, first, 64);
    const struct blocks open = blocks_all_see<C>(seq, first, 64);
    int n = tile.first;
    clear(x.rows, x.o);
    if (seen.first < seen.end) {
        for (; n < seen.first; n++) pass(x, sm.kv, w);
        set_q<C>(x.q, sm.q.q[q_index] + w * 64 * 64);
        step<C, true>(x, sm.kv, call.terms, seq, w, row, n++, true);
        for (; n < min(open.first, seen.end); n++)
            step<C, false>(x, sm.kv, call.terms, seq, w, row, n, true);
        for (; n < open.end; n++) step<C, false>(x, sm.kv, call.terms, seq, w, row, n, false);
        for (; n < seen.end; n++) step<C, false>(x, sm.kv, call.terms, seq, w, row, n, true);
    }
    release_q(&sm.q.empty[q_index], 8 + w);
    if (seen.first < seen.end) last_pv(x, sm.kv);
    for (; n < tile.end; n++) pass(x, sm.kv, w);
    epilogue(x, sm, params, call, t, seq, first, w);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               const struct call &call, int w)
{
    consumer<C> x;
    struct pipeline_state q_at = {0, 0};
    x.unit = score_unit<C>(call.terms);
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) release_turn<C>(w); /* consumer 0 begins */
    for (;; advance<C::Q_STAGES>(q_at)) {
        mbarrier_wait(&sm.q.full[q_at.index], q_at.phase);
        const struct work_tile t = sm.q.tile[q_at.index];
        if (t.tile < 0) break;
        attend(x, sm, params, call, t, w, q_at.index);
    }
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    general_kernel(const __grid_constant__ struct params params,
                   const __grid_constant__ struct call call)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        q_init(sm.q);
        kv_init(sm.kv);
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(sm, params, call);
    } else {
        setmaxnreg_inc<C::REGISTERS>();
        consume(sm, params, call, w - 1);
    }
}

template <class C> static void launch_as(const struct problem *p, const struct arrays *a)
{
    struct params params = params_of(p, a, C::Br, C::Bc);
    params.causal = p->causal || p->has_window || p->packed; /* tiles differ in weight */
    const struct call call = {sequences_of(p, a), score_terms_of(p, a),
                              scheduler_of(params, p, a), work_list_of(p, a),
                              (int)stored_queries(p)};
    int most = p->packed ? list_tiles<C>(p, a, call.sequences, call.list) : call.scheduler.n_tiles;
    start<C, memory<C>>(general_kernel<C>, persistent_blocks(most), a->stream, params, call);
}

template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    bool cap = p->softcap > 0.0f;
    if constexpr (D <= 128) /* o leaves no registers for the bias */
        if (p->has_bias)
            return (cap ? launch_as<config<T, D, 1, 1>> : launch_as<config<T, D, 0, 1>>)(p, a);
    (cap ? launch_as<config<T, D, 1, 0>> : launch_as<config<T, D, 0, 0>>)(p, a);
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}

static const char *refuses(const struct problem *p)
{
    if (p->softcap > 1000.0f) return "a soft cap above 1000"; /* its error grows with it */
    if (p->has_bias && (p->head_dim > 128 || p->head_dim_v > 128))
        return "a bias with a head_dim above 128";
    if (p->total_q > LONGEST || p->total_k > LONGEST) return "more than 2^29 packed rows";
    return hopper_refuses(p);
}

/* The counter that gives out work tiles, their number, and for packed sequences the list. */
static size_t workspace(const struct problem *p)
{
    return 2 * sizeof(int) + (p->packed ? (p->total_q / 128 + p->batch) * 2 * sizeof(int) : 0);
}

static struct cost cost(const struct problem *p)
{
    return attention_cost(p, p->head_dim <= 64 && p->head_dim_v <= 64 ? 192 : 128);
}

GPU_VARIANT(general) = {
    .name = "general",
    .idea = "what models ask for",
    HOPPER_DEVICE,
    .supports = HOPPER_SUPPORTS | WITH_BIAS | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |
                WITH_PACKED,
    .max_score = INFINITY,
    .masked_rows = 1,
    .refuses = refuses,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
    .on_gpu = GPU_TWIN(general),
};
