/* vector.h: vectors of float.
 *
 * A vfloat is one register: 16 floats with AVX-512, 8 with AVX2, 4 on ARM and elsewhere.
 * + - and * of vectors are operators of the language (the GNU vector extension of gcc and
 * clang) and one instruction each.  What has no operator is a small function.  It is one
 * instruction too, in all but a few cases, because it is written with the intrinsic: a loop
 * over lanes is one instruction only if the optimiser likes it, and gcc's tuning for Intel's
 * AVX-512 machines turns a loop over 16 lanes into 16 scalar multiply-adds.
 *
 * Each instruction set has a header with the same functions:
 *
 *     LANES                         floats in a vector, a constant
 *     vload(p), vstore(p, v)        from and to any address of a float
 *     vload_part(p, n, rest)        n < LANES floats, the other lanes are `rest`
 *     vstore_part(p, n, v)          the first n < LANES lanes
 *     vstream(p, v)                 a store past the cache; p on a VECTOR_BYTES boundary
 *     vload_half(p), vstore_half(p, v)   from and to float16, where HAS_HALF
 *     vload_bfloat(p)               from bfloat16; a NaN stays as it is
 *     vset(x)                       x in every lane
 *     vfma(a, b, c)                 a * b + c, rounded once where HAS_FMA
 *     vmax(x, m), vmin(x, m)        the larger, the smaller; m where x is NaN
 *     vless(a, b), vequal(a, b)     a mask: which lanes
 *     vselect(mask, a, b)           a where the mask is set, else b
 *     vkeep(mask, a)                a where the mask is set, else 0
 *     vclear(mask, a)               0 where the mask is set, else a
 *     vexchange(v, by)              lane i ^ by in lane i; by = LANES / 2, ..., 2, 1
 *     vstream_end()                 streamed stores are seen by others after it
 *
 * The rest of this file is written with them, once for all. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

#if defined __AVX512F__
#include "vector/vector_avx512.h"
#elif defined __AVX2__ && defined __FMA__
#include "vector/vector_avx2.h"
#elif defined __aarch64__
#include "vector/vector_neon.h"
#else
#include "vector/vector_plain.h"
#endif

#ifndef HAS_HALF
#define HAS_HALF 0
#endif
#define VECTOR_BYTES (4 * LANES)

#ifndef HAS_PARTS
INLINE vfloat vload_part(const float *p, size_t n, float rest)
{
    float a[LANES] = {rest, rest, rest, rest};
    memcpy(a, p, n * sizeof(float));
    return vload(a);
}

INLINE void vstore_part(float *p, size_t n, vfloat v)
{
    float a[LANES];
    vstore(a, v);
    memcpy(p, a, n * sizeof(float));
}
#endif

/* The same register as integers: ~ & | and << are operators. */
typedef int32_t vint __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vuint __attribute__((vector_size(VECTOR_BYTES))); /* may wrap round */

INLINE vfloat vload_bfloat(const uint16_t *p)
{
#if LANES == 16 /* of the other form gcc 12 makes four instructions */
    return (vfloat)((vuint)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)) << 16);
#else
    uint16_t __attribute__((vector_size(2 * LANES))) upper_halves;
    memcpy(&upper_halves, p, sizeof upper_halves);
    return (vfloat)(__builtin_convertvector(upper_halves, vuint) << 16);
#endif
}

#if LANES == 16 /* as float_to_bfloat(): ties to even, a NaN quiet */
INLINE void vstore_bfloat(uint16_t *p, vfloat v)
{
    vuint bits = (vuint)v, even = bits + 0x7fff + (bits >> 16 & 1);
    even = (vuint)vselect(vequal(v, v), (vfloat)even, (vfloat)(bits | 0x400000));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16((__m512i)(even >> 16)));
}
#endif

/* UNROLL(u, n, statements) is `for (int u = 0; u < n; u++) { statements; }` written out: u is
 * a constant in each of the copies, n a constant of at most UNROLL_MOST, which is also the
 * length of the arrays that u indexes.  An array that is indexed by constants alone lives in
 * registers, and elements that nobody uses cost nothing.  In a loop it does not: clang 14 moves arrays to
 * registers before it unrolls, and every sum of a product goes to the stack and back. */
