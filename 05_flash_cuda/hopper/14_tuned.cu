/* arch: sm_90a */
/* Rung 14: tuned.  Several small changes, each an aside; notes/hopper.md has the gain of each.  The
 * step over a block of keys is in step.h, where `general` has it, too.
 *
 *   turns   of more than two consumers: the turn passes when the scores are ready (section 4)
 *   tiles   64 keys for short sequences
 *   memory  with few keys main memory is the limit: kernels of their own (few_keys.h)
 *   waves   full mask, long sequences: the last wave and a half is cut along the keys
 *   order   a consumer that sees fewer blocks passes its turns on, ends its tile, then releases
 *           the blocks that it does not need */
#include "answer.h"
#include "few_keys.h"
#include "last_waves.h"
#include "step.h"
#include "wide_few_keys.h"

template <class T, int D, int DV, int CONSUMERS, int KEYS, int STAGES, bool PART = false>
struct config : tiles<T, D, DV, CONSUMERS, KEYS, STAGES> {
    static constexpr bool IS_PART = PART; /* of the keys: merged with the answer so far */
};

template <class C> struct memory {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::TMA_STORE ? C::Br * IN_PANELS<DV<C>> : 8];
    struct piece piece[C::Q_STAGES]; /* of the keys, for each tile of Q */
    float c; /* for registers: ptxas loads a parameter again in every block */
};

/* Beside the maps: how tiles end. */
struct ending : last_waves {
    struct answer answer; /* of a part of the keys */
};

/* Which rows of queries a thread has, and the mask on their scores. */
struct causal_scores {
    const struct params &params;
    int row; /* the thread's first */

    template <class C>
    __device__ __forceinline__ void finish(float (&s)[C::Bc / 2], int n, bool mask, bool) const
    {
        if (mask) mask_block<C>(s, params, row, n);
    }
    /* The same rows, or step() stores its comparisons. */
    __device__ __forceinline__ struct causal_scores again() const { return {params, as_new(row)}; }
    template <class C>
    __device__ __forceinline__ void weigh(float (&s)[C::Bc / 2], struct rows &r, float unit,
                                          bool) const
    {
        exponentials(s, r, unit);
    }
};

/* Where the producer is in the pipelines. */
struct producer { struct pipeline_state q_at, k_at, v_at; };

/* Q, then K and V block by block, but for the last V. */
template <class C>
static __device__ __forceinline__ void load(memory<C> &sm, struct producer &x,
                                            const struct params &params,
                                            const struct work_tile &t, const struct piece &piece)
{
    mbarrier_wait(&sm.q.empty[x.q_at.index], x.q_at.phase);
    sm.piece[x.q_at.index] = piece;
    load_q(sm.q, x.q_at.index, params, t);
    advance<C::Q_STAGES>(x.q_at);
    load_kv(sm.kv, x.k_at, x.v_at, params, piece.end - piece.begin, t.head / params.group,
            t.batch, piece.begin * C::Bc);
}

template <class C>
static __device__ __forceinline__ void load_end(memory<C> &sm, struct producer &x,
                                                const struct params &params,
                                                const struct work_tile &t,
                                                const struct piece &piece)
{
    load_last_v(sm.kv, x.v_at, params, piece.end - piece.begin, t.head / params.group, t.batch,
                piece.begin * C::Bc);
}

/* The producer, one thread: whole tiles, then its run of the cut ones. */
template <class C>
static __device__ __forceinline__ void produce(memory<C> &sm, const struct params &params,
                                               const struct scheduler &s,
                                               const struct last_waves &waves)
{
    struct producer x = {{0, 1}, {0, 1}, {0, 1}};
    for (int tile = blockIdx.x; tile < waves.first;) {
        const struct work_tile t = find_tile(s, params, tile);
        struct piece all = {0, blocks_seen<C>(params, t.tile * C::Br + C::Br - 1), -1};
        load(sm, x, params, t, all);
        tile = next_tile(s, tile);
        load_end(sm, x, params, t, all);
    }
    int at = blockIdx.x * waves.run, in_runs = (s.n_tiles - waves.first) * waves.key_blocks;
    int end = min(at + waves.run, in_runs);
    while (at < end) {
        const struct work_tile t = find_tile(s, params, waves.first + at / waves.key_blocks);
        struct piece piece = piece_at(waves, at);
        load(sm, x, params, t, piece);
        at += piece.end - piece.begin;
        load_end(sm, x, params, t, piece);
    }
    mbarrier_wait(&sm.q.empty[x.q_at.index], x.q_at.phase);
    end_of_work(sm.q, x.q_at.index);
}

