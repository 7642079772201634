/* arch: sm_90a */
/* Rung 12: hope, and check.  The maximum is looked for in the first key block only.
 *
 * The reference m need not be the maximum (rung 9); it must keep 2^(s c - m c) in range,
 * and a bfloat16 or float reaches from 2^-126 to 2^127.  So m is the maximum of the row's
 * first block, weights are 2^(s c - m c - 12), and a row may outgrow its first block by
 * 2^130 (90 in units of the score) before anything overflows.  The loop has no maximum,
 * no exchange between lanes, no rescaling.
 *
 *   - Rows that keep growing: after every 1024 keys m moves, by a power of two taken from
 *     l (exact, so the rounding of the weights does not change).
 *   - A row that outgrows m at once: the tile ends with an l or o that is not finite, or
 *     l >= 2^124.  The consumers say so, and the producer issues the tile again, to be
 *     computed as in rung 11.  It looks at the verdict when the tile's slot of the queue
 *     comes round, and at all slots before it ends.
 *
 * float16 ends at 2^16: it is computed as in rung 11 always.
 *
 * Where nothing but exponentials follows the scores, the turn passes when they are ready,
 * as in rung 11's first block, and short sequences gain by smaller key blocks. */
#include "hopper_launch.h"

#ifdef __CUDACC__
#include "hopper_schedule.h"

/* Br = 64 WG queries, Bc keys; HOLD: queries in registers; HOPE: this rung's idea. */
template <class Type, int HEAD_DIM, int WG, int KEYS, int SLOTS, bool HOLD, bool HOPES>
struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = WG, Br = 64 * WG, Bc = KEYS;
    static constexpr int STAGES = SLOTS, QUERIES = D == 256 ? 1 : 2;
    static constexpr int THREADS = 128 * (WG + 1);
    static constexpr int SHRINK = WG == 2 ? 40 : 32; /* registers of the producer */
    static constexpr int GROW = WG == 2 ? 232 : WG == 3 ? 160 : 112; /* of a consumer */
    static constexpr bool STAGED = D <= 128, HOLD_Q = HOLD, HOPE = HOPES;
    static constexpr int PART = WG > 2 ? 3 : 0; /* products before the turn passes */
    static constexpr int GUARD = 1024 / Bc;     /* blocks between two looks at l */
};

#define HEADROOM 12 /* weights start at 2^-12 */

template <class C> struct memory {
    struct queue<C> queue;
    struct ring<C> ring;
    alignas(1024) typename C::T o[C::STAGED ? C::Br * C::D : 8];
    int failed[C::QUERIES]; /* the slot's tile must be computed again */
    struct task next;       /* the producer's, to spare registers */
};

/* What goes into the slot `at`, which is empty: the slot's own tile again if it failed,
 * else the next task; when there is none, a tile that failed in another slot. */
template <class C>
static __device__ __forceinline__ struct task choose(memory<C> &sm, struct place at)
{
    for (int i = 0; i < C::QUERIES; i++, advance<C::QUERIES>(at)) {
        if (i > 0) barrier_wait(&sm.queue.empty[at.slot], at.parity);
        if (C::HOPE && sm.failed[at.slot]) {
            struct task again = sm.queue.task[at.slot];
            sm.failed[at.slot] = 0;
            again.safe = 1;
            return again;
        }
        if (sm.next.tile >= 0 || !C::HOPE) break;
    }
    return sm.next;
}

template <class C>
static __device__ __forceinline__ void produce(memory<C> &sm, const struct job &j,
                                               const struct schedule &t)
{
    struct place q_at = {0, 1}, k_at = {0, 1}, v_at = {0, 1};
    int number = blockIdx.x;
    sm.next = find_task(t, j, number);
    for (;;) {
        barrier_wait(&sm.queue.empty[q_at.slot], q_at.parity);
        struct task task = choose(sm, q_at);
        if (task.tile < 0) break;
        queue_load(sm.queue, q_at.slot, j, task);
        advance<C::QUERIES>(q_at);
        int n_blocks = blocks_seen<C>(j, task.tile * C::Br + C::Br - 1);
        int head_kv = task.head / j.group;
        for (int n = 0; n < n_blocks; n++) {
            ring_load_k(sm.ring, k_at, j, n, head_kv, task.batch);
            if (n > 0) ring_load_v(sm.ring, v_at, j, n - 1, head_kv, task.batch);
        }
        if (!task.safe) number = next_task(t, j, number);
        if (n_blocks > 0)
            ring_load_v(sm.ring, v_at, j, n_blocks - 1, head_kv, task.batch);
        if (!task.safe) sm.next = find_task(t, j, number);
    }
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
    float s[C::Bc / 2], o[C::D / 2];
    uint32_t p[C::Bc / 4], held[C::HOLD_Q ? C::D / 4 : 1];
    uint64_t q;
    struct rows r;
    struct place k_at, v_at;
};

