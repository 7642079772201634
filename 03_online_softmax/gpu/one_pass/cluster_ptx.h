/* cluster_ptx.h: the instructions of a Hopper GPU that cluster.h needs: barriers in shared
 * memory (mbarrier), the bulk copy, a store into the shared memory of another block. */
#ifndef CLUSTER_PTX_H
#define CLUSTER_PTX_H

#include "gpu/state.h"

#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)

static __device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ inline void barrier_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count));
}

static __device__ inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* One arrival, and `bytes` that must come as well before the phase is over. */
static __device__ inline void barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

/* Waits until the phase with this phase bit is over. */
static __device__ inline void barrier_wait(uint64_t *barrier, int phase)
{
    asm volatile("{\n\t.reg .pred done;\n"
                 "again%=:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
                 "done, [%0], %1;\n\t"
                 "@!done bra again%=;\n\t}" ::"r"(shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}

/* Copies `bytes` (a multiple of 16) bytes from global to shared memory, asynchronously; the
 * copy completes on the barrier. */
static __device__ inline void bulk_load(void *to, const void *from, int bytes,
                                        uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Writes s to `slot` of block `rank` of the cluster; completes 8 bytes on its barrier. */
static __device__ inline void send(struct state s, struct state *slot,
                                   uint64_t *barrier, int rank)
{
    uint64_t word;
    memcpy(&word, &s, sizeof word);
    uint32_t remote_slot, remote_barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_slot)
        : "r"(shared_address(slot)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier)
        : "r"(shared_address(barrier)), "r"(rank));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 "
                 "[%0], %1, [%2];" ::"r"(remote_slot), "l"(word), "r"(remote_barrier)
                 : "memory");
}

#endif
#endif
