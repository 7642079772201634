/* mma_sync.h: the warp-wide instructions of the tensor-core rungs, and how a warp's 32 lanes
 * hold a matrix.  On the CPU functions of the same names move the same
 * numbers between the same lanes (mma_on_cpu.h), so a debugger can step through a kernel.
 *
 * A warp multiplies tiles whose elements are spread over its lanes' registers: a
 * fragment.  Lane L belongs to group g = L / 4 (0..7) and is number t = L % 4 in it.  Two
 * 16-bit elements that are neighbours in a row share one 32-bit register, the left one in
 * the low half.
 *
 *     C, D (16 x 8, float)        A (16 x 16, 16 bits)              B (16 x 8, 16 bits)
 *
 *           column 2t, 2t+1            column 2t, 2t+1  8+2t, 9+2t        column g
 *     row g    c[0] c[1]         row g      a[0]           a[2]      row 2t, 2t+1   b[0]
 *     row g+8  c[2] c[3]         row g+8    a[1]           a[3]      row 8+2t, 9+2t b[1]
 *
 * (PTX ISA, "Matrix Fragments for mma.m16n8k16".)  Compare C with the left half of A:
 * the same rows, the same columns, the same lane.  Two C tiles side by side, rounded
 * to 16 bits and packed in pairs, *are* an A fragment.  That is why the probabilities
 * P = exp(S - m) go from the first product of attention into the second without
 * leaving their lanes. */
#pragma once

#include "harness.h"
#include "gpu/exp2.h"
#include "vector/half.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#else
#include "cuda_on_cpu/mma_on_cpu.h"
#endif

/* --- 16-bit elements.  Arrays hold their bits; T is F16 or BF16. --- */

/* The float with the bits x. */
template <enum dtype T>
static __forceinline__ __device__ float widen(uint16_t x)
{
#ifdef __CUDACC__
    return T == F16 ? __half2float(__ushort_as_half(x))
                    : __uint_as_float((uint32_t)x << 16);
#else
    return T == F16 ? half_to_float(x) : bfloat_to_float(x);
#endif
}

/* Two floats rounded to nearest, ties to even: `left` in the low half. */
template <enum dtype T>
static __forceinline__ __device__ uint32_t pack(float left, float right)
{
#ifdef __CUDACC__
    uint32_t both = 0;
    if constexpr (T == F16) {
        __half2 h = __floats2half2_rn(left, right);
        both = *(uint32_t *)&h;
    } else {
#if __CUDA_ARCH__ >= 800
        /* the first source goes to the upper half */
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(right), "f"(left));
#endif
    }
    return both;
#else
    uint32_t low = T == F16 ? float_to_half(left) : float_to_bfloat(left);
    uint32_t high = T == F16 ? float_to_half(right) : float_to_bfloat(right);
    return low | high << 16;
#endif
}

/* --- The product. --- */

/* D = A B + C of 16 x 16 times 16 x 8, in place: c is C before and D after.  Products are
 * exact; their sum is kept in float.  All 32 lanes call it together.
 *   c  this lane's four elements of C      a, b  its elements of A and of B, packed
 * sm_75 multiplies float16 only, 8 columns of A at a time: the left half of A is a[0],
 * a[1]. */
template <enum dtype T>
static __forceinline__ __device__ void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1)
{
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800
    if constexpr (T == F16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    for (int half = 0; half < 2; half++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
#endif
#else
    const uint32_t b[2] = {b0, b1};
    cuda_on_cpu::mma_m16n8k16(c, a, b, T == BF16);
#endif
}

/* --- From shared memory to fragments. --- */

/* An address in shared memory as a number: 32 bits on the GPU. */
#ifdef __CUDACC__
typedef uint32_t shared_address;
#else
typedef uintptr_t shared_address;
#endif

static __forceinline__ __device__ shared_address address_of(const void *shared)
{
#ifdef __CUDACC__
    return (uint32_t)__cvta_generic_to_shared(shared);
#else
    return (uintptr_t)shared;
#endif
}

/* ldmatrix: four 8 x 8 matrices of 16-bit elements, each given by the addresses of its
 * rows (16 bytes, aligned to 16).  Lane L gives row L % 8 of matrix L / 8; register
 * r[i] receives from matrix i row g, columns 2t and 2t+1: a quarter of an A fragment,
 * or, when the matrix in memory is the transpose of what is multiplied (a key's row is
 * a column of K^T), half of a B fragment. */
static __forceinline__ __device__ void load_matrices(uint32_t (&r)[4], shared_address row)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
#else
    cuda_on_cpu::ldmatrix(r, (const void *)row, false);
#endif
}

/* The same, each matrix transposed on the way: r[i] receives column g, rows 2t and
 * 2t+1.  This makes half a B fragment of a matrix that lies in memory as it is
 * multiplied (V). */
static __forceinline__ __device__ void load_matrices_transposed(uint32_t (&r)[4],
                                                                shared_address row)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
#else
    cuda_on_cpu::ldmatrix(r, (const void *)row, true);
#endif
}

/* 4 bytes to shared memory. */
static __forceinline__ __device__ void store_pair(shared_address to, uint32_t pair)
{
#ifdef __CUDACC__
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(pair) : "memory");
#else
    *(uint32_t *)to = pair;
#endif
}

/* --- Copies that do not wait (sm_80 on). --- */

/* 16 bytes from global to shared memory, past the registers and past L1.  Returns at
 * once; the copy is done after copies_wait().  Where valid is 0 nothing is read and 16
 * zero bytes are written.  Both addresses are aligned to 16. */
static __forceinline__ __device__ void copy_16_bytes(shared_address to, const void *from,
                                                     int valid)
{
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 : : "r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
#endif
#else
    cuda_on_cpu::cp_async((void *)to, from, 16, valid ? 16 : 0);
#endif
}

/* Ends a group of this thread's copies. */
static __forceinline__ __device__ void copies_commit(void)
{
#ifndef __CUDACC__
    cuda_on_cpu::cp_async_commit();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most N of this thread's groups are under way.  What other threads
 * copied is seen only after a barrier. */
template <int N> static __forceinline__ __device__ void copies_wait(void)
{
#ifndef __CUDACC__
    cuda_on_cpu::cp_async_wait(N);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