/* Key block n, and the output of block n - 1 (there is none before block 0).  `hide` is a
 * constant but for block 0: no other has a condition while a product is in flight. */
template <class C, bool FIRST, bool HOPE>
static __device__ __forceinline__ void
step(worker<C> &x, ring<C> &ring, const struct job &j, int w, int row, int n, bool hide)
{
    constexpr bool LATE = C::PART > 0 && (FIRST || HOPE); /* turns pass with the scores */
    float top[2], shrink[2];
    bool moved = FIRST;
    barrier_wait(&ring.k_full[x.k_at.slot], x.k_at.parity);
    take_turn<C>(w);
    wgmma_fence();
    if constexpr (C::HOLD_Q)
        start_scores_held<C>(x.s, x.held, ring.k[x.k_at.slot]);
    else
        start_scores<C, LATE ? 0 : C::PART>(x.s, x.q, ring.k[x.k_at.slot]);
    if (!FIRST) {
        barrier_wait(&ring.v_full[x.v_at.slot], x.v_at.parity);
        wgmma_fence();
        start_output<C>(x.o, x.p, ring.v[x.v_at.slot]);
    }
    if (C::PART > 0 && !LATE) wgmma_wait<2>();
    if (!LATE) pass_turn<C>(w);
    wgmma_wait<FIRST ? 0 : 1>();
    settle(x.s);
    if (LATE) pass_turn<C>(w);
    release(ring.k_empty, x.k_at);
    if (hide) hide_block<C>(x.s, j, row, n);
    if (FIRST || !HOPE) {
        row_maxima(x.s, top);
        if (!FIRST) moved = exceeds(x.r, top, j.c);
        if (moved) raise(x.r, top, j.c, shrink);
    }
    if (FIRST && HOPE) x.r.mc[0] += HEADROOM, x.r.mc[1] += HEADROOM;
    weigh(x.s, x.r, j.c);
    if (!FIRST) {
        wgmma_wait<0>();
        settle(x.o);
        release(ring.v_empty, x.v_at);
        if (moved) scale_rows(x.o, shrink);
        settle(x.o);
    }
    pack_weights<typename C::T>(x.s, x.p);
    settle(x.p);
}

/* Between two steps: rows whose l has passed 1 go back to where they started. */
template <class C> static __device__ __forceinline__ void guard(worker<C> &x)
{
    float shrink[2] = {1.0f, 1.0f};
    if (!__any_sync(0xffffffffu, x.r.l[0] > 1.0f || x.r.l[1] > 1.0f)) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float most = quad_max(x.r.l[i]);
        if (!(most > 1.0f)) continue;
        int by = min((__float_as_int(most) >> 23) - 127 + HEADROOM, 126);
        shrink[i] = __int_as_float((127 - by) << 23);
        x.r.mc[i] += by;
        x.r.l[i] *= shrink[i];
    }
    scale_rows(x.o, shrink);
    uint32_t by[2] = {pack<typename C::T>(shrink[0], shrink[0]),
                      pack<typename C::T>(shrink[1], shrink[1])};
#pragma unroll
    for (int i = 0; i < C::Bc / 4; i++)
        x.p[i] = multiply<typename C::T>(x.p[i], by[i % 2]);
    settle(x.o);
    settle(x.p);
}

/* The fold over the first n_blocks key blocks; the first n_open hide no key. */
template <class C, bool HOPE>
static __device__ __forceinline__ void attend(worker<C> &x, ring<C> &ring,
                                              const struct job &j, int w, int row,
                                              int n_blocks, int n_open, uint64_t *q_empty)
{
    step<C, true, HOPE>(x, ring, j, w, row, 0, n_open == 0);
    int n = 1;
    while (n < n_open) {
        int stop = HOPE ? min(n + C::GUARD, n_open) : n_open;
        for (; n < stop; n++) step<C, false, HOPE>(x, ring, j, w, row, n, false);
        if (HOPE) guard(x);
    }
    for (; n < n_blocks; n++) step<C, false, HOPE>(x, ring, j, w, row, n, true);
    if (!C::HOPE) barrier_arrive_if(q_empty, threadIdx.x % 128 == 0);
    barrier_wait(&ring.v_full[x.v_at.slot], x.v_at.parity);
    wgmma_fence();
    start_output<C>(x.o, x.p, ring.v[x.v_at.slot]);
    wgmma_wait<0>();
    settle(x.o);
    release(ring.v_empty, x.v_at);
}

