/* arch: sm_90a */
/* Rung 7: ping-pong.  The two consumers take turns at the tensor cores.
 *
 * Left alone, both warpgroups of rung 6 soon multiply at the same time and then take
 * exponentials at the same time, and each unit idles while the other works.  Here a
 * warpgroup may start its products only when the other has started its own:
 *
 *     consumer 0   Q K^T, P V | softmax      | Q K^T, P V | softmax
 *     consumer 1              | Q K^T, P V   | softmax    | Q K^T, P V
 *
 * For that the two products of a turn stand together: Q K^T of block n, P V of n - 1. */
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

/* Warpgroup w: queries 64 w ... 64 w + 63 of the tile. */
template <class C>
static __device__ void consume(memory<C> &sm, const struct job &j, int w)
{
    const struct spot at = spot_of(j, C::Br);
    int first = at.first + 64 * w, row = first + first_row();
    int n_blocks = blocks_seen<C>(j, at.first + C::Br - 1);
    int n_open = blocks_open<C>(j, first);
    size_t head = (size_t)at.batch * j.heads_q + at.head;
    uint64_t q = descriptor_qk(sm.q + w * 64 * 64);
    float s[C::Bc / 2], o[C::D / 2], top[2], shrink[2];
    uint32_t p[C::Bc / 4];
    struct rows r;
    struct place k_at = {0, 0}, v_at = {0, 0};
    empty(r, o);
    barrier_wait(&sm.q_full, 0);
    if (w == 1) pass_turn(1); /* consumer 0 begins */
    for (int n = 0; n < n_blocks; n++) {
        barrier_wait(&sm.ring.k_full[k_at.slot], k_at.parity);
        if (n > 0) barrier_wait(&sm.ring.v_full[v_at.slot], v_at.parity);
        take_turn(w);
        wgmma_fence();
        start_scores<C>(s, q, sm.ring.k[k_at.slot]);
        if (n > 0) {
            wgmma_fence();
            start_output<C>(o, p, sm.ring.v[v_at.slot]);
        }
        pass_turn(w);
        wgmma_wait<0>();
        settle(s);
        settle(o);
        release(sm.ring.k_empty, k_at);
        if (n > 0) release(sm.ring.v_empty, v_at);

        if (n >= n_open) hide_block<C>(s, j, row, n);
        row_maxima(s, top);
        raise(r, top, j.c, shrink);
        weigh(s, r, j.c);
        scale_rows(o, shrink);
        pack_weights<typename C::T>(s, p);
    }
    if (n_blocks > 0) {
        barrier_wait(&sm.ring.v_full[v_at.slot], v_at.parity);
        wgmma_fence();
        start_output<C>(o, p, sm.ring.v[v_at.slot]);
        wgmma_wait<0>();
        settle(o);
    }
    finish(o, r, j, row, head);
    store_pairs<C>(o, j, row, head);
}

template <class C>
static __global__ void __launch_bounds__(C::THREADS, 1)
    ping_pong_kernel(const __grid_constant__ struct job j)
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
        configuration((const void *)ping_pong_kernel<C>, a_block_a_tile(j, p), C::THREADS,
                      sizeof(memory<C>), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, ping_pong_kernel<C>, j));
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}
#endif

static struct cost cost(const struct problem *p) { return hopper_cost(p, 128); }

GPU_VARIANT(ping_pong) = {
    .name = "ping_pong",
    .idea =
        "two warpgroups take turns: one multiplies while the other takes exponentials",
    HOPPER_VARIANT,
    .cost = cost,
    .does = {{OP_ATTENTION, GPU_ONLY(attention)}},
    .on_gpu = GPU_TWIN(ping_pong),
};
