/* arch: sm_90a */
/* Rung 12: hope, and repair.  The maximum is looked for in the first key block only.
 *
 * The reference m need not be the maximum (rung 9); it must keep 2^(s c - m c) in range,
 * and a bfloat16 or float reaches from 2^-126 to 2^127.  So m is the maximum of the row's
 * first block, its weight is 2^-14, and the loop has no maximum, no exchange between
 * lanes, no rescaling: a vote of the warp whether some l has passed 2^76.
 *
 * Then a row has outgrown its reference by 2^90 (62 in units of the score).  Nothing is
 * lost: this block's P V is not ordered yet, and its K is still in the ring.  The warp
 * alone does the block again, as in rung 11: its 16 rows of scores by the tensor core
 * instruction of rung 3, which hands them to the same lanes as wgmma; their maxima; o and
 * l scaled.  No other warp waits, no tile is computed twice, and the result depends on
 * the data only.  The price is that K stays in the ring until the weights are known.
 *
 * float16 ends at 2^16: it is computed as in rung 11 always; so is d = 256, where the
 * maximum costs nothing.
 *
 * Where nothing but exponentials follows the scores, the turn passes when they are ready,
 * as in rung 11's first block, and short sequences gain by smaller key blocks. */
#include "launch.h"

/* float16, head dimensions up to 64: three warpgroups and 128 keys, as in rung 11. */
static bool takes_three(const struct problem *p)
{
    return p->dtype == F16 && !p->causal && p->seqlen_k >= 8192;
}

/* Head dimensions up to 128: blocks of 64 keys instead of 128. */
static bool is_short(const struct problem *p)
{
    return p->seqlen_k < (p->causal ? 2048 : 1024);
}

#ifdef __CUDACC__
#include "schedule.h"

/* Br = 64 WG queries, Bc keys; K_SLOTS, V_SLOTS in the ring; HOLD: queries in registers;
 * HOPES: this rung's idea. */
template <class Type, int HEAD_DIM, int WG, int KEYS, int K_SLOTS, int V_SLOTS, bool HOLD,
          bool HOPES>
struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = WG, Br = 64 * WG, Bc = KEYS;
    static constexpr int STAGES = K_SLOTS, V_STAGES = V_SLOTS;
    static constexpr int QUERIES = D == 256 || K_SLOTS > V_SLOTS ? 1 : 2;
    static constexpr int THREADS = 128 * (WG + 1);
    static constexpr int SHRINK = WG == 2 ? 40 : 32; /* registers of the producer */
    static constexpr int GROW = WG == 2 ? 232 : WG == 3 ? 160 : 112; /* of a consumer */
    static constexpr bool STAGED = D <= 128, HOLD_Q = HOLD, HOPE = HOPES;
    static constexpr int PART = WG > 2 ? 3 : 0; /* products before the turn passes */
    static constexpr bool EARLY = HOLD && QUERIES == 1; /* Q given back once it is held */
    static constexpr int K_RELEASES = HOPE ? 4 : 1; /* by each warp, or by one for all */
};

/* A row's first weight is 2^-START, which leaves the exponent's fraction 20 bits, and its
 * block is repaired when l passes LIMIT, which leaves o room for |v| up to 2^40. */
#define START 14.0f
#define LIMIT 0x1p76f
#define UNSEEN -1e30f /* mc of a row without a score: its first one passes any limit */

template <class C> struct memory {
    struct queue<C> queue;
    struct ring<C> ring;
    alignas(1024) typename C::T o[C::STAGED ? C::Br * C::D : 8];
    float c; /* j.c, which the assembler would load anew in every block */
};

template <class C>
static __device__ __forceinline__ void produce(memory<C> &sm, const struct job &j,
                                               const struct schedule &t)
{
    struct place q_at = {0, 1}, k_at = {0, 1}, v_at = {0, 1};
    int next = blockIdx.x;
    while (next < t.n_tasks) {
        struct task task = find_task(t, j, next);
        barrier_wait(&sm.queue.empty[q_at.slot], q_at.parity);
        queue_load(sm.queue, q_at.slot, j, task);
        advance<C::QUERIES>(q_at);
        int n_blocks = blocks_seen<C>(j, task.tile * C::Br + C::Br - 1);
        int head_kv = task.head / j.group;
        for (int n = 0; n < n_blocks; n++) {
            ring_load_k(sm.ring, k_at, j, n, head_kv, task.batch);
            if (n > 0) ring_load_v(sm.ring, v_at, j, n - 1, head_kv, task.batch);
        }
        next = next_task(t, j, next);
        if (n_blocks > 0)
            ring_load_v(sm.ring, v_at, j, n_blocks - 1, head_kv, task.batch);
    }
    barrier_wait(&sm.queue.empty[q_at.slot], q_at.parity);
    queue_end(sm.queue, q_at.slot);
}