/* True if hope failed for one of the thread's rows. */
template <class C>
static __device__ __forceinline__ bool hopeless(const worker<C> &x, const struct job &j,
                                                int row)
{
    float zero = 0.0f;
#pragma unroll
    for (int i = 0; i < C::D / 2; i++) zero = fmaf(x.o[i], 0.0f, zero);
    bool failed = !(zero == 0.0f);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        bool lost = x.r.m[i] == -INFINITY && row + 8 * i < j.seqlen_q &&
                    keys_seen(j, row + 8 * i) > 0;
        failed = failed || !(x.r.l[i] < 0x1p124f) || lost;
    }
    return failed;
}

/* Writes the warpgroup's 64 rows of o from query `first` on, and gives the slot back. */
template <class C>
static __device__ __forceinline__ void
deliver(worker<C> &x, memory<C> &sm, const struct job &j, const struct task &task, int w,
        int row, int slot)
{
    int first = task.tile * C::Br + 64 * w;
    size_t head = (size_t)task.batch * j.heads_q + task.head;
    bool lead = threadIdx.x % 128 == 0;
    finish(x.o, x.r, j, row, head);
    if (C::STAGED && lead) { /* a second o must not overtake the first */
        if (task.safe)
            tma_store_wait();
        else
            tma_store_wait_read();
    }
    named_sync(8 + w, 128);
    if (C::HOPE) barrier_arrive_if(&sm.queue.empty[slot], lead);
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
    if (w == C::WARPGROUPS - 1) pass_turn<C>(w); /* consumer 0 begins */
    for (;; advance<C::QUERIES>(q_at)) {
        barrier_wait(&sm.queue.full[q_at.slot], q_at.parity);
        struct task task = sm.queue.task[q_at.slot];
        if (task.tile < 0) break;
        int first = task.tile * C::Br + 64 * w, row = first + first_row();
        int n_tile = blocks_seen<C>(j, task.tile * C::Br + C::Br - 1);
        int n_blocks = first < j.seqlen_q ? blocks_seen<C>(j, first + 63) : 0;
        bool hope = C::HOPE && !task.safe;
        empty(x.r, x.o);
        if (n_blocks > 0) {
            const typename C::T *q = sm.queue.q[q_at.slot] + w * 64 * 64;
            if constexpr (C::HOLD_Q)
                load_queries<C>(x.held, q);
            else
                x.q = descriptor_qk(q);
            int n_open = blocks_open<C>(j, first);
            uint64_t *q_empty = &sm.queue.empty[q_at.slot];
            if (hope)
                attend<C, C::HOPE>(x, sm.ring, j, w, row, n_blocks, n_open, q_empty);
            else
                attend<C, false>(x, sm.ring, j, w, row, n_blocks, n_open, q_empty);
        } else if (!C::HOPE) {
            named_sync(8 + w, 128); /* all have read the task */
            barrier_arrive_if(&sm.queue.empty[q_at.slot], threadIdx.x % 128 == 0);
        }
        for (int n = n_blocks; n < n_tile; n++) { /* other warpgroups need these */
            take_turn<C>(w);
            pass_turn<C>(w);
            skip_block(sm.ring, x.k_at, x.v_at, 8 + w);
        }
        if (C::HOPE && hope && hopeless(x, j, row)) sm.failed[q_at.slot] = 1;
        deliver(x, sm, j, task, w, row, q_at.slot);
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
        for (int i = 0; i < C::QUERIES; i++) sm.failed[i] = 0;
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
    size_t n = p->seqlen_k;
    if constexpr (D == 64) {
        if (n >= (p->causal ? 16384 : 8192))
            launch_as<config<T, 64, 3, 128, 3, false, HOPE>>(p, a);
        else
            launch_as<config<T, 64, 4, 64, 4, false, HOPE>>(p, a);
    } else if constexpr (D == 128) {
        if (HOPE && n <= (p->causal ? 4096 : 1024))
            launch_as<config<T, 128, 2, 64, 4, true, HOPE>>(p, a);
        else
            launch_as<config<T, 128, 2, 128, 2, true, HOPE>>(p, a);
    } else {
        bool hope = HOPE && n >= (p->causal ? 16384 : 4096);
        if (hope)
            launch_as<config<T, 256, 2, 64, 2, false, HOPE>>(p, a);
        else
            launch_as<config<T, 256, 2, 64, 2, false, false>>(p, a);
    }
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}
#endif

/* The counter that gives out tasks. */
static size_t workspace(const struct problem *) { return sizeof(int); }

static struct cost cost(const struct problem *p)
{
    return hopper_cost(p, p->head_dim <= 64 && p->head_dim_v <= 64 ? 256 : 128);
}

GPU_VARIANT(optimistic) = {
    .name = "optimistic",
    .idea = "no maximum after the first key block; checked, and computed again if needed",
    HOPPER_VARIANT,
    .workspace = workspace,
    .cost = cost,
    .attention = GPU_ONLY(attention),
    .on_gpu = GPU_TWIN(optimistic),
};
