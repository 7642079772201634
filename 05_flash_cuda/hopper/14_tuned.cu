/* arch: sm_90a */
/* Rung 14: tuned.  Rung 13 for all shapes that users have: its asides, each a diff (make diff
 * RUNG=late_turns), and tiles for more widths.  notes/hopper.md has the gain of each.
 *
 *   turns   of more than two consumers: the turn passes when the scores are ready (section 4)
 *   tiles   64 keys for short sequences; 96 and 192 columns; V may have fewer than Q and K
 *   memory  with few keys main memory is the limit: a kernel of its own (few_keys.h)
 *   order   a consumer that sees fewer blocks passes its turns on, ends its tile, then releases the
 *           blocks that it does not need.  With this order the assembler puts the references of a
 *           thread's two rows into different banks (notes/hopper.md, section 6)
 *
 * On several GPUs a tile ends by merging with the answer to the keys before (answer.h). */
#include "answer.h"
#include "few_keys.h"
#include "first_block.h"
#include "late_turns.h"
#include "params.h"
#include "q_fragments.h"
#include "scheduler.h"
#include "store.h"
#include "turns.h"

/* IS_PART: of the keys, so the tile is merged with the answer to those before. */
template <class Type, int HEAD_DIM, int HEAD_DIM_V, int CONSUMERS, int KEYS, int STAGES,
          bool IS_PART = false>
struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, DV = HEAD_DIM_V;
    static constexpr int WARPGROUPS = CONSUMERS, Br = 64 * WARPGROUPS, Bc = KEYS;
    static constexpr int K_STAGES = STAGES, V_STAGES = K_STAGES;
    static constexpr bool PART = IS_PART;
    static constexpr bool FIRST_BLOCK_MAX = D <= 192 && std::is_same_v<T, __nv_bfloat16>;
    static constexpr int K_ARRIVALS = FIRST_BLOCK_MAX ? 4 : 1; /* by each warp, or one for all */
    static constexpr bool Q_IN_REGISTERS = D > 64 && D <= 128 && WARPGROUPS == 2;
    static constexpr turn_passes TURN = turn_of_consumers(WARPGROUPS, FIRST_BLOCK_MAX);
    static constexpr int Q_STAGES = D == 64 || Q_IN_REGISTERS ? 2 : 1;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 40 : 32;
    static constexpr int REGISTERS = WARPGROUPS == 2 ? 232 : WARPGROUPS == 3 ? 160 : 112;
    static constexpr bool TMA_STORE = D < 256; /* shared memory is left for a tile of o */
};

template <class C> struct memory {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::TMA_STORE ? C::Br * IN_PANELS<DV<C>> : 8];
    float c; /* for registers: ptxas loads a parameter anew in every block (hopper.md, section 6) */
};

/* What a consumer has in registers, and where it is in the pipeline. */
template <class C> struct consumer {
    float s[C::Bc / 2], o[DV<C> / 2], c; /* c = scale log2(e) */
    uint32_t p[C::Bc / 4];
    q_operand<C> q;
    const typename C::T *q_rows;
    struct rows rows;
    struct pipeline_state k_at, v_at;
};

/* The producer, one thread: Q, then K and V block by block. */
template <class C>
static __device__ __forceinline__ void produce(memory<C> &sm, const struct params &params,
                                               const struct scheduler &s)
{
    struct pipeline_state q_at = {0, 1}, k_at = {0, 1}, v_at = {0, 1};
    for (int tile = blockIdx.x; tile < s.n_tiles;) {
        const struct work_tile t = find_tile(s, params, tile);
        mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
        load_q(sm.q, q_at.index, params, t);
        advance<C::Q_STAGES>(q_at);
        int n_blocks = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
        int head_kv = t.head / params.group;
        load_kv(sm.kv, k_at, v_at, params, n_blocks, head_kv, t.batch);
        tile = next_tile(s, tile);
        load_last_v(sm.kv, v_at, params, n_blocks, head_kv, t.batch);
    }
    mbarrier_wait(&sm.q.empty[q_at.index], q_at.phase);
    end_of_work(sm.q, q_at.index);
}

/* Block n again with its maximum; `l` is the rows' l without it.  It is not in o yet. */
template <class C>
static __device__ __forceinline__ void repair(consumer<C> &x, const typename C::T *k,
                                              const struct params &params, int row, int n,
                                              bool mask, const float (&l)[2])
{
    float top[2], alpha[2];
    warp_scores<C>(x.s, x.q, x.q_rows, k);
    fence_proxy_async(); /* the warp's ordinary loads of K come before its release */
    __syncwarp();
    if (mask) mask_block<C>(x.s, params, as_new(row), n); /* or step() stores its comparisons */
    row_maxima(x.s, top);
    repair_rows(x.rows, l, top, x.c, alpha);
    exponentials(x.s, x.rows, x.c);
    scale_rows(x.o, alpha);
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.o);
    warpgroup_fence_operand(x.p);
}

