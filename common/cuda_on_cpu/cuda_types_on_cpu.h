/* cuda_types_on_cpu.h: the types and arithmetic of CUDA for the C++ compiler: vectors,
 * float16 and bfloat16, intrinsics, atomics.  Included by cuda_on_cpu.h.
 *
 * The fast intrinsics (__expf, __fdividef, ...) are computed in full precision here: what
 * they lose shows on a GPU only. */
#ifndef CUDA_TYPES_ON_CPU_H
#define CUDA_TYPES_ON_CPU_H

#include <math.h>
#include <stdint.h>

#include "problem/half.h"

/* glibc declares functions of these names that it does not define: hence macros. */
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __powf powf

#define CUDA_VECTOR(type, name, align1, align2, align4)                                  \
    struct align1 name##1 { type x; };                                                   \
    struct align2 name##2 { type x, y; };                                                \
    struct name##3 { type x, y, z; };                                                    \
    struct align4 name##4 { type x, y, z, w; };                                          \
    static inline struct name##1 make_##name##1(type x) { return {x}; }                  \
    static inline struct name##2 make_##name##2(type x, type y) { return {x, y}; }       \
    static inline struct name##3 make_##name##3(type x, type y, type z)                  \
    {                                                                                    \
        return {x, y, z};                                                                \
    }                                                                                    \
    static inline struct name##4 make_##name##4(type x, type y, type z, type w)          \
    {                                                                                    \
        return {x, y, z, w};                                                             \
    }
CUDA_VECTOR(float, float, , alignas(8), alignas(16))
CUDA_VECTOR(int, int, , alignas(8), alignas(16))
CUDA_VECTOR(unsigned, uint, , alignas(8), alignas(16))
CUDA_VECTOR(unsigned short, ushort, , alignas(4), alignas(8))
CUDA_VECTOR(unsigned char, uchar, , alignas(2), alignas(4))
CUDA_VECTOR(double, double, , alignas(16), alignas(16))
#undef CUDA_VECTOR

/* 16-bit numbers of our own, since not every compiler has them.  As in CUDA they convert
 * to and from float; arithmetic is done in float. */
struct __half {
    uint16_t bits;
    __half() = default;
    __half(float x) : bits(float_to_half(x)) {}
    operator float() const { return half_to_float(bits); }
};
struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : bits(float_to_bfloat(x)) {}
    operator float() const { return bfloat_to_float(bits); }
};
struct alignas(4) __half2 {
    __half x, y;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
static_assert(sizeof(__half) == 2 && sizeof(__nv_bfloat162) == 4, "as on the GPU");

static inline __half __float2half(float x) { return __half(x); }
static inline __half __float2half_rn(float x) { return __half(x); }
static inline float __half2float(__half x) { return x; }
static inline __half2 __floats2half2_rn(float low, float high) { return {low, high}; }
static inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
static inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
static inline float __bfloat162float(__nv_bfloat16 x) { return x; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high)
{
    return {low, high};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }

static inline unsigned __float_as_uint(float x) { return f32_bits(x); }
static inline int __float_as_int(float x) { return (int)f32_bits(x); }
static inline float __uint_as_float(unsigned u) { return f32_from_bits(u); }
static inline float __int_as_float(int i) { return f32_from_bits((unsigned)i); }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

#define CUDA_MIN_MAX(type)                                                               \
    static inline type min(type x, type y) { return x < y ? x : y; }                     \
    static inline type max(type x, type y) { return x > y ? x : y; }
CUDA_MIN_MAX(int)
CUDA_MIN_MAX(unsigned)
CUDA_MIN_MAX(long)
CUDA_MIN_MAX(unsigned long)
CUDA_MIN_MAX(long long)
CUDA_MIN_MAX(unsigned long long)
#undef CUDA_MIN_MAX
static inline float min(float x, float y) { return fminf(x, y); }
static inline float max(float x, float y) { return fmaxf(x, y); }

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T x) { *p = x; }
template <class T> static inline void __stcg(T *p, T x) { *p = x; }

/* Each returns the value before. */
template <class T> static inline T atomicExch(T *p, T x)
{
    T old;
    __atomic_exchange(p, &x, &old, __ATOMIC_SEQ_CST);
    return old;
}
template <class T> static inline T atomicCAS(T *p, T expected, T x)
{
    __atomic_compare_exchange(p, &expected, &x, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
    return expected;
}
template <class T, class F> static inline T cuda_on_cpu_update(T *p, F change)
{
    T old, x;
    __atomic_load(p, &old, __ATOMIC_SEQ_CST);
    do x = change(old);
    while (!__atomic_compare_exchange(p, &old, &x, true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST));
    return old;
}
template <class T> static inline T atomicAdd(T *p, T x)
{
    return cuda_on_cpu_update(p, [x](T old) { return (T)(old + x); });
}
template <class T> static inline T atomicMax(T *p, T x)
{
    return cuda_on_cpu_update(p, [x](T old) { return old > x ? old : x; });
}
template <class T> static inline T atomicMin(T *p, T x)
{
    return cuda_on_cpu_update(p, [x](T old) { return old < x ? old : x; });
}
static inline unsigned atomicInc(unsigned *p, unsigned last)
{
    return cuda_on_cpu_update(p, [last](unsigned x) { return x >= last ? 0 : x + 1; });
}
static inline void __threadfence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#endif
