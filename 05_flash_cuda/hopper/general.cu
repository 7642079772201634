/* arch: sm_90a */
/* What a model asks of attention beside the plain operation, in one kernel with the structure of
 * rung 14 and a step of its own (general_step.h).  What is added:
 *
 *   windows  blocks of keys outside of a tile's window are neither loaded nor computed; only
 *            blocks at its two edges are masked (key_blocks.h)
 *   packed   sequences of different lengths: a list of tiles, the heaviest first, is sorted on
 *            the GPU (work_list.h).  A copy may run over the end of a sequence: its keys are
 *            masked, its values replaced by zeros, and the last rows of o leave from registers
 *   scores   soft cap, bias, dropout, sinks (score_terms.h); all but the last are compiled in where they
 *            are asked for, so the plain path stays as it is
 *   bits     of a query that depend on its keys alone: keys are folded leaf by leaf (leaf_fold.h) */
#include "leaf_fold.h"

/* Stages of K and V: as many as fit. */
constexpr int stages(int d, int keys, bool bias, int per_sm, bool leaves)
{
    if (d > 128 || bias) return 2;
    if (keys == 64 && per_sm == 1) return leaves ? 3 : 4;
    return d > 64 ? 2 : 3;
}

/* PER_SM: blocks of threads on a multiprocessor.   BY_LEAF: as leaf_fold.h */
template <class Type, int HEAD_DIM, int HEAD_DIM_V, int KEYS, bool HAS_SOFTCAP, bool HAS_BIAS,
          int CONSUMERS, int PER_SM = 1, bool BY_LEAF = false, bool HAS_DROPOUT = false>
struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, DV = HEAD_DIM_V, BLOCKS = PER_SM;
    static constexpr bool SOFTCAP = HAS_SOFTCAP, BIAS = HAS_BIAS, LEAVES = BY_LEAF, DROPS = HAS_DROPOUT;
    static constexpr int WARPGROUPS = CONSUMERS, Br = 64 * WARPGROUPS, Bc = KEYS;
    static constexpr bool FIRST_BLOCK_MAX =
        !BIAS && !LEAVES && D <= 192 && std::is_same_v<T, __nv_bfloat16>;
    static constexpr int K_STAGES = stages(D, Bc, BIAS, PER_SM, LEAVES), V_STAGES = K_STAGES;
    static constexpr int K_ARRIVALS = FIRST_BLOCK_MAX ? 4 : 1; /* by each warp, or one for all */
    static constexpr bool HAS_ROOM = D > 64 && D <= 128 && WARPGROUPS == 2; /* in registers */
    static constexpr bool Q_IN_REGISTERS = HAS_ROOM && !BIAS;
    static constexpr int Q_STAGES = D == 64 || HAS_ROOM ? 2 : 1;
    static constexpr turn_passes TURN = turn_of_consumers(WARPGROUPS, FIRST_BLOCK_MAX);
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = PER_SM == 3 ? 24 : WARPGROUPS == 2 ? 40 : 32;
    static constexpr int REGISTERS = PER_SM == 3       ? 136
                                     : WARPGROUPS == 2 ? 232
                                     : WARPGROUPS == 3 ? 160
                                                       : 112;
    static constexpr bool TMA_STORE = D < 256 && !LEAVES; /* shared memory is left for o */
};

/* The parameters beside the maps. */
struct general_call {
    struct sequences sequences;
    struct score_terms terms;
    struct scheduler scheduler;
    struct work_list list;
    int lse_rows; /* of a head in lse */
};

template <class C> struct memory {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::TMA_STORE ? C::Br * IN_PANELS<DV<C>> : 8];
    alignas(16) float4 total[C::LEAVES ? C::Br * DV<C> / 4 : 1]; /* o of the leaves so far */
    struct rows_of_sequence sequence[C::Q_STAGES]; /* of the tile in that stage of Q */
    float unit; /* for registers: ptxas loads a parameter again in every block */
};

