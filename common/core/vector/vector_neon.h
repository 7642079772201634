/* vector_neon.h: the functions of vector.h on 64-bit ARM: 4 lanes, a mask is a vector of
 * integers that are all ones or all zeros. */
#pragma once

#include <arm_neon.h>

#define LANES 4
#define HAS_FMA 1
typedef float32x4_t vfloat;
typedef uint32x4_t vmask;

INLINE vfloat vload(const float *p) { return vld1q_f32(p); }
INLINE void vstore(float *p, vfloat v) { vst1q_f32(p, v); }
INLINE void vstream(float *p, vfloat v) { vstore(p, v); } /* no such store of one register */
INLINE void vstream_end(void) {}
INLINE vfloat vset(float x) { return vdupq_n_f32(x); }
INLINE vfloat vfma(vfloat a, vfloat b, vfloat c) { return vfmaq_f32(c, a, b); }

INLINE vmask vless(vfloat a, vfloat b) { return vcltq_f32(a, b); }
INLINE vmask vequal(vfloat a, vfloat b) { return vceqq_f32(a, b); }
INLINE vfloat vselect(vmask m, vfloat a, vfloat b) { return vbslq_f32(m, a, b); }
/* Two instructions: ARM's maximum of a number and NaN is NaN, or the number, on either side. */
INLINE vfloat vmax(vfloat x, vfloat m) { return vselect(vless(m, x), x, m); }
INLINE vfloat vmin(vfloat x, vfloat m) { return vselect(vless(x, m), x, m); }

INLINE vfloat vkeep(vmask m, vfloat a)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), m));
}

INLINE vfloat vclear(vmask m, vfloat a)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), m));
}

INLINE vfloat vexchange(vfloat v, int by)
{
    return by == 2 ? vextq_f32(v, v, 2) : vrev64q_f32(v);
}
