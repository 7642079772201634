/* tuned_kernel.h: the kernel of rung 14.  It is rung 13's with the changes that 14_tuned.cu lists;
 * multi_gpu/part_tuned.cu launches it on a part of the keys. */
#ifndef HOPPER_TUNED_KERNEL_H
#define HOPPER_TUNED_KERNEL_H

#include "answer.h"
#include "last_waves.h"
#include "step.h"

template <class Type, int HEAD_DIM, int CONSUMERS, int KEYS, int STAGES, int STAGES_OF_V = STAGES,
          bool PART = false>
struct config {
    using T = Type;
    static constexpr bool IS_PART = PART; /* of the keys: merged with the answer so far */
    static constexpr int D = HEAD_DIM, WARPGROUPS = CONSUMERS, Br = 64 * WARPGROUPS;
    static constexpr int Bc = KEYS;
    static constexpr bool FIRST_BLOCK_MAX = D <= 128 && std::is_same_v<T, __nv_bfloat16>;
    static constexpr int K_STAGES = STAGES, V_STAGES = STAGES_OF_V;
    static constexpr int K_RELEASES = FIRST_BLOCK_MAX ? 4 : 1; /* by each warp, or one for all */
    static constexpr int Q_STAGES = D == 256 || K_STAGES > V_STAGES ? 1 : 2;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 40 : 32;
    static constexpr int REGISTERS = WARPGROUPS == 2 ? 232 : WARPGROUPS == 3 ? 160 : 112;
    static constexpr bool Q_IN_REGISTERS = D == 128;
    static constexpr bool EARLY_RELEASE = Q_IN_REGISTERS && Q_STAGES == 1;
    static constexpr int GROUP = /* products before the turn passes; 0: all */
        WARPGROUPS > (FIRST_BLOCK_MAX ? 3 : 2) ? 3 : 0;
    static constexpr bool TMA_STORE = D <= 128; /* shared memory is left for a tile of o */
};

template <class C> struct memory {
    struct q_pipeline<C> q;
    struct kv_pipeline<C> kv;
    alignas(1024) typename C::T o[C::TMA_STORE ? C::Br * C::D : 8];
    struct piece piece[C::Q_STAGES]; /* of the keys, for each tile of Q */
    float c; /* for registers: ptxas loads a parameter again in every block */
};

/* Which rows of queries a thread has, and the mask on their scores. */
struct causal_scores {
    const struct params &params;
    int row; /* the thread's first */

    template <class C>
    __device__ __forceinline__ void finish(float (&s)[C::Bc / 2], int n, bool mask) const
    {
        if (mask) mask_block<C>(s, params, row, n);
    }
    /* The same rows, or step() stores its comparisons. */
    __device__ __forceinline__ struct causal_scores again() const { return {params, as_new(row)}; }
    template <class C>
    __device__ __forceinline__ void weigh(float (&s)[C::Bc / 2], struct rows &r, float unit) const
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
                                               const struct last_waves &cut)
{
    struct producer x = {{0, 1}, {0, 1}, {0, 1}};
    for (int tile = blockIdx.x; tile < cut.first;) {
        const struct work_tile t = find_tile(s, params, tile);
        struct piece all = {0, blocks_seen<C>(params, t.tile * C::Br + C::Br - 1), -1};
        load(sm, x, params, t, all);
        tile = next_tile(s, tile);
        load_end(sm, x, params, t, all);
    }
    int at = blockIdx.x * cut.run, end = min(at + cut.run, (s.n_tiles - cut.first) * cut.blocks);
    while (at < end) {
        const struct work_tile t = find_tile(s, params, cut.first + at / cut.blocks);
        struct piece piece = piece_at(cut, at);
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
                                                const struct last_waves &cut,
                                                const struct work_tile &t,
                                                const struct piece &piece, int w)
{
    int first = t.tile * C::Br + 64 * w, row = first + first_row();
    size_t head = (size_t)t.batch * params.heads_q + t.head;
    if (!C::IS_PART && piece.part >= 0) {
        store_part<C>(x.o, x.rows, cut, piece.part, 64 * w + first_row());
        return;
    }
    if constexpr (C::IS_PART) merge_answer<C>(x.o, x.rows, params, row, head);
    else normalize(x.o, x.rows, params, row, head);
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait_read(); /* the tile before */
    named_barrier_sync(8 + w, 128);
    if (C::TMA_STORE)
        store_through_tma<C>(x.o, sm.o + w * 64 * C::D, params, first, t, 8 + w);
    else
        store_from_registers<C>(x.o, params, row, head);
}

/* Consumer w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ __forceinline__ void attend(consumer<C> &x, memory<C> &sm,
                                              const struct params &params,
                                              const struct last_waves &cut, int w, int q_index)
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
        /* not before a product: an arrival can overtake the loads of the fragments */
        if (C::EARLY_RELEASE) release_q(&sm.q.empty[q_index], 8 + w);
        for (n++; n < n_open; n++) step<C, LATER<C>>(x, sm.kv, scores, w, n, false);
        for (; n < n_blocks; n++) step<C, LATER<C>>(x, sm.kv, scores, w, n, true);
        if (!C::EARLY_RELEASE) {
            asm volatile("" ::: "memory");
            piece.part = sm.piece[q_index].part; /* again: it took no register so far */
            release_q(&sm.q.empty[q_index], 8 + w);
        }
        for (int i = n; i < piece.end; i++) pass_turn<C>(w);
        last_pv(x, sm.kv);
    } else {
        release_q(&sm.q.empty[q_index], 8 + w);
        for (; n < piece.end; n++) pass(x, sm.kv, w);
    }
    epilogue(x, sm, params, cut, t, piece, w);
    for (; n < piece.end; n++) /* they can wait until o is on its way */
        skip_block(sm.kv, x.k_at, x.v_at, 8 + w);
}

template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct params &params,
                                               const struct last_waves &cut, int w)
{
    consumer<C> x;
    struct pipeline_state q_at = {0, 0};
    x.unit = *(volatile float *)&sm.c;
    x.k_at = x.v_at = {0, 0};
    if (w == C::WARPGROUPS - 1) release_turn<C>(w); /* consumer 0 begins */
    for (;; advance<C::Q_STAGES>(q_at)) {
        mbarrier_wait(&sm.q.full[q_at.index], q_at.phase);
        if (sm.q.tile[q_at.index].tile < 0) break;
        attend(x, sm, params, cut, w, q_at.index);
    }
    if (C::TMA_STORE && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    tuned_kernel(const __grid_constant__ struct params params, const struct scheduler s,
                 const struct last_waves cut)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        q_init(sm.q);
        kv_init(sm.kv);
        sm.c = params.c;
        fence_mbarrier_init();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        setmaxnreg_dec<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(sm, params, s, cut);
    } else {
        setmaxnreg_inc<C::REGISTERS>();
        consume(sm, params, cut, w - 1);
    }
}

#endif
