/* cluster_ptx.h: the instructions of a Hopper GPU that pipeline.h and team.h need: barriers
 * in shared memory (mbarrier), the bulk copy, a store into the shared memory of another block,
 * a word in main memory that blocks exchange. */
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

/* Waits until the phase with this phase bit is over.  SCOPE says who has written what the
 * barrier guards: "cta", the block, or "cluster". */
#define BARRIER_WAIT(SCOPE, barrier, phase)                                                \
    asm volatile("{\n\t.reg .pred done;\n"                                                 \
                 "again%=:\n\t"                                                            \
                 "mbarrier.try_wait.parity.acquire." SCOPE ".shared::cta.b64 "             \
                 "done, [%0], %1;\n\t"                                                     \
                 "@!done bra again%=;\n\t}" ::"r"(shared_address(barrier)),                \
                 "r"(phase)                                                                \
                 : "memory")

static __device__ inline void barrier_wait(uint64_t *barrier, int phase)
{
    BARRIER_WAIT("cta", barrier, phase);
}

static __device__ inline void cluster_barrier_wait(uint64_t *barrier, int phase)
{
    BARRIER_WAIT("cluster", barrier, phase);
}

/* Orders this thread's reads of shared memory before a later bulk copy into the same place.  An
 * arrival alone does not: it can overtake reads that wait behind stores. */
static __device__ inline void reads_before_copies(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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

/* Writes the 8 bytes of `word` to `slot` of block `rank` of the cluster, asynchronously; the
 * store completes 8 bytes on `barrier` there. */
template <class WORD>
static __device__ inline void send(WORD word, WORD *slot, uint64_t *barrier, int rank)
{
    static_assert(sizeof(WORD) == 8, "one store");
    uint64_t bits;
    memcpy(&bits, &word, sizeof bits);
    uint32_t remote_slot, remote_barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_slot)
        : "r"(shared_address(slot)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier)
        : "r"(shared_address(barrier)), "r"(rank));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 "
                 "[%0], %1, [%2];" ::"r"(remote_slot), "l"(bits), "r"(remote_barrier)
                 : "memory");
}

/* A word in main memory that blocks write and read at the same time. */
static __device__ inline void store_shared_word(uint64_t *word, uint64_t bits)
{
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(word), "l"(bits) : "memory");
}

static __device__ inline uint64_t load_shared_word(const uint64_t *word)
{
    uint64_t bits;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(bits) : "l"(word) : "memory");
    return bits;
}

#endif
#endif
