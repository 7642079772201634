/* wgmma.h: D (64 x N, float, in registers) += A (64 x 16) B (16 x N) by a warpgroup, and where
 * wgmma finds the matrices.
 *
 * How a tile lies in shared memory.  A tile of R rows and d columns of 16 bits is d/64
 * *panels*, one after another; a panel is R rows of 64 columns = 128 bytes.  Inside a
 * panel the 16-byte chunk c of row r lies at chunk c ^ (r % 8) of its row:
 *
 *     row 0:  0 1 2 3 4 5 6 7         Eight rows (1024 bytes) repeat.  Read down a
 *     row 1:  1 0 3 2 5 4 7 6         column and every bank is met once: no conflict
 *     row 2:  2 3 0 1 6 7 4 5         for the rows of Q and K as for the columns of V.
 *     ...                             This is TMA's and wgmma's "128-byte swizzle".
 *     row 7:  7 6 5 4 3 2 1 0         Panels start at multiples of 1024 bytes.
 *
 * Q, K and V all lie so.  V is never transposed: wgmma reads it across.
 *
 * How wgmma finds a tile: by a descriptor, 64 bits (descriptor() below).  The next 16 columns of
 * Q or K: address + 32 bytes, descriptor + 2.  The next 16 rows of V: address + 2048 bytes,
 * descriptor + 128.
 *
 * How D lies in registers.  Thread t of the warpgroup, warp w = t / 32, lane l:
 *
 *     register i holds row    16 w + l/4 + 8 (i/2 % 2)
 *                      column 8 (i/4) + 2 (l % 4) + i % 2
 *
 * so a thread owns two rows, and four neighbouring lanes share them.  An A operand in
 * registers has for its 16 columns exactly the registers 8k ... 8k+7 packed in pairs:
 * the scores become the operand P without moving between threads. */
#pragma once

#include "gpu/ptx.h"

#include <type_traits>

/* A descriptor from its fields (PTX ISA, "Matrix descriptor"); bytes count in units of 16.
 *   p         where the tile begins                              bits  0-13
 *   to_panel  bytes from a panel of 64 columns to the next       bits 16-29
 *   to_rows   bytes from 8 rows to the next 8                    bits 32-45
 *   swizzle   1: 128 bytes                                       bits 62-63 */
static __device__ __forceinline__ uint64_t descriptor(const void *p, int to_panel, int to_rows)
{
    const uint64_t swizzle = 1;
    return swizzle << 62 | (uint64_t)(to_rows >> 4) << 32 | (uint64_t)(to_panel >> 4) << 16 |
           (shared_address(p) & 0x3ffff) >> 4;
}

/* The descriptor of Q or K rows at `p`: columns are the reduction, 16 of them a product.  They lie
 * in one panel, so to_panel is not looked at; the manual wants 1 unit there. */
static __device__ __forceinline__ uint64_t descriptor_qk(const void *p)
{
    return descriptor(p, 16, 8 * 128);
}

/* The descriptor of V at `p`, a tile of `rows` rows: rows are the reduction, and a product takes
 * all columns, panel after panel. */
static __device__ __forceinline__ uint64_t descriptor_v(const void *p, int rows)
{
    return descriptor(p, rows * 128, 8 * 128);
}

/* The descriptor of rows of 8 columns, 16 bytes, one after another, not swizzled.  A product takes
 * 16 columns: these 8 twice. */
[[maybe_unused]] static __device__ __forceinline__ uint64_t descriptor_of_8_columns(const void *p)
{
    return (uint64_t)(8 * 16 >> 4) << 32 | (shared_address(p) & 0x3ffff) >> 4;
}

#ifdef __CUDACC__ /* else the same functions in cuda_on_cpu/hopper_on_cpu.h */

/* ---- order: fence, products, commit ... wait<n>: at most the n newest groups still run ----
 * A wgmma is asynchronous.  Until it has completed, nobody may read or write its accumulators
 * or write to its A registers. */

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

/* A compiler fence on registers (CUTLASS has it by this name): tells the compiler that x
 * changes here, so it moves no use of x across. */
template <int N>
static __device__ __forceinline__ void warpgroup_fence_operand(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(x[i])::"memory");
}

template <int N>
static __device__ __forceinline__ void warpgroup_fence_operand(uint32_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(x[i])::"memory");
}

/* ---- the instruction ----
 *
 *     wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 {d...}, a, b, p, 1, 1, ta, tb;
 *
 *   d      N / 2 registers of each thread; the instruction wants them named one by one
 *   a      a descriptor, or {a0, a1, a2, a3}: four registers of packed pairs
 *   b      a descriptor
 *   p      a predicate: 0 is D = A B, 1 is D += A B
 *   1, 1   the signs of A and B
 *   ta, tb 1: the matrix lies transposed; there is no ta where A is in registers
 *
 * Inline assembly numbers its operands: first the N / 2 outputs, then a, then b.  WGMMA is
 * the one wrapper; the macros before it write out the two lists for each N.
 *   mode  "=f": D is write-only, so the compiler knows that its old value is dead; "+f" */
#define NAMES_64                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "                \
    "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "                \
    "%28, %29, %30, %31"
#define NAMES_96                                                                       \
    NAMES_64 ", "                                                                      \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "                \
    "%45, %46, %47"
