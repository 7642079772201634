/* vector_plain.h: the functions of vector.h for any other machine, an x86 without AVX2 too: 4 lanes,
 * operators of the language.  Whether they become vector instructions is up to the compiler. */
#pragma once

#define LANES 4
#if defined __FP_FAST_FMAF || defined __ARM_FEATURE_FMA
#define HAS_FMA 1
#else
#define HAS_FMA 0
#endif
typedef float vfloat __attribute__((vector_size(4 * LANES)));
typedef int32_t vmask __attribute__((vector_size(4 * LANES)));
typedef float vfloat_any __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vfloat vload(const float *p) { return *(const vfloat_any *)p; }
INLINE void vstore(float *p, vfloat v) { *(vfloat_any *)p = v; }
INLINE void vstream(float *p, vfloat v) { vstore(p, v); }
INLINE void vstream_end(void) {}
INLINE vfloat vset(float x) { return (vfloat){x, x, x, x}; }

INLINE vfloat vfma(vfloat a, vfloat b, vfloat c)
{
#if HAS_FMA
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}

INLINE vmask vless(vfloat a, vfloat b) { return a < b; }
INLINE vmask vequal(vfloat a, vfloat b) { return a == b; }
INLINE vfloat vkeep(vmask m, vfloat a) { return (vfloat)(m & (vmask)a); }
INLINE vfloat vclear(vmask m, vfloat a) { return (vfloat)(~m & (vmask)a); }
INLINE vfloat vselect(vmask m, vfloat a, vfloat b)
{
    return (vfloat)((m & (vmask)a) | (~m & (vmask)b));
}
INLINE vfloat vmax(vfloat x, vfloat m) { return vselect(x > m, x, m); }
INLINE vfloat vmin(vfloat x, vfloat m) { return vselect(x < m, x, m); }

INLINE vfloat vexchange(vfloat v, int by)
{
    return by == 2 ? (vfloat){v[2], v[3], v[0], v[1]} : (vfloat){v[1], v[0], v[3], v[2]};
}
