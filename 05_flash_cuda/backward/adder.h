/* adder.h: dq by way of shared memory, from rung 5 on.  A consumer puts its block of dq there and
 * goes on.  A warp that was idle until now has TMA add the 16 KB to dq (cp.reduce.async.bulk). */
#pragma once

#include "backward/hopper_launch.h"

template <class Type, enum dtype DTYPE, int HEAD_DIM>
struct staged_config : backward_config<Type, DTYPE, HEAD_DIM> {
    static constexpr bool STAGED = true;
};

/* Hands dq to the adder of consumer w.
 *   phase  of the one place when it is empty: here tiles by twos, which y.at.index counts */
template <class MEMORY>
static __device__ __forceinline__ void hand_over(MEMORY &sm, int w, int phase,
                                                 const float (&dq)[32])
{
    mbarrier_wait(&sm.dq_empty[w], (uint32_t)phase);
    float *to = sm.dq[w] + threadIdx.x % 128 * 4;
#pragma unroll
    for (int i = 0; i < 32; i += 4)
        store_four(to + i * 128, dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(&sm.dq_full[w], threadIdx.x % 32 == 0);
}

/* The adder of consumer w, one thread of an idle warp: has TMA add each block of dq.  It has
 * time: at d = 256 other forms of this loop take 3 to 4 % more of the whole kernel's. */
template <class C, enum dtype T>
static __device__ __forceinline__ void add_all(backward_memory<C> &sm,
                                               const struct backward_params<T> &params, int w)
{
    const struct gradient<T> &x = problem_of<C>(params, sm.work);
    constexpr int N = C::DQ_BLOCKS;
    uint32_t phase = 0;
#pragma unroll 1
    for (int left = sm.work.n * x.group, t = 0, h = 0; left; left--) {
        const int i_0 = (sm.work.first + t) * C::Br;
        const int block = dq_block<C>(x, sm.work.head_kv * x.group + h, i_0, N * w);
#pragma unroll
        for (int i = 0; i < N; i++, phase ^= 1) {
            float *to = x.dq_sum + (ptrdiff_t)(block + i) * 4096;
            mbarrier_wait(&sm.dq_full[w], phase);
            tma_add_floats(to, sm.dq[w]);
            tma_store_commit();
            tma_store_wait_read();
            mbarrier_arrive(&sm.dq_empty[w]);
        }
        if (++t == sm.work.n) t = 0, h++;
    }
    tma_store_wait();
}

/* The place in the pipeline of dS before `ds`. */
static __device__ __forceinline__ struct pipeline_state place_before(struct pipeline_state ds)
{
    return {ds.index ^ 1, ds.phase ^ (ds.index == 0)};
}
