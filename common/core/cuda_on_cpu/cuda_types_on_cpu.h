/* cuda_types_on_cpu.h: the types and arithmetic of CUDA for the C++ compiler: vectors,
 * float16 and bfloat16, and the intrinsics that our kernels use.  Included by cuda_on_cpu.h.
 *
 * The fast intrinsics (__expf, __fdividef, ...) are computed in full precision here: what
 * they lose shows on a GPU only. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "vector/half.h"

/* glibc declares functions of these names that it does not define: hence macros. */
#define __expf expf

#define CUDA_VECTOR(type, name)                                                          \
    struct alignas(8) name##2 { type x, y; };                                            \
    struct name##3 { type x, y, z; };                                                    \
    struct alignas(16) name##4 { type x, y, z, w; };                                     \
    static inline struct name##2 make_##name##2(type x, type y) { return {x, y}; }       \
    static inline struct name##4 make_##name##4(type x, type y, type z, type w)          \
    {                                                                                    \
        return {x, y, z, w};                                                             \
    }
CUDA_VECTOR(float, float)
CUDA_VECTOR(unsigned, uint)
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

static inline float __half2float(__half x) { return x; }
static inline __half2 __floats2half2_rn(float low, float high) { return {low, high}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high)
{
    return {low, high};
}

static inline unsigned __float_as_uint(float x) { return f32_bits(x); }
static inline int __float_as_int(float x) { return (int)f32_bits(x); }
static inline float __uint_as_float(unsigned u) { return f32_from_bits(u); }
static inline float __int_as_float(int i) { return f32_from_bits((unsigned)i); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fmul_rn(float x, float y) { return x * y; }

template <class T> static inline T min(T x, T y) { return x < y ? x : y; }
template <class T> static inline T max(T x, T y) { return x > y ? x : y; }
static inline float min(float x, float y) { return fminf(x, y); }
static inline float max(float x, float y) { return fmaxf(x, y); }

/* Return the value before. */
template <class T, class F> static inline T atomic_update(T *p, F f)
{
    T old, next;
    __atomic_load(p, &old, __ATOMIC_SEQ_CST);
    do next = f(old);
    while (!__atomic_compare_exchange(p, &old, &next, true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST));
    return old;
}
template <class T> static inline T atomicAdd(T *p, T x)
{
    return atomic_update(p, [x](T old) { return old + x; });
}
template <class T> static inline T atomicMax(T *p, T x)
{
    return atomic_update(p, [x](T old) { return max(old, x); });
}