/* A turn is a named barrier for each warpgroup; they go round. */
template <class C> static __device__ __forceinline__ void take_turn(int w)
{
    named_sync(1 + w, 256);
}

template <class C> static __device__ __forceinline__ void pass_turn(int w)
{
    named_arrive(w + 1 == C::WARPGROUPS ? 1 : 2 + w, 256);
}

/* A consumer's registers, and its places in the ring. */
template <class C> struct worker {
    float s[C::Bc / 2], o[C::D / 2], c;
    uint32_t p[C::Bc / 4], held[C::HOLD_Q ? C::D / 4 : 1];
    uint64_t q;
    const typename C::T *q_rows;
    struct rows r;
    struct place k_at, v_at;
};

/* Moves both references to the rows' maxima so far, with a weight of 2^-START there. */
template <class C>
static __device__ __forceinline__ void refer(worker<C> &x, float (&shrink)[2])
{
    float top[2];
    row_maxima(x.s, top);
    raise(x.r, top, x.c, shrink);
#pragma unroll
    for (int i = 0; i < 2; i++)
        x.r.mc[i] = x.r.m[i] == -INFINITY ? UNSEEN : x.r.mc[i] + START;
}

/* S = Q K^T of the warp's 16 rows, without wgmma: the other warps have no part in it. */
template <class C>
static __device__ __forceinline__ void warp_scores(worker<C> &x, const typename C::T *k)
{
    int lane = threadIdx.x % 32, key = lane / 16 * 8 + lane % 8;
    uint32_t base = shared_address(k) + key * 128, q[C::D / 4];
    if constexpr (!C::HOLD_Q) load_queries<C>(q, x.q_rows);
#pragma unroll
    for (int i = 0; i < C::Bc / 2; i++) x.s[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < C::D / 16; i++) {
        uint32_t chunk = (2 * (i % 4) + lane / 8 % 2) ^ (key & 7);
        const uint32_t *a = (C::HOLD_Q ? x.held : q) + 4 * i;
#pragma unroll
        for (int n = 0; n < C::Bc / 16; n++) { /* 16 keys: two tiles of 8 columns */
            uint32_t b[4];
            load_matrices(b, base + i / 4 * C::Bc * 128 + n * 16 * 128 + chunk * 16);
            multiply_tile<typename C::T>(x.s + 8 * n, a, b[0], b[1]);
            multiply_tile<typename C::T>(x.s + 8 * n + 4, a, b[2], b[3]);
        }
    }
}

/* Block n again with the maximum; `l` is the rows' l without the block.  Nothing of it is
 * in o yet. */
template <class C>
static __device__ __forceinline__ void repair(worker<C> &x, const typename C::T *k,
                                              const struct job &j, int row, int n,
                                              bool hide, const float (&l)[2])
{
    float shrink[2];
    warp_scores(x, k);
    if (hide) hide_block<C>(x.s, j, row, n);
    x.r.l[0] = l[0], x.r.l[1] = l[1];
    refer(x, shrink);
    weigh(x.s, x.r, x.c);
    scale_rows(x.o, shrink);
    pack_weights<typename C::T>(x.s, x.p);
    settle(x.o);
    settle(x.p);
}

/* Key block n, and the output of block n - 1 (there is none before block 0).  `hide` is a
 * constant but for block 0: no other has a condition while a product is in flight.  Where
 * the turn passes with the scores, a wait that is long over follows: the assembler would
 * let the turn sink under the exponentials, but it moves nothing across a wait. */
