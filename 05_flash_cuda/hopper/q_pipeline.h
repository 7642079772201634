/* q_pipeline.h: Q tiles in shared memory, and with each the work tile that it belongs to: how
 * the producer of a persistent block tells the consumers what to compute next. */
#pragma once

#include "producer.h"

template <class C> struct q_pipeline {
    alignas(1024) typename C::T q[C::Q_STAGES][C::Br * IN_PANELS<C::D>];
    uint64_t full[C::Q_STAGES], empty[C::Q_STAGES];
    struct work_tile tile[C::Q_STAGES];
};

template <class C> static __device__ __forceinline__ void q_init(q_pipeline<C> &q)
{
    for (int i = 0; i < C::Q_STAGES; i++) {
        mbarrier_init(&q.full[i], 1);
        mbarrier_init(&q.empty[i], 128 * C::WARPGROUPS);
    }
}

/* Issues the copy of a work tile's queries into an empty stage. */
template <class C>
static __device__ __forceinline__ void load_q(q_pipeline<C> &q, int index,
                                              const struct params &params,
                                              struct work_tile t)
{
    q.tile[index] = t;
    load_tile<C, C::Br>(q.q[index], &params.q, &q.full[index], t.tile * C::Br, t.head,
                        t.batch);
}

/* Tells the consumers that there is no more work. */
template <class C>
static __device__ __forceinline__ void end_of_work(q_pipeline<C> &q, int index)
{
    q.tile[index].tile = -1;
    mbarrier_arrive(&q.full[index]);
}

/* Releases a stage of Q, each thread for itself when it has read queries and work tile.  The fence:
 * queries may have been read by ordinary loads. */
static __device__ __forceinline__ void release_q(uint64_t *q_empty)
{
    fence_proxy_async();
    mbarrier_arrive(q_empty);
}