/* Writes the consumer's 64 rows of o. */
template <class C>
static __device__ __forceinline__ void epilogue(consumer<C> &x, memory<C> &sm,
                                                const struct params &params,
                                                const struct ending &waves,
                                                const struct work_tile &t,
                                                const struct piece &piece, int w)
{
    int first = t.tile * C::Br + 64 * w, row = first + first_row();
    size_t head = (size_t)t.batch * params.heads_q + t.head;
    if (!C::IS_PART && piece.slot >= 0) {
        store_piece<C>(x.o, x.rows, waves, piece.slot, 64 * w + first_row());
        return;
    }
    if constexpr (C::IS_PART) merge_answer<C>(x.o, x.rows, waves.answer, params, row, head);
    else normalize(x.o, x.rows, params, row, head);
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait_read(); /* the tile before */
    named_barrier_sync(8 + w, 128);
    if (C::TMA_STORE)
        store_through_tma<C>(x.o, sm.o + w * 64 * IN_PANELS<DV<C>>, params, first, t, 8 + w);
    else
        store_from_registers<C>(x.o, params, row, head);
}

/* Consumer w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct ending &waves, int w, int q_index)
{
    struct work_tile t = sm.q.tile[q_index];
    struct piece piece = sm.piece[q_index];
    int first = t.tile * C::Br + 64 * w, row = first + first_row(), n = piece.begin;
    int n_blocks = first < params.seqlen_q ? blocks_seen<C>(params, first + 63) : 0;
    n_blocks = min(piece.end, n_blocks);
    int n_open = min(n_blocks, blocks_open<C>(params, first));
    clear(x.rows, x.o);
    if (n < n_blocks) {
        x.q_rows = sm.q.q[q_index] + w * 64 * 64;
        set_q<C>(x.q, x.q_rows);
        const struct causal_scores scores = {params, row};
        step<C, FIRST_BLOCK>(x, sm.kv, scores, w, n, n_open <= n);
        for (n++; n < n_open; n++) step<C, LATER<C>>(x, sm.kv, scores, w, n, false);
        for (; n < n_blocks; n++) step<C, LATER<C>>(x, sm.kv, scores, w, n, true);
        asm volatile("" ::: "memory");
        piece.slot = sm.piece[q_index].slot; /* again: it took no register so far */
        release_q(&sm.q.empty[q_index]);
        for (int i = n; i < piece.end; i++) pass_turn<C>(w);
        last_pv(x, sm.kv);
    } else {
        release_q(&sm.q.empty[q_index]);
        for (; n < piece.end; n++) pass(x, sm.kv, w);
    }
    epilogue(x, sm, params, waves, t, piece, w);
    for (; n < piece.end; n++) /* they can wait until o is on its way */
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w, C::K_ARRIVALS);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               const struct ending &waves, int w)
{
    consumer<C> x;
    struct pipeline_state q_at = {0, 0};
    x.unit = *(volatile float *)&sm.c;
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) release_turn<C>(w); /* consumer 0 begins */
    for (;; advance<C::Q_STAGES>(q_at)) {
        mbarrier_wait(&sm.q.full[q_at.index], q_at.phase);
        if (sm.q.tile[q_at.index].tile < 0) break;
        attend(x, sm, params, waves, w, q_at.index);
    }
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    tuned_kernel(const __grid_constant__ struct params params, const struct scheduler s,
                 const struct ending waves)
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
        if (threadIdx.x == 0) produce(sm, params, s, waves);
    } else {
        setmaxnreg_inc<C::REGISTERS>();
        consume(sm, params, waves, w - 1);
    }
}

#ifndef PART_OF_THE_KEYS /* multi_gpu/part_tuned.cu takes what stands above */
/* Head dimensions up to 64: three consumers and 128 keys, not four and 64? */
static bool takes_three(const struct problem *p)
{
    return p->dtype == F16 && !p->causal && p->seqlen_k >= 8192;
}