#define NAMES_128                                                                      \
    NAMES_96 ", "                                                                      \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "           \
    "%62, %63"
#define NAMES_192                                                                      \
    NAMES_128 ", "                                                                     \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "                \
    "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "                \
    "%90, %91, %92, %93, %94, %95"
#define NAMES_256                                                                      \
    NAMES_192 ", "                                                                     \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, "                   \
    "%107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "               \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define OUTPUTS_8(mode, i)                                                             \
    mode(d[i]), mode(d[i + 1]), mode(d[i + 2]), mode(d[i + 3]), mode(d[i + 4]),        \
    mode(d[i + 5]), mode(d[i + 6]), mode(d[i + 7])
#define OUTPUTS_16(mode, i) OUTPUTS_8(mode, i), OUTPUTS_8(mode, i + 8)
#define OUTPUTS_32(mode, i) OUTPUTS_16(mode, i), OUTPUTS_16(mode, i + 16)
#define OUTPUTS_64(mode) OUTPUTS_32(mode, 0)
#define OUTPUTS_96(mode) OUTPUTS_64(mode), OUTPUTS_16(mode, 32)
#define OUTPUTS_128(mode) OUTPUTS_96(mode), OUTPUTS_16(mode, 48)
#define OUTPUTS_192(mode) OUTPUTS_128(mode), OUTPUTS_32(mode, 64)
#define OUTPUTS_256(mode) OUTPUTS_192(mode), OUTPUTS_32(mode, 96)

#define WGMMA(N, type, mode, p, inputs, transposed, ...)                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p ", 0;\n"                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type       \
                 " {" NAMES_##N "}, " inputs ", p, 1, 1, " transposed ";\n}\n"         \
                 : OUTPUTS_##N(mode) : __VA_ARGS__)

/* WGMMA for both types T, and for D = A B (FIRST) and D += A B. */
#define WGMMA_OF(N, inputs, transposed, ...)                                           \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                  \
        if constexpr (FIRST) WGMMA(N, "bf16", "=f", "0", inputs, transposed, __VA_ARGS__); \
        else WGMMA(N, "bf16", "+f", "1", inputs, transposed, __VA_ARGS__);             \
    } else {                                                                           \
        if constexpr (FIRST) WGMMA(N, "f16", "=f", "0", inputs, transposed, __VA_ARGS__); \
        else WGMMA(N, "f16", "+f", "1", inputs, transposed, __VA_ARGS__);              \
    }

/* Q K^T: A = 64 rows of Q and B = N rows of K, both in shared memory. */
template <class T, bool FIRST, int REGISTERS>
static __device__ __forceinline__ void wgmma_qk(float (&d)[REGISTERS], uint64_t a, uint64_t b)
{
    if constexpr (REGISTERS == 32) WGMMA_OF(64, "%32, %33", "0, 0", "l"(a), "l"(b))
    else if constexpr (REGISTERS == 48) WGMMA_OF(96, "%48, %49", "0, 0", "l"(a), "l"(b))
    else WGMMA_OF(128, "%64, %65", "0, 0", "l"(a), "l"(b))
}

#define FRAGMENT(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

/* The same with the rows of Q in registers. */
template <class T, bool FIRST, int REGISTERS>
static __device__ __forceinline__ void wgmma_qk(float (&d)[REGISTERS], const uint32_t *a,
                                                uint64_t b)
{
    if constexpr (REGISTERS == 32)
        WGMMA_OF(64, "{%32, %33, %34, %35}, %36", "0", FRAGMENT(a), "l"(b))
    else if constexpr (REGISTERS == 48)
        WGMMA_OF(96, "{%48, %49, %50, %51}, %52", "0", FRAGMENT(a), "l"(b))
    else WGMMA_OF(128, "{%64, %65, %66, %67}, %68", "0", FRAGMENT(a), "l"(b))
}

/* O += P V: A = P in registers, B = 16 rows of V, which lie transposed for this product. */
template <class T, int REGISTERS>
static __device__ __forceinline__ void wgmma_pv(float (&d)[REGISTERS], const uint32_t *a,
                                                uint64_t b)
{
    constexpr bool FIRST = false;
    if constexpr (REGISTERS == 32)
        WGMMA_OF(64, "{%32, %33, %34, %35}, %36", "1", FRAGMENT(a), "l"(b))
    else if constexpr (REGISTERS == 48)
        WGMMA_OF(96, "{%48, %49, %50, %51}, %52", "1", FRAGMENT(a), "l"(b))
    else if constexpr (REGISTERS == 64)
        WGMMA_OF(128, "{%64, %65, %66, %67}, %68", "1", FRAGMENT(a), "l"(b))
    else if constexpr (REGISTERS == 96)
        WGMMA_OF(192, "{%96, %97, %98, %99}, %100", "1", FRAGMENT(a), "l"(b))
    else WGMMA_OF(256, "{%128, %129, %130, %131}, %132", "1", FRAGMENT(a), "l"(b))
}

/* A B of 64 columns, A in shared memory, B = rows that lie transposed for this product: dS K. */
template <class T, bool FIRST>
static __device__ __forceinline__ void wgmma_dsk(float (&d)[32], uint64_t a, uint64_t b)
{
    WGMMA_OF(64, "%32, %33", "0, 1", "l"(a), "l"(b))
}
#endif