/* Key block n, and the output of block n - 1 (there is none before block 0). */
template <class C, bool FIRST>
static __device__ __forceinline__ void step(consumer<C> &x, kv_pipeline<C> &kv,
                                            const struct params &params, int w, int row,
                                            int n, bool mask)
{
    float top[2], alpha[2];
    int k_index = x.k_at.index;
    mbarrier_wait(&kv.k_full[x.k_at.index], x.k_at.phase);
    acquire_turn(w);
    wgmma_fence();
    if constexpr (C::TURN == BEFORE_LAST_PRODUCT)
        issue_qk_last_apart<C>(x.s, x.q, kv.k[x.k_at.index]);
    else issue_qk<C>(x.s, x.q, kv.k[x.k_at.index]);
    if (!FIRST) {
        mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
        wgmma_fence();
        issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    }
    if (C::TURN == BEFORE_LAST_PRODUCT) wgmma_wait<FIRST ? 1 : 2>();
    if (C::TURN != WITH_SCORES) pass_turn_on<C>(w);
    wgmma_wait<FIRST ? 0 : 1>(); /* Q K^T has completed, P V may still run */
    if (C::TURN == WITH_SCORES) {
        pass_turn_on<C>(w);
        mbarrier_wait(&kv.k_full[k_index], x.k_at.phase); /* long over: keeps the arrival here */
    }
    warpgroup_fence_operand(x.s);
    if (!C::FIRST_BLOCK_MAX) release(kv.k_empty, x.k_at);
    if (mask) mask_block<C>(x.s, params, row, n);
    if (FIRST || !C::FIRST_BLOCK_MAX) row_maxima(x.s, top);
    bool grown = !C::FIRST_BLOCK_MAX && (FIRST || has_grown(x.rows, top, x.c));
    if (grown) update_maximum(x.rows, top, x.c, alpha);
    if (FIRST && C::FIRST_BLOCK_MAX) refer_to(x.rows, top, x.c, alpha);
    const float l[2] = {x.rows.l[0], x.rows.l[1]};
    exponentials(x.s, x.rows, x.c);
    if (!FIRST) {
        wgmma_wait<0>();
        warpgroup_fence_operand(x.o);
        release(kv.v_empty, x.v_at);
        if (grown) scale_rows(x.o, alpha);
        warpgroup_fence_operand(x.o);
    }
    pack_weights<typename C::T>(x.s, x.p);
    warpgroup_fence_operand(x.p);
    if (C::FIRST_BLOCK_MAX) {
        advance<C::K_STAGES>(x.k_at);
        if (any_has_outgrown(x.rows))
            repair(x, kv.k[k_index], params, row, n, mask, l);
        mbarrier_arrive_if(&kv.k_empty[k_index], threadIdx.x % 32 == 0);
    }
}

/* Consumer w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct answer &answer,
                                              int w, int q_index)
{
    const struct work_tile t = sm.q.tile[q_index];
    int first = t.tile * C::Br + 64 * w, row = first + first_row(), n = 0;
    int n_tile = blocks_seen<C>(params, t.tile * C::Br + C::Br - 1);
    int n_blocks = first < params.seqlen_q ? blocks_seen<C>(params, first + 63) : 0;
    int n_open = blocks_open<C>(params, first);
    clear(x.rows, x.o);
    if (n_blocks > 0) {
        x.q_rows = sm.q.q[q_index] + w * 64 * 64;
        set_q<C>(x.q, x.q_rows);
        step<C, true>(x, sm.kv, params, w, row, n++, n_open == 0);
        for (; n < n_open; n++) step<C, false>(x, sm.kv, params, w, row, n, false);
        for (; n < n_blocks; n++) step<C, false>(x, sm.kv, params, w, row, n, true);
        release_q(&sm.q.empty[q_index]);
        for (int i = n; i < n_tile; i++) { /* the other consumer needs these */
            acquire_turn(w);
            pass_turn_on<C>(w);
        }
        last_pv(x, sm.kv);
    } else {
        release_q(&sm.q.empty[q_index]);
        for (; n < n_tile; n++) {
            acquire_turn(w);
            pass_turn_on<C>(w);
            skip_block(sm.kv, x.k_at, x.v_at, 8 + w, C::K_ARRIVALS);
        }
    }
    store_tile<C>(x.o, sm.o, params, t, w, [&](int row, size_t head) {
        if constexpr (C::PART) merge_answer<C>(x.o, x.rows, answer, params, row, head);
        else normalize(x.o, x.rows, params, row, head);
    });
    for (; n < n_tile; n++) /* they can wait until o is on its way */
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w, C::K_ARRIVALS);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               const struct answer &answer, int w)
{
    consumer<C> x;
    struct pipeline_state q_at = {0, 0};
    x.c = *(volatile float *)&sm.c;
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) pass_turn_on<C>(w); /* consumer 0 begins */
    for (;; advance<C::Q_STAGES>(q_at)) {
        mbarrier_wait(&sm.q.full[q_at.index], q_at.phase);
        if (sm.q.tile[q_at.index].tile < 0) break;
        attend(x, sm, params, answer, w, q_at.index);
    }
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    tuned_kernel(const __grid_constant__ struct params params, const struct scheduler s,
                 const struct answer answer)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        q_init(sm.q);
        kv_init(sm.kv, C::K_ARRIVALS);
        sm.c = params.c;
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(sm, params, s);
    } else {
        setmaxnreg_inc<C::REGISTERS>();
        consume(sm, params, answer, w - 1);
    }
}