/* Head dimensions above 64, bfloat16: 64 keys and not 128? */
static bool is_short(const struct problem *p)
{
    return p->dtype == BF16 && p->seqlen_k < (p->causal ? 2048 : 1024);
}

/* So few keys that a work tile looks at all of them at once? */
static bool has_few_keys(const struct problem *p)
{
    if (wider_head(p) > 128) return p->seqlen_k > 64 && p->seqlen_k <= 256;
    return p->seqlen_k <= 128;
}

template <class T, int D, int DV, int CONSUMERS, int KEYS, int STAGES>
static void launch_as(const struct problem *p, const struct arrays *a)
{
    using C = config<T, D, DV, CONSUMERS, KEYS, STAGES>;
    const struct params params = params_of(p, a, C::Br, C::Bc);
    const struct scheduler s = scheduler_of(params, p, a);
    int blocks = persistent_blocks(s.n_tiles);
    const struct ending waves = {last_waves_of<C>(s.n_tiles, blocks, p, a), {}};
    start<C, memory<C>>(tuned_kernel<C>, blocks, a->stream, params, s, waves);
    merge_last_waves<C>(params, s, waves, blocks, a->stream);
}

/* The instance for a shape, each chosen by measurement (notes/hopper.md). */
template <class T, int D, int DV>
static void launch(const struct problem *p, const struct arrays *a)
{
    constexpr bool IS_HALF = std::is_same_v<T, __half>;
    if (has_few_keys(p)) {
        if constexpr (D > 128) return wide_few_keys<T, D, DV>(p, a);
        else return few_keys<T, D == 96 ? 128 : D>(p, a);
    }
    if constexpr (D == 256) launch_as<T, 256, 256, 2, 64, 2>(p, a);
    else if constexpr (D == 192) launch_as<T, 192, DV, 2, DV == 192 ? 64 : 96, 2>(p, a);
    else if constexpr (D > 64 && IS_HALF) launch_as<T, D, DV, 2, 128, 2>(p, a);
    else if constexpr (D > 64) {
        if (is_short(p)) launch_as<T, D, DV, 2, 64, 4>(p, a);
        else if constexpr (D == 96) launch_as<T, 96, 96, 3, 96, 2>(p, a);
        else launch_as<T, D, DV, 2, 128, 2>(p, a);
    } else {
        if constexpr (IS_HALF)
            if (takes_three(p)) return launch_as<T, 64, 64, 3, 128, 3>(p, a);
        launch_as<T, 64, 64, 4, 64, 4>(p, a);
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR_WIDTHS(launch, p, a);
}

/* The instance for a shape in words. */
static const char *picks(const struct problem *p)
{
    if (has_few_keys(p)) return "tiles of 128 queries, all keys at once";
    if (wider_head(p) > 128)
        return wider_head(p) > 192 || p->head_dim_v > 128 ? "tiles of 128 queries, 64 keys"
                                                          : "tiles of 128 queries, 96 keys";
    if (wider_head(p) > 64 && wider_head(p) <= 96 && p->dtype == BF16 && !is_short(p))
        return "tiles of 192 queries, 96 keys";
    if (wider_head(p) > 64)
        return is_short(p) ? "tiles of 128 queries, 64 keys: a short sequence"
                           : "tiles of 128 queries, 128 keys; queries in registers";
    return takes_three(p) ? "tiles of 192 queries, 128 keys: no mask, 8192 keys or more"
                          : "tiles of 256 queries, 64 keys: four consumers take turns";
}

/* The counter that gives out work tiles, or the pieces of cut tiles. */
static size_t workspace(const struct problem *p)
{
    const size_t d = wider_head(p);
    if (p->causal || p->seqlen_k < WORTH_A_CUT * 64) return sizeof(int);
    size_t blocks = (size_t)persistent_blocks(1 << 30);
    if (d <= 64) return bytes_of_pieces(blocks, 256, 64);
    return bytes_of_pieces(blocks, 128, d <= 128 ? 128 : 256);
}

static struct cost cost(const struct problem *p)
{
    return attention_cost(p, wider_head(p) <= 64 && p->seqlen_k > 128 ? 256 : 128);
}

GPU_VARIANT(tuned) = {
    .name = "tuned",
    .idea = "many small gains",
    HOPPER_VARIANT,
    .picks = picks,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_ATTENTION, attention}},
    .on_gpu = GPU_TWIN(tuned),
};
#endif