template <class C, bool FIRST>
static __device__ __forceinline__ void
step(worker<C> &x, ring<C> &ring, const struct job &j, int w, int row, int n, bool hide)
{
    constexpr bool LATE = C::PART > 0 && (FIRST || C::HOPE); /* turns pass with scores */
    float top[2], shrink[2];
    bool moved = FIRST;
    int slot = x.k_at.slot;
    barrier_wait(&ring.k_full[slot], x.k_at.parity);
    take_turn<C>(w);
    wgmma_fence();
    if constexpr (C::HOLD_Q)
        start_scores_held<C>(x.s, x.held, ring.k[slot]);
    else
        start_scores<C, LATE ? 0 : C::PART>(x.s, x.q, ring.k[slot]);
    if (!FIRST) {
        barrier_wait(&ring.v_full[x.v_at.slot], x.v_at.parity);
        wgmma_fence();
        start_output<C>(x.o, x.p, ring.v[x.v_at.slot]);
    }
    if (C::PART > 0 && !LATE) wgmma_wait<2>();
    if (!LATE) pass_turn<C>(w);
    wgmma_wait<FIRST ? 0 : 1>();
    if (LATE) {
        pass_turn<C>(w);
        barrier_wait(&ring.k_full[slot], x.k_at.parity); /* long over: a fence */
    }
    settle(x.s);
    if (!C::HOPE) barrier_arrive_if(&ring.k_empty[slot], threadIdx.x % 128 == 0);
    if (hide) hide_block<C>(x.s, j, row, n);
    if (C::HOPE && FIRST) refer(x, shrink);
    if (!C::HOPE) {
        row_maxima(x.s, top);
        if (!FIRST) moved = exceeds(x.r, top, x.c);
        if (moved) raise(x.r, top, x.c, shrink);
    }
    const float l[2] = {x.r.l[0], x.r.l[1]};
    weigh(x.s, x.r, x.c);
    if (!FIRST) {
        wgmma_wait<0>();
        settle(x.o);
        release(ring.v_empty, x.v_at);
        if (!C::HOPE && moved) scale_rows(x.o, shrink);
        settle(x.o);
    }
    pack_weights<typename C::T>(x.s, x.p);
    settle(x.p);
    advance<C::STAGES>(x.k_at);
    if (C::HOPE) {
        bool outgrown = SOFTMAX && (x.r.l[0] > LIMIT || x.r.l[1] > LIMIT);
        if (__any_sync(0xffffffffu, outgrown))
            repair(x, ring.k[slot], j, row, n, hide, l);
        barrier_arrive_if(&ring.k_empty[slot], threadIdx.x % 32 == 0);
    }
}

/* All warps have read the slot's task and queries: it may be filled again. */
static __device__ __forceinline__ void give_back(uint64_t *q_empty, int id)
{
    named_sync(id, 128);
    barrier_arrive_if(q_empty, threadIdx.x % 128 == 0);
}

/* The fold over the first n_blocks key blocks; the first n_open hide no key.  Of the
 * tile's n_tile blocks the others are another warpgroup's: their turns are passed on. */
template <class C>
static __device__ __forceinline__ void
attend(worker<C> &x, ring<C> &ring, const struct job &j, int w, int row, int n_blocks,
       int n_open, int n_tile, uint64_t *q_empty)
{
    int n = 1;
    step<C, true>(x, ring, j, w, row, 0, n_open == 0);
    for (; n < n_open; n++) step<C, false>(x, ring, j, w, row, n, false);
    for (; n < n_blocks; n++) step<C, false>(x, ring, j, w, row, n, true);
    if (!C::EARLY) give_back(q_empty, 8 + w);
    for (; n < n_tile; n++) {
        take_turn<C>(w);
        pass_turn<C>(w);
    }
    barrier_wait(&ring.v_full[x.v_at.slot], x.v_at.parity);
    wgmma_fence();
    start_output<C>(x.o, x.p, ring.v[x.v_at.slot]);
    wgmma_wait<0>();
    settle(x.o);
    release(ring.v_empty, x.v_at);
}

/* Writes the warpgroup's 64 rows of o. */
template <class C>
static __device__ __forceinline__ void deliver(worker<C> &x, memory<C> &sm,
                                               const struct job &j,
                                               const struct task &task, int w, int row)
{
    int first = task.tile * C::Br + 64 * w;
    size_t head = (size_t)task.batch * j.heads_q + task.head;
    bool lead = threadIdx.x % 128 == 0;
    finish(x.o, x.r, j, row, head);
    if (C::STAGED && lead) tma_store_wait_read(); /* the tile before */
    named_sync(8 + w, 128);
    if (C::STAGED)
        store_staged<C>(x.o, sm.o + w * 64 * C::D, j, first, task.head, task.batch,
                        8 + w);
    else
        store_quads<C>(x.o, j, row, head);
}

