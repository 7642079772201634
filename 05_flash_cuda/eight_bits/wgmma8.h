/* wgmma8.h: wgmma on numbers of 8 bits: D (64 x N) += A (64 x 32) B (32 x N).
 *
 * Two numbers of 8 bits lie where wgmma.h has one of 16, so a row of 128 bytes has 128 columns, a
 * product takes 32 of them, and descriptors, swizzle and steps stay as they are.  D lies in registers
 * as there.  The A operand of 32 columns has four registers of four numbers each:
 *
 *     register 0, 1: row g, g + 8, columns 4 c ... 4 c + 3         g = lane / 4, c = lane % 4
 *     register 2, 3: the same rows, columns 16 + 4 c ...
 *
 * A thread has weights of other columns: 2 c, 2 c + 1, 8 + 2 c, 8 + 2 c + 1 of every 16.  No weight
 * moves: they become columns 4 c ... 4 c + 3, and V's keys are dealt out in the same order
 * (key_of_place() in values.h).  A sum does not depend on the order of its terms.
 *
 * B must lie with its reduction along the rows ("K-major"): for 8 bits wgmma transposes nothing. */
#pragma once

#include "hopper/wgmma.h"

struct e4m3 {}; /* 1 sign, 4 exponent, 3 fraction bits; largest 448, no infinity; sums in float */
struct int8 {}; /* -127 ... 127; sums in int32, exact */

#ifdef __CUDACC__ /* else the same functions in cuda_on_cpu/hopper_on_cpu.h */
#include <cuda_fp8.h>

#define WGMMA8(N, types, mode, p, inputs, signs, ...)                                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p ", 0;\n"                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32." types                       \
                 " {" NAMES_##N "}, " inputs ", p" signs ";\n}\n"                          \
                 : OUTPUTS_##N(mode) : __VA_ARGS__)

/* D = A B (FIRST) and D += A B. */
#define WGMMA8_FIRST(N, types, mode, signs, inputs, ...)                                   \
    if constexpr (FIRST) WGMMA8(N, types, "=" mode, "0", inputs, signs, __VA_ARGS__);      \
    else WGMMA8(N, types, "+" mode, "1", inputs, signs, __VA_ARGS__)

/* A in registers and in shared memory, which the assembly names in two ways. */
#define WGMMA8_OF(N, types, mode, signs, a_registers, a_memory)                            \
    if constexpr (std::is_same_v<A, uint64_t>) {                                           \
        WGMMA8_FIRST(N, types, mode, signs, a_memory, "l"(a), "l"(b));                     \
    } else {                                                                               \
        WGMMA8_FIRST(N, types, mode, signs, a_registers, FRAGMENT(a), "l"(b));             \
    }

#define WGMMA8_WIDTHS(types, mode, signs)                                                  \
    if constexpr (REGISTERS == 32)                                                         \
        WGMMA8_OF(64, types, mode, signs, "{%32, %33, %34, %35}, %36", "%32, %33")         \
    else if constexpr (REGISTERS == 48)                                                    \
        WGMMA8_OF(96, types, mode, signs, "{%48, %49, %50, %51}, %52", "%48, %49")         \
    else if constexpr (REGISTERS == 64)                                                    \
        WGMMA8_OF(128, types, mode, signs, "{%64, %65, %66, %67}, %68", "%64, %65")        \
    else WGMMA8_OF(256, types, mode, signs, "{%128, %129, %130, %131}, %132", "%128, %129")

/* Q K^T and P V of numbers of type T: A = 64 rows of Q or P in registers or in shared memory, B = keys,
 * or V transposed. */
template <class T, bool FIRST, int REGISTERS, class NUMBER, class A>
static __device__ __forceinline__ void wgmma8(NUMBER (&d)[REGISTERS], A a, uint64_t b)
{
    if constexpr (std::is_same_v<T, e4m3>) WGMMA8_WIDTHS("f32.e4m3.e4m3", "f", ", 1, 1")
    else WGMMA8_WIDTHS("s32.s8.s8", "r", "")
}

/* Four floats rounded to e4m3, at most 448; a in the lowest byte. */
static __device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d)
{
    uint32_t r;
    asm("{\n.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n}" : "=r"(r) : "f"(a), "f"(b), "f"(c), "f"(d));
    return r;
}

/* x, by an instruction that stays where it stands: a register that an asynchronous wgmma still reads
 * gets no number before. */
static __device__ __forceinline__ uint32_t copied(uint32_t x)
{
    uint32_t y;
    asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* Two numbers of 8 bits, in the lower half of x, as float16: exact. */
template <class T> static __device__ __forceinline__ uint32_t widen_to_f16(uint32_t x)
{
    if constexpr (std::is_same_v<T, e4m3>) {
        uint32_t r;
        asm("{\n.reg .b16 two, rest;\nmov.b32 {two, rest}, %1;\n"
            "cvt.rn.f16x2.e4m3x2 %0, two;\n}" : "=r"(r) : "r"(x));
        return r;
    } else return pack<__half>((float)(int8_t)x, (float)(int8_t)(x >> 8));
}
#endif