#define UNROLL_MOST 8
#define UNROLL_COPY(u, i, n, ...)                                                          \
    {                                                                                      \
        enum { u = i };                                                                    \
        if (u < (n)) { __VA_ARGS__; }                                                      \
    }
#define UNROLL(u, n, ...)                                                                  \
    {                                                                                      \
        UNROLL_COPY(u, 0, n, __VA_ARGS__)                                                  \
        UNROLL_COPY(u, 1, n, __VA_ARGS__)                                                  \
        UNROLL_COPY(u, 2, n, __VA_ARGS__)                                                  \
        UNROLL_COPY(u, 3, n, __VA_ARGS__)                                                  \
        UNROLL_COPY(u, 4, n, __VA_ARGS__)                                                  \
        UNROLL_COPY(u, 5, n, __VA_ARGS__)                                                  \
        UNROLL_COPY(u, 6, n, __VA_ARGS__)                                                  \
        UNROLL_COPY(u, 7, n, __VA_ARGS__)                                                  \
    }

/* a * b + c of one float.  Without hardware fmaf is a library call of some 50 ns; such
 * machines get a multiplication and an addition, two roundings instead of one. */
INLINE float sfma(float a, float b, float c)
{
#if HAS_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* Sum of the lanes, halves added to halves, so always in the same order. */
INLINE float vsum(vfloat v)
{
    if (LANES > 8) v += vexchange(v, 8);
    if (LANES > 4) v += vexchange(v, 4);
    v += vexchange(v, 2);
    v += vexchange(v, 1);
    return v[0];
}

/* Lane i is the sum of the lanes of x[i], of LANES vectors.  Each round makes one vector of two, so 16 sums
 * take 15 additions, none of which waits for a sum; vsum takes four for each, and each waits. */
INLINE vfloat vsums(vfloat *x)
{
    static const float number[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vfloat lane = vload(number);
    UNROLL(t, LANES > 8 ? 4 : LANES > 4 ? 3 : 2, vmask upper = vless(vexchange(lane, 1 << t), lane);
           UNROLL(i, LANES >> (t + 1), vfloat a = x[2 * i], b = x[2 * i + 1];
                  x[i] = vselect(upper, b, a) + vexchange(vselect(upper, a, b), 1 << t)));
    return x[0];
}

/* Largest lane of a vector without NaN. */
INLINE float vlargest(vfloat v)
{
    if (LANES > 8) v = vmax(vexchange(v, 8), v);
    if (LANES > 4) v = vmax(vexchange(v, 4), v);
    v = vmax(vexchange(v, 2), v);
    v = vmax(vexchange(v, 1), v);
    return v[0];
}

/* Is the mask set in some lane? */
INLINE int vany(vmask m) { return vlargest(vselect(m, vset(1), vset(0))) > 0; }

/* a . b: four sums, each of them a vector. */
INLINE float vdot(const float *a, const float *b, size_t n)
{
    vfloat sum[UNROLL_MOST] = {{0}};
    size_t t = 0;
    for (; t + 4 * LANES <= n; t += 4 * LANES)
        UNROLL(u, 4, sum[u] = vfma(vload(a + t + u * LANES), vload(b + t + u * LANES), sum[u]));
    for (; t + LANES <= n; t += LANES) sum[0] = vfma(vload(a + t), vload(b + t), sum[0]);
    float rest = 0;
    for (; t < n; t++) rest = sfma(a[t], b[t], rest);
    return vsum(sum[0] + sum[1] + (sum[2] + sum[3])) + rest;
}

/* y += p * x */
INLINE void vaxpy(float *y, float p, const float *x, size_t n)
{
    size_t t = 0;
    for (; t + LANES <= n; t += LANES)
        vstore(y + t, vfma(vload(x + t), vset(p), vload(y + t)));
    for (; t < n; t++) y[t] = sfma(x[t], p, y[t]);
}

/* Asks for the cache line that lies `ahead` floats beyond p.  Only a hint: nothing need be
 * there. */
INLINE void vfetch(const float *p, size_t ahead)
{
    __builtin_prefetch((const char *)((uintptr_t)p + ahead * sizeof(float)));
}
