/* arch: sm_90a */
/* Rung 10: blocks that stay.  One block a multiprocessor works through many tiles.
 *
 * In rung 9 every tile pays for a start: barriers, the first Q and K from afar, and the
 * last store.  Here the producer goes on to the next tile's Q, K and V while the
 * consumers finish the last one.  Which tile comes next is hopper_schedule.h's: under a
 * causal mask heavy ones first, given out by a counter, heads in sections that fit the L2
 * cache.
 *
 * Slots and parities are carried from tile to tile and never reset.  Q has two slots
 * where shared memory allows. */
#include "launch.h"

#ifdef __CUDACC__
#include "schedule.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = 2, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 256 ? 64 : 128, STAGES = 2, QUERIES = D == 256 ? 1 : 2;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr bool STAGED = D <= 128; /* shared memory is left for a tile of o */
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

/* A turn is a named barrier for each warpgroup: its owner waits there for the other. */
static __device__ __forceinline__ void take_turn(int w) { named_sync(1 + w, 256); }
static __device__ __forceinline__ void pass_turn(int w) { named_arrive(2 - w, 256); }

/* A consumer's registers, and its places in the ring. */
template <class C> struct worker {
    float s[C::Bc / 2], o[C::D / 2];
    uint32_t p[C::Bc / 4];
    uint64_t q; /* descriptor */
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
    take_turn(w);
    wgmma_fence();
    start_scores<C>(x.s, x.q, ring.k[x.k_at.slot]);
    if (!FIRST) {
        barrier_wait(&ring.v_full[x.v_at.slot], x.v_at.parity);
        wgmma_fence();
        start_output<C>(x.o, x.p, ring.v[x.v_at.slot]);
    }
    pass_turn(w);
    wgmma_wait<FIRST ? 0 : 1>();
    settle(x.s);
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
    if (w == C::WARPGROUPS - 1) pass_turn(w); /* consumer 0 begins */
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
            x.q = descriptor_qk(sm.queue.q[q_at.slot] + w * 64 * 64);
            attend<C>(x, sm.ring, j, w, row, n_blocks, blocks_open<C>(j, first), q_empty);
        } else {
            named_sync(8 + w, 128); /* all have read the task */
            barrier_arrive_if(q_empty, threadIdx.x % 128 == 0);
        }
        for (int n = n_blocks; n < n_tile; n++) { /* other warpgroups need these */
            take_turn(w);
            pass_turn(w);
            skip_block(sm.ring, x.k_at, x.v_at, 8 + w);
        }
        deliver(x, sm, j, task, w, row);
    }
    if (C::STAGED && threadIdx.x % 128 == 0) tma_store_wait();
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    persistent_kernel(const __grid_constant__ struct job j, const struct schedule t)
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
        registers_shrink<40>();
        if (threadIdx.x == 0) produce(sm, j, t);
    } else {
        registers_grow<232>();
        consume(sm, j, w - 1);
    }
}

template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    using C = config<T, D>;
    const struct job j = job_of(p, a, C::Br, C::Bc);
    const struct schedule t = schedule_of(j, p, a);
    cudaLaunchConfig_t config =
        configuration((const void *)persistent_kernel<C>, persistent_grid(t), C::THREADS,
                      sizeof(memory<C>), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, persistent_kernel<C>, j, t));
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}
#endif

/* The counter that gives out tasks. */
static size_t workspace(const struct problem *) { return sizeof(int); }

static struct cost cost(const struct problem *p) { return hopper_cost(p, 128); }

GPU_VARIANT(persistent) = {
    .name = "persistent",
    .idea =
        "blocks stay and take tile after tile: heavy first, heads in sections of L2 size",
    HOPPER_VARIANT,
    .workspace = workspace,
    .cost = cost,
    .does = {{OP_ATTENTION, GPU_ONLY(attention)}},
    .on_gpu = GPU_TWIN(persistent),
};
