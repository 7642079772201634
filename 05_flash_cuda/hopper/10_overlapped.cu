/* arch: sm_90a */
/* Rung 8: overlap inside a warpgroup.  The softmax of block n runs under P V of n - 1.
 *
 * Both products of a turn are started as in rung 7, but the warpgroup waits only for the
 * first: the tensor cores go on with P V while it takes the exponentials.
 *
 *     tensor cores    Q K^T (n)  P V (n-1)            Q K^T (n+1)  P V (n)
 *     this warpgroup             softmax (n) ......               softmax (n+1) ......
 *
 * Nothing may touch o and p meanwhile, so the weights stay in s until P V has ended. 
 * What hides keys must not depend on a run-time condition while a product is in flight: a
 * loop for blocks without hidden keys, and one for the others. */
#include "launch.h"

#ifdef __CUDACC__
#include "ring.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, WARPGROUPS = 2, Br = 64 * WARPGROUPS;
    static constexpr int Bc = D == 256 ? 64 : 128, STAGES = 2;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
};

template <class C> struct memory {
    alignas(1024) typename C::T q[C::Br * C::D];
    struct ring<C> ring;
    uint64_t q_full;
};

/* One thread: Q, then K and V block by block. */
template <class C> static __device__ void produce(memory<C> &sm, const struct job &j)
{
    const struct spot at = spot_of(j, C::Br);
    int n_blocks = blocks_seen<C>(j, at.first + C::Br - 1);
    struct place k_at = {0, 1}, v_at = {0, 1};
    load_tile<C, C::Br>(sm.q, &j.q, &sm.q_full, at.first, at.head, at.batch);
    for (int n = 0; n < n_blocks; n++) {
        ring_load_k(sm.ring, k_at, j, n, at.head / j.group, at.batch);
        ring_load_v(sm.ring, v_at, j, n, at.head / j.group, at.batch);
    }
}

/* A turn is a named barrier for each warpgroup: its owner waits there for the other. */
static __device__ __forceinline__ void take_turn(int w) { named_sync(1 + w, 256); }
static __device__ __forceinline__ void pass_turn(int w) { named_arrive(2 - w, 256); }

/* A consumer's registers, and its places in the ring. */
template <class C> struct worker {
    float s[C::Bc / 2], o[C::D / 2];
    uint32_t p[C::Bc / 4];
    struct rows r;
    struct place k_at, v_at;
};

/* Key block n, and the output of block n - 1 (there is none before block 0). */
template <class C, bool FIRST, bool HIDE>
static __device__ __forceinline__ void
step(worker<C> &x, ring<C> &ring, const struct job &j, uint64_t q, int w, int row, int n)
{
    float top[2], shrink[2];
    barrier_wait(&ring.k_full[x.k_at.slot], x.k_at.parity);
    take_turn(w);
    wgmma_fence();
    start_scores<C>(x.s, q, ring.k[x.k_at.slot]);
    if (!FIRST) {
        barrier_wait(&ring.v_full[x.v_at.slot], x.v_at.parity);
        wgmma_fence();
        start_output<C>(x.o, x.p, ring.v[x.v_at.slot]);
    }
    pass_turn(w);
    wgmma_wait<FIRST ? 0 : 1>(); /* the scores are here, P V may still run */
    settle(x.s);
    release(ring.k_empty, x.k_at);
    if (HIDE) hide_block<C>(x.s, j, row, n);
    row_maxima(x.s, top);
    raise(x.r, top, j.c, shrink);
    weigh(x.s, x.r, j.c);
    if (!FIRST) {
        wgmma_wait<0>();
        settle(x.o);
        release(ring.v_empty, x.v_at);
        scale_rows(x.o, shrink);
    }
    pack_weights<typename C::T>(x.s, x.p);
    settle(x.p);
}

/* Warpgroup w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ void consume(memory<C> &sm, const struct job &j, int w)
{
    const struct spot at = spot_of(j, C::Br);
    int first = at.first + 64 * w, row = first + first_row(), n = 1;
    int n_blocks = blocks_seen<C>(j, at.first + C::Br - 1);
    int n_open = blocks_open<C>(j, first);
    size_t head = (size_t)at.batch * j.heads_q + at.head;
    uint64_t q = descriptor_qk(sm.q + w * 64 * 64);
    worker<C> x;
    x.k_at = x.v_at = {0, 0};
    empty(x.r, x.o);
    barrier_wait(&sm.q_full, 0);
    if (w == 1) pass_turn(1); /* consumer 0 begins */
    if (n_blocks > 0) {
        step<C, true, true>(x, sm.ring, j, q, w, row, 0);
        for (; n < n_open; n++) step<C, false, false>(x, sm.ring, j, q, w, row, n);
        for (; n < n_blocks; n++) step<C, false, true>(x, sm.ring, j, q, w, row, n);
        barrier_wait(&sm.ring.v_full[x.v_at.slot], x.v_at.parity);
        wgmma_fence();
        start_output<C>(x.o, x.p, sm.ring.v[x.v_at.slot]);
        wgmma_wait<0>();
        settle(x.o);
    }
    finish(x.o, x.r, j, row, head);
    store_pairs<C>(x.o, j, row, head);
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    overlapped_kernel(const __grid_constant__ struct job j)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    if (threadIdx.x == 0) {
        barrier_init(&sm.q_full, 1);
        ring_init(sm.ring);
        barrier_init_fence();
    }
    __syncthreads();
    int w = warpgroup_index();
    if (w == 0) {
        registers_shrink<24>();
        if (threadIdx.x == 0) produce(sm, j);
    } else {
        registers_grow<240>();
        consume(sm, j, w - 1);
    }
}

template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    using C = config<T, D>;
    const struct job j = job_of(p, a, C::Br, C::Bc);
    cudaLaunchConfig_t config =
        configuration((const void *)overlapped_kernel<C>, a_block_a_tile(j, p),
                      C::THREADS, sizeof(memory<C>), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, overlapped_kernel<C>, j));
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}
#endif

static struct cost cost(const struct problem *p) { return hopper_cost(p, 128); }

GPU_VARIANT(overlapped) = {
    .name = "overlapped",
    .idea = "the softmax of a block runs under the product P V of the block before",
    HOPPER_VARIANT,
    .cost = cost,
    .does = {{OP_ATTENTION, GPU_ONLY(attention)}},
    .on_gpu = GPU_TWIN(overlapped),
};
