/* arch: sm_90a */
/* Rung 11: a tile for each head dimension, and turns that pass later.
 *
 *   d = 64    four warpgroups of 64 queries, 64 keys; three and 128 keys for long
 *             sequences.  A weight costs the exponential unit as many cycles as the
 *             tensor cores: both must always have work.  The turn passes when the scores
 *             are nearly *ready* (three of four products).  If it passed when they are
 *             only ordered, the tensor cores could work on all warpgroups at once and
 *             finish them at the same time; then all take exponentials and nothing
 *             multiplies.
 *   d = 128   queries are held in registers: every product Q K^T reads shared memory once
 *             less.
 *   d = 256   as before; o has no shared memory to go through. */
#include "launch.h"

/* Head dimensions up to 64: three warpgroups and 128 keys, not four and 64? */
static bool takes_three(const struct problem *p)
{
    return !p->causal && p->seqlen_k >= 8192;
}

#ifdef __CUDACC__
#include "schedule.h"

/* Br = 64 WG queries, Bc keys; HOLD: queries in registers. */
template <class Type, int HEAD_DIM, int WG, int KEYS, int SLOTS, bool HOLD>
struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = WG, Br = 64 * WG, Bc = KEYS;
    static constexpr int STAGES = SLOTS, QUERIES = D == 256 ? 1 : 2;
    static constexpr int THREADS = 128 * (WG + 1);
    static constexpr int SHRINK = WG == 2 ? 40 : 32; /* registers of the producer */
    static constexpr int GROW = WG == 2 ? 232 : WG == 3 ? 160 : 112; /* of a consumer */
    static constexpr bool STAGED = D <= 128, HOLD_Q = HOLD;
    static constexpr int PART = WG > 2 ? 3 : 0; /* products before the turn passes */
};

template <class C> struct memory {
    struct queue<C> queue;
    struct ring<C> ring;
    alignas(1024) typename C::T o[C::STAGED ? C::Br * C::D : 8];
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
    float s[C::Bc / 2], o[C::D / 2];
    uint32_t p[C::Bc / 4], held[C::HOLD_Q ? C::D / 4 : 1];
    uint64_t q;
    struct rows r;
    struct place k_at, v_at;
};

/* Key block n, and the output of block n - 1 (there is none before block 0).  `hide` is a
 * constant but for block 0: no other has a condition while a product is in flight. */
template <class C, bool FIRST>
static __device__ __forceinline__ void
step(worker<C> &x, ring<C> &ring, const struct job &j, int w, int row, int n, bool hide)
{
    float top[2], shrink[2];
    barrier_wait(&ring.k_full[x.k_at.slot], x.k_at.parity);
    take_turn<C>(w);
    wgmma_fence();
    if constexpr (C::HOLD_Q)
        start_scores_held<C>(x.s, x.held, ring.k[x.k_at.slot]);
    else
        start_scores<C, C::PART>(x.s, x.q, ring.k[x.k_at.slot]);
    if (!FIRST) {
        barrier_wait(&ring.v_full[x.v_at.slot], x.v_at.parity);
        wgmma_fence();
        start_output<C>(x.o, x.p, ring.v[x.v_at.slot]);
    }
    const bool late = C::PART > 0 && FIRST;
    if (C::PART > 0 && !late) wgmma_wait<2>();
    if (!late) pass_turn<C>(w);
    wgmma_wait<FIRST ? 0 : 1>();
    settle(x.s);
    if (late) pass_turn<C>(w);
    release(ring.k_empty, x.k_at);
    if (hide) hide_block<C>(x.s, j, row, n);
    row_maxima(x.s, top);
    bool moved = FIRST || exceeds(x.r, top, j.c);
    if (moved) raise(x.r, top, j.c, shrink);
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

/* The fold over the first n_blocks key blocks; the first n_open hide no key. */
template <class C>
static __device__ __forceinline__ void attend(worker<C> &x, ring<C> &ring,
                                              const struct job &j, int w, int row,
                                              int n_blocks, int n_open, uint64_t *q_empty)
{
    int n = 1;
    step<C, true>(x, ring, j, w, row, 0, n_open == 0);
    for (; n < n_open; n++) step<C, false>(x, ring, j, w, row, n, false);
    for (; n < n_blocks; n++) step<C, false>(x, ring, j, w, row, n, true);
    barrier_arrive_if(q_empty, threadIdx.x % 128 == 0); /* no product needs Q any more */
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
            const typename C::T *q = sm.queue.q[q_at.slot] + w * 64 * 64;
            if constexpr (C::HOLD_Q)
                load_queries<C>(x.held, q);
            else
                x.q = descriptor_qk(q);
            attend<C>(x, sm.ring, j, w, row, n_blocks, blocks_open<C>(j, first), q_empty);
        } else {
            named_sync(8 + w, 128); /* all have read the task */
            barrier_arrive_if(q_empty, threadIdx.x % 128 == 0);
        }
        for (int n = n_blocks; n < n_tile; n++) { /* other warpgroups need these */
            take_turn<C>(w);
            pass_turn<C>(w);
            skip_block(sm.ring, x.k_at, x.v_at, 8 + w);
        }
        deliver(x, sm, j, task, w, row);
    }
    if (C::STAGED && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    fitted_kernel(const __grid_constant__ struct job j, const struct schedule t)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        queue_init(sm.queue);
        ring_init(sm.ring);
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
        configuration((const void *)fitted_kernel<C>, persistent_grid(t), C::THREADS,
                      sizeof(memory<C>), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, fitted_kernel<C>, j, t));
}

/* The instance for a shape, each chosen by measurement (notes/hopper.md). */
template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    if constexpr (D == 64) {
        if (takes_three(p))
            launch_as<config<T, 64, 3, 128, 3, false>>(p, a);
        else
            launch_as<config<T, 64, 4, 64, 4, false>>(p, a);
    } else if constexpr (D == 128) {
        launch_as<config<T, 128, 2, 128, 2, true>>(p, a);
    } else {
        launch_as<config<T, 256, 2, 64, 2, false>>(p, a);
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
        return "tiles of 128 queries and 64 keys; o leaves no registers for more";
    if (p->head_dim > 64 || p->head_dim_v > 64)
        return "tiles of 128 queries and 128 keys, queries in registers";
    return takes_three(p) ? "tiles of 192 queries and 128 keys: no mask, 8192 keys or more"
                          : "tiles of 256 queries and 64 keys: four warpgroups take turns";
}

/* The counter that gives out tasks. */
static size_t workspace(const struct problem *) { return sizeof(int); }

static struct cost cost(const struct problem *p)
{
    return hopper_cost(p, p->head_dim <= 64 && p->head_dim_v <= 64 ? 256 : 128);
}

GPU_VARIANT(fitted) = {
    .name = "fitted",
    .idea = "tiles and turns for each head dimension; queries in registers",
    HOPPER_VARIANT,
    .picks = picks,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_ATTENTION, GPU_ONLY(attention)}},
    .on_gpu = GPU_TWIN(fitted),
};
