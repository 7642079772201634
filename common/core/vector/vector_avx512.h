/* vector_avx512.h: the functions of vector.h with AVX-512: 16 lanes, masks of 16 bits. */
#pragma once

#include <immintrin.h>

#define LANES 16
#define HAS_FMA 1
#define HAS_PARTS 1 /* loads and stores of some lanes */
#define HAS_HALF 1  /* and of float16 */
typedef __m512 vfloat;
typedef __mmask16 vmask;

INLINE vfloat vload(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vstore(float *p, vfloat v) { _mm512_storeu_ps(p, v); }
INLINE void vstream(float *p, vfloat v) { _mm512_stream_ps(p, v); }
INLINE void vstream_end(void) { _mm_sfence(); }
INLINE vfloat vset(float x) { return _mm512_set1_ps(x); }
INLINE vfloat vfma(vfloat a, vfloat b, vfloat c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vfloat vmax(vfloat x, vfloat m) { return _mm512_max_ps(x, m); }
INLINE vfloat vmin(vfloat x, vfloat m) { return _mm512_min_ps(x, m); }

INLINE vmask vless(vfloat a, vfloat b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE vmask vequal(vfloat a, vfloat b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE vfloat vselect(vmask m, vfloat a, vfloat b) { return _mm512_mask_blend_ps(m, b, a); }
INLINE vfloat vkeep(vmask m, vfloat a) { return _mm512_maskz_mov_ps(m, a); }
INLINE vfloat vclear(vmask m, vfloat a) { return _mm512_mask_mov_ps(a, m, vset(0)); }

INLINE vfloat vload_part(const float *p, size_t n, float rest)
{
    return _mm512_mask_loadu_ps(vset(rest), (vmask)((1u << n) - 1), p);
}

INLINE void vstore_part(float *p, size_t n, vfloat v)
{
    _mm512_mask_storeu_ps(p, (vmask)((1u << n) - 1), v);
}

INLINE vfloat vload_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE void vstore_half(uint16_t *p, vfloat v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vfloat vexchange(vfloat v, int by)
{
    switch (by) {
    case 8: return _mm512_shuffle_f32x4(v, v, 0x4e);
    case 4: return _mm512_shuffle_f32x4(v, v, 0xb1);
    case 2: return _mm512_permute_ps(v, 0x4e);
    default: return _mm512_permute_ps(v, 0xb1);
    }
}

/* For an exponential (vexp.h), one instruction each on AVX-512 alone:
 *     vfraction(x)          x less the nearest integer
 *     vscale(mask, a, n)    a 2^n for an integer n; 0 where the mask is not set
 *     vnot_less(a, b)       a mask: a >= b, or one of them is NaN */
#if defined __AVX512DQ__
#define HAS_SCALE 1
INLINE vfloat vfraction(vfloat x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT); }
INLINE vfloat vscale(vmask m, vfloat a, vfloat n) { return _mm512_maskz_scalef_ps(m, a, n); }
INLINE vmask vnot_less(vfloat a, vfloat b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
#endif