/* Warpgroup w: queries 64 w ... 64 w + 63 of each tile. */
template <class C>
static __device__ __forceinline__ void consume(memory<C> &sm, const struct job &j, int w)
{
    worker<C> x;
    struct place q_at = {0, 0};
    x.k_at = x.v_at = {0, 0};
    x.c = *(volatile float *)&sm.c;
    if (w == C::WARPGROUPS - 1) pass_turn<C>(w); /* consumer 0 begins */
    for (;; advance<C::QUERIES>(q_at)) {
        barrier_wait(&sm.queue.full[q_at.slot], q_at.parity);
        struct task task = sm.queue.task[q_at.slot];
        if (task.tile < 0) break;
        int first = task.tile * C::Br + 64 * w, row = first + first_row();
        int n_tile = blocks_seen<C>(j, task.tile * C::Br + C::Br - 1);
        int n_blocks = first < j.seqlen_q ? blocks_seen<C>(j, first + 63) : 0;
        uint64_t *q_empty = &sm.queue.empty[q_at.slot];
        empty(x.r, x.o);
        if (n_blocks > 0) {
            x.q_rows = sm.queue.q[q_at.slot] + w * 64 * 64;
            if constexpr (C::HOLD_Q) {
                load_queries<C>(x.held, x.q_rows);
                if (C::EARLY) give_back(q_empty, 8 + w);
            } else
                x.q = descriptor_qk(x.q_rows);
            attend<C>(x, sm.ring, j, w, row, n_blocks, blocks_open<C>(j, first), n_tile,
                      q_empty);
        } else {
            give_back(q_empty, 8 + w);
            for (int n = 0; n < n_tile; n++) { /* other warpgroups need these */
                take_turn<C>(w);
                pass_turn<C>(w);
                skip_block(sm.ring, x.k_at, x.v_at, 8 + w);
            }
        }
        deliver(x, sm, j, task, w, row);
        if (n_blocks > 0) /* what it skips can wait until its o is on the way */
            for (int n = n_blocks; n < n_tile; n++)
                skip_block(sm.ring, x.k_at, x.v_at, 8 + w);
    }
    if (C::STAGED && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    optimistic_kernel(const __grid_constant__ struct job j, const struct schedule t)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        queue_init(sm.queue);
        ring_init(sm.ring);
        sm.c = j.c;
        barrier_init_fence();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        registers_shrink<C::SHRINK>();
        if (threadIdx.x == 0) produce(sm, j, t);
    } else {
        registers_grow<C::GROW>();
        consume(sm, j, w - 1);
    }
}

template <class C> static void launch_as(const struct problem *p, const struct arrays *a)
{
    static_assert((C::Br - 64 + C::Bc - 1) / C::Bc <= C::V_STAGES,
                  "what a warpgroup skips must find room while it stores its o");
    const struct job j = job_of(p, a, C::Br, C::Bc);
    const struct schedule t = schedule_of(j, p, a);
    cudaLaunchConfig_t config =
        configuration((const void *)optimistic_kernel<C>, persistent_grid(t), C::THREADS,
                      sizeof(memory<C>), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, optimistic_kernel<C>, j, t));
}

/* The instance for a shape, each chosen by measurement (notes/hopper.md). */
template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    constexpr bool HOPE = std::is_same<T, __nv_bfloat16>::value;
    if constexpr (D == 64 && HOPE) {
        launch_as<config<T, 64, 4, 64, 4, 4, false, true>>(p, a);
    } else if constexpr (D == 64) {
        if (takes_three(p))
            launch_as<config<T, 64, 3, 128, 3, 3, false, false>>(p, a);
        else
            launch_as<config<T, 64, 4, 64, 4, 4, false, false>>(p, a);
    } else if constexpr (D == 128 && HOPE) {
        if (is_short(p))
            launch_as<config<T, 128, 2, 64, 4, 4, true, true>>(p, a);
        else
            launch_as<config<T, 128, 2, 128, 3, 2, true, true>>(p, a);
    } else if constexpr (D == 128) {
        launch_as<config<T, 128, 2, 128, 2, 2, true, false>>(p, a);
    } else {
        launch_as<config<T, 256, 2, 64, 2, 2, false, false>>(p, a);
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}
#endif

/* The instance for a shape in words. */
static const char *picks(const struct problem *p)
{
    if (p->head_dim > 128 || p->head_dim_v > 128)
        return "as rung 11: tiles of 128 queries and 64 keys";
    if (p->head_dim > 64 || p->head_dim_v > 64) {
        if (p->dtype == F16) return "as rung 11: tiles of 128 queries and 128 keys";
        return is_short(p) ? "tiles of 128 queries and 64 keys: a short sequence"
                           : "tiles of 128 queries and 128 keys; three of K, two of V";
    }
    return takes_three(p) ? "as rung 11: tiles of 192 queries and 128 keys"
                          : "tiles of 256 queries and 64 keys: four warpgroups take turns";
}

/* The counter that gives out tasks. */
static size_t workspace(const struct problem *) { return sizeof(int); }

static struct cost cost(const struct problem *p)
{
    return hopper_cost(p, p->head_dim <= 64 && p->head_dim_v <= 64 ? 256 : 128);
}

GPU_VARIANT(optimistic) = {
    .name = "optimistic",
    .idea = "maximum of the first key block only; a block that outgrows it is repaired",
    HOPPER_VARIANT,
    .picks = picks,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_ATTENTION, GPU_ONLY(attention)}},
    .on_gpu = GPU_TWIN(optimistic),
};