#ifndef PART_OF_THE_KEYS /* multi_gpu/part_tuned.cu takes what stands above */
template <class C> static void launch_as(const struct problem *p, const struct arrays *a)
{
    const struct params params = params_of(p, a, C::Br, C::Bc);
    const struct scheduler s = scheduler_of(params, p, a);
    int blocks = persistent_blocks(s.n_tiles);
    start(tuned_kernel<C>, blocks, C::THREADS, sizeof(memory<C>), a->stream, params, s, {});
}

/* Head dimensions above 64, bfloat16: 64 keys and not 128? */
static bool is_short(const struct problem *p)
{
    return p->dtype == BF16 && p->seqlen_k < (p->causal ? 2048 : 1024);
}

/* Head dimensions up to 64: three consumers and 128 keys, not four and 64? */
static bool takes_three(const struct problem *p)
{
    return p->dtype == F16 && !p->causal && p->seqlen_k >= 8192;
}

/* The instance for a shape, each chosen by measurement (notes/hopper.md). */
template <class T, int D, int DV>
static void launch(const struct problem *p, const struct arrays *a)
{
    constexpr bool IS_HALF = std::is_same_v<T, __half>;
    if constexpr (D <= 128)
        if (p->seqlen_k <= 128) return few_keys<T, D == 96 ? 128 : D>(p, a);
    if constexpr (D == 256) launch_as<config<T, 256, 256, 2, 64, 2>>(p, a);
    else if constexpr (D == 192) launch_as<config<T, 192, DV, 2, DV == 192 ? 64 : 96, 2>>(p, a);
    else if constexpr (D > 64 && IS_HALF) launch_as<config<T, D, DV, 2, 128, 2>>(p, a);
    else if constexpr (D > 64) {
        if (is_short(p)) launch_as<config<T, D, DV, 2, 64, 4>>(p, a);
        else if constexpr (D == 96) launch_as<config<T, 96, 96, 3, 96, 2>>(p, a);
        else launch_as<config<T, D, DV, 2, 128, 2>>(p, a);
    } else {
        if constexpr (IS_HALF)
            if (takes_three(p)) return launch_as<config<T, 64, 64, 3, 128, 3>>(p, a);
        launch_as<config<T, 64, 64, 4, 64, 4>>(p, a);
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR_WIDTHS(launch, p, a);
}

/* The instance for a shape in words. */
static const char *picks(const struct problem *p)
{
    const size_t d = wider_head(p);
    if (d > 192 || (d > 128 && p->head_dim_v > 128)) return "tiles of 128 queries, 64 keys";
    if (d > 128) return "tiles of 128 queries, 96 keys";
    if (p->seqlen_k <= 128) return "tiles of 128 queries, all keys at once";
    if (d <= 64)
        return takes_three(p) ? "tiles of 192 queries, 128 keys" : "tiles of 256 queries, 64 keys";
    if (is_short(p)) return "tiles of 128 queries, 64 keys";
    if (d <= 96 && p->dtype == BF16) return "tiles of 192 queries, 96 keys";
    return "tiles of 128 queries, 128 keys";
}

/* The counter that gives out work tiles. */
static size_t workspace(const struct problem *) { return sizeof(int); }

static struct cost cost(const struct problem *p)
{
    return attention_cost(p, wider_head(p) <= 64 && p->seqlen_k > 128 ? 256 : 128);
}

GPU_VARIANT(tuned, "many small gains",
    HOPPER_VARIANT, .picks = picks, .workspace = workspace, .cost = cost,
    .does = {{OP_ATTENTION, attention}});
#endif
