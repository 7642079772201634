/* narrow_memory.h: what a block of threads of rung 7 has in shared memory, two places of each, and
 * the order in which it works on the tiles of keys. */
#pragma once

#include "backward/hopper_launch.h"

/* All that has two places is used in turn: of tile u the place is u % 2, and its barriers are in
 * phase u / 2 % 2.  K, V and `work` are counted by tiles of keys, the rest by tiles of queries. */
template <class C> struct narrow_memory {
    alignas(1024) typename C::T k[2][C::Bc * C::D];
    alignas(1024) typename C::T v[2][C::Bc * C::D];
    struct queries<C> tile[C::STAGES];
    alignas(1024) typename C::T ds[2][C::Br * C::Bc]; /* panels of 64 keys */
    alignas(128) float dq[2][64 * 64];
    alignas(128) uint32_t weights[64]; /* two matrices of 8 x 8 numbers */
    uint64_t kv_full[2], kv_empty[2], q_full[2], q_empty[2], do_full[2], do_empty[2], ds_full[2],
        ds_empty[2], dq_full[2], dq_empty[2];
    any_work<C> work[2]; /* n < 0: there is no more */
};

static __device__ __forceinline__ uint32_t phase_of(int u) { return u >> 1 & 1; }

/* The barriers of place i of two. */
template <class C> static __device__ __forceinline__ void init_place(narrow_memory<C> &sm, int i)
{
    const int warps = 4 * C::CONSUMERS;
    mbarrier_init(&sm.kv_full[i], 1);
    mbarrier_init(&sm.q_full[i], 1);
    mbarrier_init(&sm.do_full[i], 1);
    mbarrier_init(&sm.kv_empty[i], warps + 1); /* the adder reads `work` */
    mbarrier_init(&sm.q_empty[i], warps);
    mbarrier_init(&sm.do_empty[i], warps);
    mbarrier_init(&sm.ds_full[i], warps);
    mbarrier_init(&sm.ds_empty[i], 4);
    mbarrier_init(&sm.dq_full[i], 4);
    mbarrier_init(&sm.dq_empty[i], 1);
}

/* The tile of keys, of all heads, that is the n-th to begin.  Without a mask the last of each head
 * come at the end: they may be shorter, and fill gaps. */
template <enum dtype T>
static __device__ __forceinline__ int nth_narrow_tile(const struct backward_params<T> &params,
                                                      int n)
{
    const struct gradient<T> &x = params.x;
    const int heads = x.batch * x.heads_kv, tiles = x.key_tiles - 1;
    if (is_causal(x)) return nth_tile(params, n);
    if (n >= heads * tiles) return (n - heads * tiles) * x.key_tiles + tiles;
    return n / tiles * x.key_tiles + n % tiles;
}
