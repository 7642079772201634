/* vector_sse2.h: the functions of vector.h with SSE2, which every 64-bit x86 has: 4 lanes,
 * a mask is a vector whose lanes are all ones or all zeros.  There is no multiply-add, no
 * blend and no masked load. */
#ifndef VECTOR_SSE2_H
#define VECTOR_SSE2_H

#include <immintrin.h>

#define LANES 4
typedef __m128 vfloat;
typedef __m128 vmask;

INLINE vfloat vload(const float *p) { return _mm_loadu_ps(p); }
INLINE void vstore(float *p, vfloat v) { _mm_storeu_ps(p, v); }
INLINE void vstream(float *p, vfloat v) { _mm_stream_ps(p, v); }
INLINE void vstream_end(void) { _mm_sfence(); }
INLINE vfloat vset(float x) { return _mm_set1_ps(x); }
#if defined __FMA__
#define HAS_FMA 1
INLINE vfloat vfma(vfloat a, vfloat b, vfloat c) { return _mm_fmadd_ps(a, b, c); }
#else
#define HAS_FMA 0
INLINE vfloat vfma(vfloat a, vfloat b, vfloat c) { return a * b + c; }
#endif
INLINE vfloat vmax(vfloat x, vfloat m) { return _mm_max_ps(x, m); }
INLINE vfloat vmin(vfloat x, vfloat m) { return _mm_min_ps(x, m); }

INLINE vmask vless(vfloat a, vfloat b) { return _mm_cmplt_ps(a, b); }
INLINE vmask vequal(vfloat a, vfloat b) { return _mm_cmpeq_ps(a, b); }
INLINE vfloat vkeep(vmask m, vfloat a) { return _mm_and_ps(m, a); }
INLINE vfloat vclear(vmask m, vfloat a) { return _mm_andnot_ps(m, a); }
INLINE vfloat vselect(vmask m, vfloat a, vfloat b)
{
    return _mm_or_ps(vkeep(m, a), vclear(m, b));
}

INLINE vfloat vexchange(vfloat v, int by)
{
    return by == 2 ? _mm_shuffle_ps(v, v, 0x4e) : _mm_shuffle_ps(v, v, 0xb1);
}

#endif
