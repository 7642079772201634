/* ptx.h: the instructions that kernels for Hopper need beside wgmma, one small function each,
 * named after the instruction (PTX ISA).
 *
 *   TMA       one thread asks for a whole tile; the copy engine computes the addresses,
 *             fills what lies outside of the array with zeros, and counts the bytes on an
 *             mbarrier
 *   mbarrier  a word in shared memory that counts arrivals and bytes
 *
 * cuda::ptx of the toolkit has typed wrappers for TMA and mbarrier, but none for wgmma,
 * setmaxnreg, ldmatrix and stmatrix; notes/hopper.md says why all are written here. */
#pragma once

#include <stdint.h>
#include <type_traits>

#include "gpu/exp2.h"

#ifndef __CUDACC__
#include "cuda_on_cpu/hopper_on_cpu.h" /* the same functions, executed on the CPU */
#else
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* The 32-bit shared-memory address that PTX wants. */
static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- mbarrier ----
 * A phase is complete when `count` arrivals and all announced bytes have come.  Then the next
 * phase begins.  mbarrier_wait(bar, phase) waits until the phase with that parity (0, 1, 0,
 * ...) is complete.  On a fresh barrier a wait for parity 1 returns at once. */

static __device__ __forceinline__ void mbarrier_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
                 "r"(count));
}

/* After all mbarrier_init(), before the block's __syncthreads(): the copy engine sees them. */
static __device__ __forceinline__ void fence_mbarrier_init(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void mbarrier_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar))
                 : "memory");
}

/* Arrives if `yes`, without a branch. */
static __device__ __forceinline__ void mbarrier_arrive_if(uint64_t *bar, bool yes)
{
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
        "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(shared_address(bar)),
        "r"((int)yes)
        : "memory");
}

/* One arrival that also announces bytes; before the copies that bring them. */
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t *bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(bar)),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void mbarrier_wait(uint64_t *bar, uint32_t phase)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again%=;\n}" ::"r"(shared_address(bar)),
                 "r"(phase)
                 : "memory");
}

/* ---- named barriers: 16 per block, number 0 is __syncthreads() ----
 * `n` threads take part.  Threads that arrive go on, threads that sync wait for all. */

static __device__ __forceinline__ void named_barrier_sync(int id, int n)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}

static __device__ __forceinline__ void named_barrier_arrive(int id, int n)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

/* ---- setmaxnreg: a warpgroup gives registers up, another takes them ---- */

template <int N> static __device__ __forceinline__ void setmaxnreg_dec(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void setmaxnreg_inc(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- TMA ---- */

/* A box of map, from (column, row, head, batch), to shared memory; its bytes count on
 * bar. */
static __device__ __forceinline__ void tma_load_box(void *to, const CUtensorMap *map,
                                                uint64_t *bar, int column, int row,
                                                int head, int batch)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
            shared_address(to)),
        "l"(map), "r"(shared_address(bar)), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

/* A box from shared memory to map; what lies outside the tensor is not written. */
static __device__ __forceinline__ void tma_store_box(const CUtensorMap *map, const void *from,
                                                 int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
                 " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

/* `bytes` bytes in a row to shared memory, a multiple of 16, as are the addresses. */
static __device__ __forceinline__ void tma_load_bytes(void *to, const void *from, int bytes,
                                                      uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(bar))
                 : "memory");
}

/* Adds N floats of shared memory to N floats in main memory.  The sums are made in the L2 cache;
 * committed and awaited like a store. */
template <int N>
static __device__ __forceinline__ void tma_add_floats(float *to, const float (&from)[N])
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
                 " [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "n"(N * 4)
                 : "memory");
}

/* Stores `bytes` bytes in a row, a multiple of 16, as are the addresses. */
static __device__ __forceinline__ void tma_store_bytes(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void tma_store_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until this thread's stores have read their shared memory, which may then be reused. */
static __device__ __forceinline__ void tma_store_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Until this thread's stores have been written. */
static __device__ __forceinline__ void tma_store_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Makes this thread's ordinary writes to shared memory visible to TMA and wgmma. */
static __device__ __forceinline__ void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Adds four floats to those at `to`, in main memory, without reading them. */
static __device__ __forceinline__ void add_four(float *to, float a, float b, float c, float d)
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b),
                 "f"(c), "f"(d)
                 : "memory");
}

/* Four floats to shared memory, for the copy engine to read. */
static __device__ __forceinline__ void store_four(float *to, float a, float b, float c, float d)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)), "f"(a),
                 "f"(b), "f"(c), "f"(d)
                 : "memory");
}

/* ---- counters in main memory, between blocks ---- */

/* Waits until a counter has come to n: what was written before each count is seen, by this thread
 * and by what it lets the copy engine do next.  (A fence of all state spaces would wait for all
 * that the multiprocessor writes, as a release does.) */
static __device__ __forceinline__ void wait_for_count(const int *counter, int n)
{
    for (int now = 0; now < n;)
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* Counts one more; what this thread and its copy engine wrote before is seen by who waits. */
static __device__ __forceinline__ void count(int *counter)
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

/* ---- numbers ---- */

/* Two floats rounded to 16 bits, `low` in the lower half. */
template <class T> static __device__ __forceinline__ uint32_t pack(float low, float high)
{
    uint32_t r;
    if constexpr (std::is_same_v<T, __half>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Loads four 8 x 8 matrices of 16-bit values, lane l gives the address of row l % 8 of
 * matrix l / 8; register r of the fragment is matrix r. */
static __device__ __forceinline__ void ldmatrix(uint32_t *r, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed on the way. */
static __device__ __forceinline__ void ldmatrix_transposed(uint32_t *r, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* c (16 x 8) += a (16 x 16) b (16 x 8) by one warp, synchronous: the fragments of
 * portable/mma_sync.h, which for each warp of a warpgroup are wgmma's. */
#define MMA_SYNC(type)                                                                   \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "          \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class T>
static __device__ __forceinline__ void mma_16x8x16(float *c, const uint32_t *a,
                                                   uint32_t b0, uint32_t b1)
{
    if constexpr (std::is_same_v<T, __half>) MMA_SYNC("f16");
    else MMA_SYNC("bf16");
}

/* Stores four 8 x 8 matrices, addressed in the same way. */
static __device__ __forceinline__ void
stmatrix(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(r0), "r"(r1), "r"(r2), "r"(r3)
        : "memory");
}

/* The same, each matrix transposed on the way. */
static __device__ __forceinline__ void stmatrix_transposed(uint32_t address, const uint32_t *r)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}
#endif

/* ---- on both: which warpgroup, exchanges between lanes ---- */

/* The warpgroup's number, in a form the compiler knows to be equal for the whole warp. */
static __device__ __forceinline__ int warpgroup_index(void)
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
}

/* x, in a form that the compiler takes for a new number: it keeps no result that it computed
 * from x before.  The whole warp calls it. */
static __device__ __forceinline__ int as_new(int x)
{
    return __shfl_sync(0xffffffffu, x, threadIdx.x % 32);
}
