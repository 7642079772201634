/* vector_avx2.h: the functions of vector.h with AVX2 and FMA: 8 lanes, a mask is a vector
 * whose lanes are all ones or all zeros. */
#pragma once

#include <immintrin.h>

#define LANES 8
#define HAS_FMA 1
#define HAS_PARTS 1 /* loads and stores of some lanes */
typedef __m256 vfloat;
typedef __m256 vmask;

INLINE vfloat vload(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vstore(float *p, vfloat v) { _mm256_storeu_ps(p, v); }
INLINE void vstream(float *p, vfloat v) { _mm256_stream_ps(p, v); }
INLINE void vstream_end(void) { _mm_sfence(); }
INLINE vfloat vset(float x) { return _mm256_set1_ps(x); }
INLINE vfloat vfma(vfloat a, vfloat b, vfloat c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vfloat vmax(vfloat x, vfloat m) { return _mm256_max_ps(x, m); }
INLINE vfloat vmin(vfloat x, vfloat m) { return _mm256_min_ps(x, m); }

INLINE vmask vless(vfloat a, vfloat b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE vmask vequal(vfloat a, vfloat b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
INLINE vfloat vselect(vmask m, vfloat a, vfloat b) { return _mm256_blendv_ps(b, a, m); }
INLINE vfloat vkeep(vmask m, vfloat a) { return _mm256_and_ps(m, a); }
INLINE vfloat vclear(vmask m, vfloat a) { return _mm256_andnot_ps(m, a); }

/* The mask of the first n lanes. */
INLINE __m256i vfirst(size_t n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - n));
}

INLINE vfloat vload_part(const float *p, size_t n, float rest)
{
    __m256i first = vfirst(n);
    return vselect(_mm256_castsi256_ps(first), _mm256_maskload_ps(p, first), vset(rest));
}

INLINE void vstore_part(float *p, size_t n, vfloat v) { _mm256_maskstore_ps(p, vfirst(n), v); }

#ifdef __F16C__
#define HAS_HALF 1 /* loads and stores of float16 */
INLINE vfloat vload_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE void vstore_half(uint16_t *p, vfloat v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#endif

INLINE vfloat vexchange(vfloat v, int by)
{
    switch (by) {
    case 4: return _mm256_permute2f128_ps(v, v, 1);
    case 2: return _mm256_permute_ps(v, 0x4e);
    default: return _mm256_permute_ps(v, 0xb1);
    }
}
