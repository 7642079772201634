/* cluster_ptx.h: the instructions of a Hopper GPU that blocks need to work together: a wait for
 * what another block has written, a store into its shared memory, a word in main memory. */
#ifndef CLUSTER_PTX_H
#define CLUSTER_PTX_H

#include "gpu/ptx.h"
#include "gpu/state.h"

#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)

/* mbarrier_wait() for what other blocks of the cluster have written. */
static __device__ inline void cluster_barrier_wait(uint64_t *barrier, int phase)
{
    asm volatile("{\n\t.reg .pred done;\n"
                 "again%=:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again%=;\n\t}" ::"r"(shared_address(barrier)),
                 "r"(phase)
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
