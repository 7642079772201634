/* arch: sm_90a */
/* Rung 5: wgmma and TMA.  One warpgroup computes 64 queries; nothing overlaps by design.
 *
 * Rung 4 fed the tensor cores from registers, 16 rows a warp, and every thread helped to
 * copy.  Here one instruction multiplies 64 x 16 by 16 x N straight from shared memory,
 * and one thread orders whole tiles from the copy engine.  The fold is the same:
 *
 *     S = Q K^T,  m_new = max(m, rows of S),  P = 2^(S c - m_new c)
 *     l = l 2^((m - m_new) c) + rows of P,    O = O 2^((m - m_new) c) + P V
 *
 * K of the next block arrives under the softmax, V of the next block under Q K^T. */
#include "launch.h"

#ifdef __CUDACC__
#include "tile.h"

template <class Type, int HEAD_DIM> struct config {
    using T = Type;
    static constexpr int D = HEAD_DIM, Br = 64, Bc = D == 256 ? 64 : 128;
    static constexpr int BLOCKS = D == 64    ? 3
                                  : D == 128 ? 2
                                             : 1; /* on a multiprocessor */
};

template <class C> struct memory {
    alignas(1024) typename C::T q[C::Br * C::D];
    alignas(1024) typename C::T k[C::Bc * C::D];
    alignas(1024) typename C::T v[C::Bc * C::D];
    uint64_t q_full, k_full, v_full; /* barriers: the tile has arrived */
};

template <class C>
static __global__ void __launch_bounds__(128, C::BLOCKS)
    wgmma_kernel(const __grid_constant__ struct job j)
{
    memory<C> &sm = dynamic_shared<memory<C>>();
    const struct spot at = spot_of(j, C::Br);
    int first = at.first, head = at.head, batch = at.batch;
    int head_kv = head / j.group, row = first + first_row();
    bool lead = threadIdx.x == 0;
    int n_blocks = blocks_seen<C>(j, first + C::Br - 1),
        n_open = blocks_open<C>(j, first);
    if (lead) {
        barrier_init(&sm.q_full, 1);
        barrier_init(&sm.k_full, 1);
        barrier_init(&sm.v_full, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (lead && n_blocks > 0) {
        load_tile<C, C::Br>(sm.q, &j.q, &sm.q_full, first, head, batch);
        load_tile<C, C::Bc>(sm.k, &j.k, &sm.k_full, 0, head_kv, batch);
        load_tile<C, C::Bc>(sm.v, &j.v, &sm.v_full, 0, head_kv, batch);
    }
    float s[C::Bc / 2], o[C::D / 2], top[2], shrink[2];
    uint32_t p[C::Bc / 4];
    struct rows r;
    empty(r, o);
    if (n_blocks > 0) barrier_wait(&sm.q_full, 0);
    for (int n = 0; n < n_blocks; n++) {
        int next = (n + 1) * C::Bc;
        barrier_wait(&sm.k_full, n & 1);
        wgmma_fence();
        start_scores<C>(s, descriptor_qk(sm.q), sm.k);
        wgmma_wait<0>();
        settle(s);
        __syncthreads(); /* all have read K */
        if (lead && n + 1 < n_blocks)
            load_tile<C, C::Bc>(sm.k, &j.k, &sm.k_full, next, head_kv, batch);

        if (n >= n_open) hide_block<C>(s, j, row, n);
        row_maxima(s, top);
        raise(r, top, j.c, shrink);
        weigh(s, r, j.c);
        scale_rows(o, shrink);
        pack_weights<typename C::T>(s, p);

        barrier_wait(&sm.v_full, n & 1);
        wgmma_fence();
        start_output<C>(o, p, sm.v);
        wgmma_wait<0>();
        settle(o);
        __syncthreads(); /* all have read V */
        if (lead && n + 1 < n_blocks)
            load_tile<C, C::Bc>(sm.v, &j.v, &sm.v_full, next, head_kv, batch);
    }
    finish(o, r, j, row, (size_t)batch * j.heads_q + head);
    store_pairs<C>(o, j, row, (size_t)batch * j.heads_q + head);
}

template <class T, int D>
static void launch(const struct problem *p, const struct arrays *a)
{
    using C = config<T, D>;
    const struct job j = job_of(p, a, C::Br, C::Bc);
    cudaLaunchConfig_t config =
        configuration((const void *)wgmma_kernel<C>, a_block_a_tile(j, p), 128,
                      sizeof(memory<C>), a->stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, wgmma_kernel<C>, j));
}

static void attention(const struct problem *p, const struct arrays *a)
{
    LAUNCH_FOR(launch, p, a);
}
#endif

static struct cost cost(const struct problem *p) { return hopper_cost(p, 64); }

GPU_VARIANT(wgmma) = {
    .name = "wgmma",
    .idea = "wgmma from shared memory, tiles ordered from the copy engine (TMA)",
    HOPPER_VARIANT,
    .cost = cost,
    .does = {{OP_ATTENTION, GPU_ONLY(attention)}},
    .on_gpu = GPU_TWIN(wgmma),
};
