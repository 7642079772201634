/* turns.h: turns at the tensor cores, and what is left to issue when there is no further turn. */
#pragma once

#include "producer.h"

/* A turn is a named barrier for each consumer.  Its owner waits there for the one before. */
static __device__ __forceinline__ void acquire_turn(int w) { named_barrier_sync(1 + w, 256); }

template <class C> static __device__ __forceinline__ void release_turn(int w)
{
    named_barrier_arrive(w + 1 == C::WARPGROUPS ? 1 : 2 + w, 256);
}

/* The same from rung 13 on: the barrier's number takes no register for the whole loop. */
template <class C> static __device__ __forceinline__ void pass_turn_on(int w)
{
    asm("" : "+r"(w));
    release_turn<C>(w);
}

/* The output of the last block.   x  a rung's consumer */
template <class C, class CONSUMER>
static __device__ __forceinline__ void last_pv(CONSUMER &x, kv_pipeline<C> &kv)
{
    mbarrier_wait(&kv.v_full[x.v_at.index], x.v_at.phase);
    wgmma_fence();
    issue_pv<C>(x.o, x.p, kv.v[x.v_at.index]);
    wgmma_wait<0>();
    warpgroup_fence_operand(x.o);
    release(kv.v_empty, x.v_at);
}
