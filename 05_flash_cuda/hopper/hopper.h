/* hopper.h: the instructions that only Hopper (sm_90a) has, one small function each.
 *
 *   TMA       one thread asks for a whole tile; the copy engine computes the addresses,
 *             pads what lies outside with zeros, and counts the bytes on an mbarrier
 *   mbarrier  a word in shared memory that counts arrivals and bytes
 *   wgmma     128 threads (a warpgroup) start a matrix product that reads shared memory
 *             and runs beside them
 *
 * How a tile lies in shared memory.  A tile of R rows and d columns of 16 bits is d/64
 * *panels*, one after another; a panel is R rows of 64 columns = 128 bytes.  Inside a
 * panel the 16-byte chunk c of row r lies at place c ^ (r % 8) of its row:
 *
 *     row 0:  0 1 2 3 4 5 6 7         Eight rows (1024 bytes) repeat.  Read down a
 *     row 1:  1 0 3 2 5 4 7 6         column and every bank is met once: no conflict
 *     row 2:  2 3 0 1 6 7 4 5         for the rows of Q and K as for the columns of V.
 *     ...                             This is TMA's and wgmma's "128-byte swizzle".
 *     row 7:  7 6 5 4 3 2 1 0         Panels start at multiples of 1024 bytes.
 *
 * Q, K and V all lie so; V is never transposed, wgmma reads it across.
 *
 * How wgmma finds it: a descriptor, 64 bits.
 *
 *     bits  0-13  address / 16                      62-63  1: 128-byte swizzle
 *     bits 16-29  bytes from panel to panel / 16    (V only: its columns span panels)
 *     bits 32-45  bytes from 8 rows to the next 8 / 16 = 64
 *
 * The next 16 columns of Q or K: address + 32 bytes, descriptor + 2.  The next 16 rows of
 * V: address + 2048 bytes, descriptor + 128.
 *
 * How the result lies in registers.  Thread t of the warpgroup, warp w = t / 32, lane l:
 *
 *     register i holds row    16 w + l/4 + 8 (i/2 % 2)
 *                      column 8 (i/4) + 2 (l % 4) + i % 2
 *
 * so a thread owns two rows, and four neighbouring lanes share them.  The A operand in
 * registers wants for its 16 columns exactly the registers 8k ... 8k+7 packed in pairs:
 * the scores become the operand P without moving between threads. */
#ifndef HOPPER_H
#define HOPPER_H

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* ---- shared memory addresses, one chosen thread ---- */

/* The 32-bit shared-memory address that PTX wants. */
static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* The warpgroup's number, in a form the compiler knows to be equal for the whole warp. */
static __device__ __forceinline__ int warpgroup_index(void)
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
}

/* ---- mbarrier ----
 * A phase ends when `count` arrivals and all announced bytes have come; then the next
 * begins.  wait(parity) returns when the phase of that parity (0, 1, 0, ...) has ended;
 * on a fresh barrier wait(1) returns at once. */

static __device__ __forceinline__ void barrier_init(uint64_t *bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
                 "r"(count));
}

/* After all barrier_init, before the block's __syncthreads(): the copy engine sees them.
 * */
static __device__ __forceinline__ void barrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar))
                 : "memory");
}

/* Arrives if `yes`, without a branch. */
static __device__ __forceinline__ void barrier_arrive_if(uint64_t *bar, bool yes)
{
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
        "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(shared_address(bar)),
        "r"((int)yes)
        : "memory");
}

/* One arrival that also announces bytes; before the copies that bring them. */
static __device__ __forceinline__ void barrier_expect(uint64_t *bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(bar)),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *bar, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again%=;\n}" ::"r"(shared_address(bar)),
                 "r"(parity)
                 : "memory");
}

/* ---- named barriers: 16 a block, number 0 is __syncthreads() ----
 * `n` threads take part; those that arrive go on, those that sync wait for all. */

static __device__ __forceinline__ void named_sync(int id, int n)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}

static __device__ __forceinline__ void named_arrive(int id, int n)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

/* ---- registers: a warpgroup gives some up, another takes them ---- */

template <int N> static __device__ __forceinline__ void registers_shrink(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_grow(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- TMA ---- */

/* A box of map, from (column, row, head, batch), to shared memory; its bytes count on
 * bar. */
static __device__ __forceinline__ void tma_load(void *to, const CUtensorMap *map,
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
static __device__ __forceinline__ void tma_store(const CUtensorMap *map, const void *from,
                                                 int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
                 " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch)
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
static __device__ __forceinline__ void async_proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- wgmma: the shapes are in wgmma.h ----
 * fence, products, commit ... wait<n>: at most the n newest groups are still running.  In
 * between nobody touches the accumulators or a P that is being read. */

static __device__ __forceinline__ void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> static __device__ __forceinline__ void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Tells the compiler that x changes here: it must not move a use of x across. */
template <int N> static __device__ __forceinline__ void settle(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(x[i])::"memory");
}

template <int N> static __device__ __forceinline__ void settle(uint32_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(x[i])::"memory");
}

/* The descriptor of Q or K rows at `p`: columns are the reduction. */
static __device__ __forceinline__ uint64_t descriptor_qk(const void *p)
{
    return 0x4000004000010000ull | ((shared_address(p) & 0x3ffff) >> 4);
}

/* The descriptor of V at `p`, a tile of `rows` rows: rows are the reduction. */
static __device__ __forceinline__ uint64_t descriptor_v(const void *p, int rows)
{
    return 0x4000004000000000ull | ((uint64_t)(rows * 128 >> 4) << 16) |
           ((shared_address(p) & 0x3ffff) >> 4);
}

/* ---- numbers ---- */

/* 2^x, relative error 2^-22; 2^-inf = 0. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* log2(x) for x in [1, 2], error 2^-22; 1 / x for normal x, one unit in the last place.
 * */
static __device__ __forceinline__ float log2_fast(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two floats rounded to 16 bits, `low` in the lower half. */
template <class T> static __device__ __forceinline__ uint32_t pack(float low, float high);

template <> __device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

template <> __device__ __forceinline__ uint32_t pack<__half>(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* The four lanes that share a row: their maximum, their sum. */
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Loads four 8 x 8 matrices of 16-bit values, the same way round as store_matrices. */
static __device__ __forceinline__ void load_matrices(uint32_t *r, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* c (16 x 8) += a (16 x 16) b (16 x 8) by one warp at once: the fragments of mma_sync.h, which
 * for each warp of a warpgroup are wgmma's. */
template <class T>
static __device__ __forceinline__ void multiply_tile(float *c, const uint32_t *a,
                                                     uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void multiply_tile<__nv_bfloat16>(float *c, const uint32_t *a,
                                                             uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void multiply_tile<__half>(float *c, const uint32_t *a,
                                                      uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Stores four 8 x 8 matrices of 16-bit values, lane l gives the address of row l % 8 of
 * matrix l / 8; register r of the fragment is matrix r. */
static __device__ __forceinline__ void
store_matrices(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(r0), "r"(r1), "r"(r2), "r"(r3)
        : "memory");
}

#endif
