/* vector.h: vectors of float in portable C (the GNU vector extension of gcc and clang).
 *
 * VECTOR_BYTES is the widest vector that the compiler was told it may use, so
 * -march=native, -march=x86-64-v3 (AVX2), a plain x86-64 build and 128-bit ARM all work.
 * The lane loops below become one instruction each at -O3; masks are used
 * instead of ?:, which gcc 12 turns into one branch a lane. */
#ifndef VECTOR_H
#define VECTOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined __AVX__ || defined __SSE2__
#include <immintrin.h>
#endif

#if defined __AVX512F__
#define VECTOR_BYTES 64
#elif defined __AVX__
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES (VECTOR_BYTES / 4)

/* fmaf without hardware is a library call of some 50 ns; such machines get a multiply and
 * an add, two roundings instead of one. */
#if defined __FMA__ || defined __AVX512F__ || defined __ARM_FEATURE_FMA
#define HAS_FMA 1
#else
#define HAS_FMA 0
#endif

typedef float vfloat __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vint __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vuint __attribute__((vector_size(VECTOR_BYTES))); /* may wrap round */
typedef float vfloat_any __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline, unused))

/* LANES floats from any address; the address need only be that of a float. */
INLINE vfloat vload(const float *p)
{
    return *(const vfloat_any *)p;
}

INLINE void vstore(float *p, vfloat v)
{
    *(vfloat_any *)p = v;
}

INLINE vfloat vset(float x)
{
    return x - (vfloat){0}; /* x - 0 is x for every x, -0 too */
}

/* The last n < LANES floats of an array; the other lanes are `rest`, and are not stored. */
INLINE vfloat vload_part(const float *p, size_t n, float rest)
{
    float a[LANES];
    for (size_t i = 0; i < LANES; i++) a[i] = rest;
    memcpy(a, p, n * sizeof(float));
    return vload(a);
}

INLINE void vstore_part(float *p, size_t n, vfloat v)
{
    float a[LANES];
    vstore(a, v);
    memcpy(p, a, n * sizeof(float));
}

/* a * b + c in each lane. */
INLINE vfloat vfma(vfloat a, vfloat b, vfloat c)
{
#if HAS_FMA
    vfloat r;
    for (int i = 0; i < LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

INLINE float sfma(float a, float b, float c)
{
#if HAS_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* a in the lanes where mask is -1, b where it is 0. */
INLINE vfloat vselect(vint mask, vfloat a, vfloat b)
{
    return (vfloat)((mask & (vint)a) | (~mask & (vint)b));
}

/* x > m ? x : m, so m where x is NaN.  On x86 that is one instruction, which gcc 12 finds in
 * loops over floats but not in vectors. */
INLINE vfloat vmax(vfloat x, vfloat m)
{
#if VECTOR_BYTES == 64
    return (vfloat)_mm512_max_ps((__m512)x, (__m512)m);
#elif VECTOR_BYTES == 32
    return (vfloat)_mm256_max_ps((__m256)x, (__m256)m);
#elif defined __SSE2__
    return (vfloat)_mm_max_ps((__m128)x, (__m128)m);
#else
    return vselect(x > m, x, m);
#endif
}

/* Lane i + by in lane i, round the end.  by < LANES. */
INLINE vfloat vrotate(vfloat v, int by)
{
    static const int32_t lane[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                     11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                     22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
    vint from;
    memcpy(&from, lane + by, sizeof from);
#if defined __clang__
    vfloat r;
    for (int i = 0; i < LANES; i++) r[i] = v[from[i] % LANES];
    return r;
#else
    return __builtin_shuffle(v, from); /* takes indices modulo LANES */
#endif
}

/* Sum of the lanes, halves added to halves, so always in the same order. */
INLINE float vsum(vfloat v)
{
#pragma GCC unroll 4
    for (int by = LANES / 2; by > 0; by /= 2) v += vrotate(v, by);
    return v[0];
}

/* Largest lane of a vector without NaN. */
INLINE float vlargest(vfloat v)
{
#pragma GCC unroll 4
    for (int by = LANES / 2; by > 0; by /= 2) v = vmax(vrotate(v, by), v);
    return v[0];
}

/* a . b: four sums, each of them a vector. */
INLINE float vdot(const float *a, const float *b, size_t n)
{
    vfloat sum[4] = {{0}};
    size_t t = 0;
    for (; t + 4 * LANES <= n; t += 4 * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            sum[u] = vfma(vload(a + t + u * LANES), vload(b + t + u * LANES), sum[u]);
    for (; t + LANES <= n; t += LANES) sum[0] = vfma(vload(a + t), vload(b + t), sum[0]);
    float rest = 0;
    for (; t < n; t++) rest = sfma(a[t], b[t], rest);
    return vsum(sum[0] + sum[1] + (sum[2] + sum[3])) + rest;
}

/* y = factor * y + p * x */
INLINE void vaxpy(float factor, float *y, float p, const float *x, size_t n)
{
    size_t t = 0;
    for (; t + LANES <= n; t += LANES)
        vstore(y + t, vfma(vload(x + t), vset(p), vload(y + t) * factor));
    for (; t < n; t++) y[t] = sfma(x[t], p, y[t] * factor);
}

/* Asks for the cache line that lies `ahead` floats beyond p.  Only a hint: nothing need be
 * there. */
INLINE void vfetch(const float *p, size_t ahead)
{
    __builtin_prefetch((const char *)((uintptr_t)p + ahead * sizeof(float)));
}

/* A non-temporal store: the line goes to memory without being read first.  p must lie on
 * a VECTOR_BYTES boundary.  Elsewhere than on x86 a plain store. */
INLINE void vstream(float *p, vfloat v)
{
#if VECTOR_BYTES == 64
    _mm512_stream_ps(p, (__m512)v);
#elif VECTOR_BYTES == 32
    _mm256_stream_ps(p, (__m256)v);
#elif defined __SSE2__
    _mm_stream_ps(p, (__m128)v);
#else
    vstore(p, v);
#endif
}

/* Non-temporal stores are weakly ordered: needed before another thread reads them. */
INLINE void vstream_end(void)
{
#if defined __SSE2__
    _mm_sfence();
#endif
}

#endif