/* The producer, one thread: Q, then K and V block by block. */
template <class C>
static __device__ __forceinline__ void produce(memory<C> &sm, const struct params &params,
                                               const struct general_call &call)
{
    struct pipeline_state q_at = {0, 1}, k_at = {0, 1}, v_at = {0, 1};
    if (call.list.tile) wait_for_previous_kernel(); /* the one that lists the tiles */
    const int n_tiles = tiles_of(call.list, call.scheduler, params);
    for (int n = blockIdx.x; n < n_tiles;) {
        const struct work_tile t = tile_of(call.list, call.scheduler, params, n);
        const rows_of_sequence s = find_sequence(call.sequences, t.batch);
        const struct blocks seen = blocks_some_see<C>(s, t.tile * C::Br, C::Br);
        mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
        sm.q.tile[q_at.index] = t, sm.sequence[q_at.index] = s;
        load_tile<C, C::Br>(sm.q.q[q_at.index], &params.q, &sm.q.full[q_at.index],
                            s.q + t.tile * C::Br, t.head, s.batch);
        advance<C::Q_STAGES>(q_at);
        int n_blocks = seen.end - seen.first, row = s.k + seen.first * C::Bc;
        int head_kv = t.head / params.group;
        load_kv(sm.kv, k_at, v_at, params, n_blocks, head_kv, s.batch, row);
        n = next_tile(call.scheduler, n);
        load_last_v(sm.kv, v_at, params, n_blocks, head_kv, s.batch, row);
    }
    mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
    end_of_work(sm.q, q_at.index);
}

/* o = o / l, and lse of the thread's rows, at `lse` where there are n_rows. */
template <class C>
static __device__ __forceinline__ void normalize(consumer<C> &x, const struct score_terms &terms,
                                                 int head, float *lse, int n_rows)
{
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float l = C::LEAVES ? x.rows.l[i] : quad_sum(x.rows.l[i]);
        float sum = natural_log(x.rows.mc[i], l);
        if (C::BIAS) sum = x.rows.m[i] + natural_log(0.0f, l); /* m is not scaled there */
        factor[i] = l == 0.0f ? 0.0f : reciprocal_fast(l);
        if (terms.sinks) factor[i] *= add_sink(&sum, terms.sinks[head]);
        if (C::DROPS) factor[i] *= terms.drops.factor;
        if (threadIdx.x % 4 == 0 && 8 * i < n_rows) lse[8 * i] = sum;
    }
    scale_rows(x.o, factor);
#pragma unroll
    for (float &o : x.o)
        if (C::LEAVES) o += 0.0f; /* -0 becomes 0, as for a query that merges more leaves */
}

/* Writes the consumer's 64 rows of o and lse, from query `first` of the sequence on. */
template <class C>
static __device__ __forceinline__ void
epilogue(consumer<C> &x, memory<C> &sm, const struct params &params, const struct general_call &call,
         struct work_tile t, struct rows_of_sequence seq, int first, int w)
{
    const int row = first + first_row(), n_rows = seq.seqlen_q - row;
    const size_t head = (size_t)seq.batch * params.heads_q + t.head;
    normalize<C>(x, call.terms, t.head, params.lse + head * call.lse_rows + seq.q + row, n_rows);
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait_read(); /* the tile before */
    named_barrier_sync(8 + w, 128);
    if (C::TMA_STORE && first + 64 <= seq.seqlen_q)
        store_through_tma<C>(x.o, sm.o + w * 64 * IN_PANELS<DV<C>>, params, seq.q + first,
                             work_tile{t.tile, t.head, seq.batch}, 8 + w);
    else
        store_from_registers<C>(x.o, params, seq.q + row, n_rows, t.head, seq.batch);
}

/* The end of the key blocks that some query of the tile sees. */
template <class C>
static __device__ __forceinline__ int end_of_tile(const struct rows_of_sequence &seq,
                                                  const struct work_tile &t)
{
    return blocks_some_see<C>(seq, t.tile * C::Br, C::Br).end;
}

