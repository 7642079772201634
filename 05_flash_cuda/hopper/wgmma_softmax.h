/* wgmma_softmax.h: softmax on the accumulators of wgmma, by one warpgroup on 64 rows.
 *
 * A thread holds Bc / 2 scores of two rows, g and g + 8 (wgmma.h): score i belongs to
 * row (i / 2) % 2 and to column 8 (i / 4) + i % 2, counted from the thread's own first
 * column 2 (lane % 4).  Four lanes share a row.
 *
 *     p = 2^(s c - mc)      c = scale log2(e),  mc = m c
 *
 * is one multiply-add and one exponential. */
#pragma once

#include "gpu/ptx.h"

/* Built with -DNO_SOFTMAX (`make profile 5` does, into a library of its own) a kernel is
 * the roof over itself, not attention: the same loads, products and turns, but the scores
 * go into P V times c, without maximum, exponential or sum.  A masked score is 0. */
#ifdef NO_SOFTMAX
#define SOFTMAX 0
#define MASKED 0.0f
#else
#define SOFTMAX 1
#define MASKED (-INFINITY)
#endif

/* The state (m, l) of the two rows that a thread owns; o lies apart. */
struct rows {
    float m[2];  /* the maximum that weights refer to, not scaled; -INFINITY: no key yet */
    float mc[2]; /* m c, and 0 for m = -INFINITY so that no inf - inf arises */
    float l[2];  /* sum of the weights that this thread computed */
};

/* m = max(m, top) of both rows; alpha is the factor by which what was summed before must
 * shrink.  Two empty states combine to an empty one with factor 1. */
static __device__ __forceinline__ void update_maximum(struct rows &r, const float (&top)[2],
                                                      float c, float (&alpha)[2])
{
    for (int i = 0; i < 2; i++) {
        float m_new = fmaxf(r.m[i], top[i]);
        alpha[i] = r.m[i] == m_new ? 1.0f : exp2_fast((r.m[i] - m_new) * c);
        r.m[i] = m_new;
        r.mc[i] = m_new == -INFINITY ? 0.0f : m_new * c;
        r.l[i] *= alpha[i];
    }
}

/* The empty state: m = -inf, l = 0, o = 0. */
template <int N> static __device__ __forceinline__ void clear(struct rows &r, float (&o)[N])
{
    r.m[0] = r.m[1] = -INFINITY;
    r.mc[0] = r.mc[1] = r.l[0] = r.l[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) o[i] = 0.0f;
}

/* Masks columns >= visible[row] (counted like the columns above). */
template <int N>
static __device__ __forceinline__ void apply_mask(float (&s)[N], const int (&visible)[2])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (8 * (i / 4) + i % 2 >= visible[i / 2 % 2]) s[i] = MASKED;
}

/* The maximum of each row of s, over all lanes that share it. */
template <int N>
static __device__ __forceinline__ void row_maxima(const float (&s)[N], float (&top)[2])
{
    top[0] = top[1] = -INFINITY;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (SOFTMAX) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
    top[0] = quad_max(top[0]);
    top[1] = quad_max(top[1]);
}

/* True for the whole warp when the maximum of a row exceeds m by more than 8 / c: then 2^8
 * is no longer the largest weight (lazy rescaling, rung 6). */
static __device__ __forceinline__ bool has_grown(const struct rows &r,
                                                 const float (&top)[2], float c)
{
    bool here = (top[0] - r.m[0]) * c > 8.0f || (top[1] - r.m[1]) * c > 8.0f;
    return SOFTMAX && __any_sync(0xffffffffu, here);
}

/* s = 2^(s c - mc), summed into l. */
template <int N>
static __device__ __forceinline__ void exponentials(float (&s)[N], struct rows &r, float c)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        s[i] = SOFTMAX ? exp2_fast(fmaf(s[i], c, -r.mc[i / 2 % 2])) : s[i] * c;
        r.l[i / 2 % 2] += SOFTMAX ? s[i] : 0.0f;
    }
}

/* o = o alpha, row by row. */
template <int N>
static __device__ __forceinline__ void scale_rows(float (&o)[N], const float (&alpha)[2])
{
#pragma unroll
    for (int i = 0; i < N; i++) o[i] *= alpha[i / 2 % 2];
}

/* The weights rounded to 16 bits, as the A operand of P V. */
template <class T, int N>
static __device__ __forceinline__ void pack_weights(const float (&s)[N],
                                                    uint32_t (&p)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}