/* Consumer w: queries 64 w ... 64 w + 63 of the tile in stage q_index.  Tile and sequence stay
 * in shared memory, because registers are short, so the stage is released at the end. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct general_call &call, int w, int q_index)
{
    const struct work_tile t_copy = sm.q.tile[q_index];
    const struct rows_of_sequence seq_copy = sm.sequence[q_index];
    const struct work_tile &t = sm.q.tile[q_index];
    const struct rows_of_sequence &seq = sm.sequence[q_index];
    const int first = t_copy.tile * C::Br + 64 * w;
    const struct blocks tile = blocks_some_see<C>(seq_copy, t_copy.tile * C::Br, C::Br);
    const struct blocks seen = blocks_some_see<C>(seq_copy, first, 64);
    const struct blocks open = blocks_all_see<C>(seq_copy, first, 64);
    const int begun = mask_keys(seq_copy.mask, first + 63).first / C::Bc + 1;
    const float *bias = C::BIAS && (!C::DROPS || call.terms.bias) ? bias_of_head(call.terms, t) : NULL;
    const struct general_scores scores = {call.terms, seq, t, bias, w};
    float4 *kept = sm.total + (C::LEAVES ? 128 * w + threadIdx.x % 128 : 0);
    struct rows total;
    int n = tile.first;
    clear(x.rows, x.o);
    for (; n < min(seen.first, tile.end); n++) pass(x, sm.kv, w);
    if (seen.first < seen.end) {
        x.q_rows = sm.q.q[q_index] + w * 64 * 64;
        set_q<C>(x.q, x.q_rows);
        if constexpr (C::LEAVES) {
            fold_leaves(x, sm.kv, scores, total, kept, seen, open, w);
            n = seen.end;
        } else {
            step<C, FIRST_BLOCK>(x, sm.kv, scores, w, n++, true);
            for (; n < min(begun, seen.end); n++) /* some rows see their first keys here */
                step<C, GROWING>(x, sm.kv, scores, w, n, true);
            for (; n < open.end; n++) step<C, LATER<C>>(x, sm.kv, scores, w, n, false);
            for (; n < seen.end; n++) step<C, LATER<C>>(x, sm.kv, scores, w, n, true);
        }
        if (C::WARPGROUPS == 2) /* three lack the registers */
            for (int i = n; i < end_of_tile<C>(seq, t); i++) pass_turn<C>(w);
        const bool is_cut = call.list.tile || call.sequences.seqlens_k;
        const int valid = is_cut ? seq.mask.seqlen_k - (n - 1) * C::Bc : C::Bc;
        typename C::T *own = C::TMA_STORE ? sm.o + w * 64 * IN_PANELS<DV<C>> : sm.q.q[q_index] + w * 64 * 64;
        last_pv_of_sequence<C, C::TMA_STORE ? 64 : C::Br>(x, sm.kv, own, valid, w);
        if constexpr (C::LEAVES) merge_leaf(x, total, kept);
    } else {
        for (; n < end_of_tile<C>(seq, t); n++) pass(x, sm.kv, w);
    }
    epilogue(x, sm, params, call, t, seq, t.tile * C::Br + 64 * w, w);
    for (; n < end_of_tile<C>(seq, t); n++) { /* what it does not need can wait until here */
        if (C::WARPGROUPS != 2) pass_turn<C>(w);
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w, C::K_ARRIVALS);
    }
    release_q(&sm.q.empty[q_index]);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               const struct general_call &call, int w)
{
    consumer<C> x;
    struct pipeline_state q_at = {0, 0};
    x.unit = *(volatile float *)&sm.unit;
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) pass_turn_on<C>(w); /* consumer 0 begins */
    for (;; advance<C::Q_STAGES>(q_at)) {
        mbarrier_wait(&sm.q.full[q_at.index], q_at.phase);
        if (sm.q.tile[q_at.index].tile < 0) break;
        attend(x, sm, params, call, w, q_at.index);
    }
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    general_kernel(const __grid_constant__ struct params params,
                   const __grid_constant__ struct general_call call)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        q_init(sm.q);
        kv_init(sm.kv, C::K_ARRIVALS);
        sm.unit = score_unit<C>(call.terms);
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
    params.causal = /* tiles differ in weight */
        p->causal || p->has_window || p->packed || p->has_lengths;
    const struct general_call call = {sequences_of(p, a), score_terms_of(p, a),
                              scheduler_of(params, p, a), work_list_of(p, a),
                              (int)stored_queries(p)};
    int most = p->packed ? list_tiles<C>(p, a, call.sequences, call.list) : call.scheduler.n_tiles;
    const int blocks = persistent_blocks(most, C::BLOCKS);
    const size_t bytes = sizeof(memory<C>);
    if (p->packed) start<EARLY>(general_kernel<C>, blocks, C::THREADS, bytes, a->stream, params, call);
    else start(general_kernel<C>, blocks, C::THREADS, bytes, a->stream, params, call);
}

/* The geometry of the instance for a shape, chosen by measurement (notes/hopper.md). */
struct geometry {
    int keys;      /* in a block */
    int consumers; /* of 64 queries each; one alone: three blocks of threads a multiprocessor */
};

/* Where queries see few keys, a tile is mostly start and end.  At d = 64 three small blocks of
 * threads on a multiprocessor then overlap their tiles.  At d = 128 only two fit, and lose. */
static struct geometry geometry_of(const struct problem *p)
{
    const struct mask m = problem_mask(p);
    if (p->invariant) return {LEAF_BLOCK, wider_head(p) > 64 ? 2 : 4};
    const bool few_keys = mask_clamp(m.last - m.first, p->seqlen_k) < 2048;
    const bool narrow_v = p->head_dim_v <= 128 && wider_head(p) <= 192 && p->softcap == 0.0f;
    if (wider_head(p) > 128) return {narrow_v ? 96 : 64, 2};
    if (wider_head(p) > 64) return {few_keys || takes_bias(p) ? 64 : 128, 2};
    if (takes_bias(p)) return {64, 3};
    return few_keys || p->softcap > 0.0f ? geometry{64, 1} : geometry{128, 3};
}

template <class T, int D, int DV, int KEYS, int CONSUMERS, int PER_SM = 1, bool BIAS = false>
static void launch_tiles(const struct problem *p, const struct arrays *a)
{
    if (p->softcap > 0.0f) launch_as<config<T, D, DV, KEYS, 1, BIAS, CONSUMERS, PER_SM>>(p, a);
    else launch_as<config<T, D, DV, KEYS, 0, BIAS, CONSUMERS, PER_SM>>(p, a);
}

template <class T, int D, int DV>
static void launch(const struct problem *p, const struct arrays *a)
{
    /* then there are no widths in between */
    const bool adds = p->softcap > 0.0f || takes_bias(p) || p->invariant;
    if constexpr (D == 64 || D == 128)
        if (p->invariant)
            return launch_as<config<T, D, DV, LEAF_BLOCK, 0, 0, D == 64 ? 4 : 2, 1, true>>(p, a);
    if constexpr (D == 96) {
        if (adds) return launch<T, 128, 128>(p, a);
        if (geometry_of(p).keys == 128) launch_as<config<T, D, DV, 128, 0, 0, 2>>(p, a);
        else launch_as<config<T, D, DV, 64, 0, 0, 2>>(p, a);
    } else if constexpr (D == 192) {
        if (adds) return launch<T, 256, 256>(p, a);
        launch_as<config<T, D, DV, DV == 192 ? 64 : 96, 0, 0, 2>>(p, a);
    } else if constexpr (D == 256) launch_tiles<T, D, DV, 64, 2>(p, a);
    else {
        constexpr int CONSUMERS = D == 64 ? 3 : 2;
        if (p->dropout > 0.0f) launch_as<config<T, D, DV, 64, 0, 1, CONSUMERS, 1, false, true>>(p, a);
        else if (p->has_bias) launch_tiles<T, D, DV, 64, CONSUMERS, 1, true>(p, a);
        else if constexpr (D == 64) {
            if (geometry_of(p).keys == 128) launch_as<config<T, D, DV, 128, 0, 0, 3>>(p, a);
            else launch_tiles<T, D, DV, 64, 1, 3>(p, a);
        } else if (geometry_of(p).keys == 128) launch_tiles<T, D, DV, 128, 2>(p, a);
        else launch_tiles<T, D, DV, 64, 2>(p, a);
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR_WIDTHS(launch, p, a);
}

static const char *refuses(const struct problem *p)
{
    if (takes_bias(p) && wider_head(p) > 128)
        return "a bias or dropout with a head_dim above 128";
    if (p->dropout > 0.0f && p->softcap > 0.0f) return "dropout with a soft cap";
    if (p->invariant &&
        (takes_bias(p) || p->softcap > 0.0f || wider_head(p) > 128 || has_few_rows(p)))
        return "a bias, a soft cap, dropout, a head_dim above 128 or few queries (invariant)";
    if (p->total_q > LONGEST || p->total_k > LONGEST) return "more than 2^29 packed rows";
    return hopper_refuses(p);
}

/* The counter that gives out work tiles, their number, and for packed sequences the list. */
static size_t workspace(const struct problem *p)
{
    return 2 * sizeof(int) + (p->packed ? (p->total_q / 64 + p->batch) * 2 * sizeof(int) : 0);
}

/* The geometry for a shape in words. */
static const char *picks(const struct problem *p)
{
    const struct geometry g = geometry_of(p);
    if (p->invariant) return g.consumers == 4 ? "tiles of 256 queries, 64 keys; leaf after leaf"
                                              : "tiles of 128 queries, 64 keys; leaf after leaf";
    if (g.consumers == 1) return "tiles of 64 queries, 64 keys; three blocks a multiprocessor";
    if (g.consumers == 3)
        return g.keys == 64 ? "tiles of 192 queries, 64 keys" : "tiles of 192 queries, 128 keys";
    return g.keys == 64    ? "tiles of 128 queries, 64 keys"
           : g.keys == 128 ? "tiles of 128 queries, 128 keys"
                           : "tiles of 128 queries, 96 keys";
}

static struct cost cost(const struct problem *p)
{
    return attention_cost(p, 64 * geometry_of(p).consumers);
}

GPU_VARIANT(general, "what models ask for",
    HOPPER_DEVICE,
    .supports = HOPPER_SUPPORTS | WITH_BIAS | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |
                WITH_PACKED | WITH_BIAS_STRIDES | WITH_LENGTHS | WITH_INVARIANT | WITH_DROPOUT,
    .max_score = INFINITY, .masked_rows = 1, .refuses = refuses, .picks = picks,
    .workspace = workspace, .cost = cost,
    .does = {{OP_ATTENTION, attention}});
