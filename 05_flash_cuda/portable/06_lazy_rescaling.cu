/* 06_lazy_rescaling.cu: rung 6, o and l are rescaled only when it is needed.
 *
 *     P = 2^(c S - c m),  c = scale log2(e);    m, l, O = fold over key blocks;    O / l
 *
 * The numerator O and the denominator l use the same m, which cancels in O / l.  So m need
 * not be the maximum: any m will do for which 2^(c S - c m) neither overflows nor vanishes.
 * Rung 5 multiplied O by 2^(c (m - m_new)) at every key block.  Here m stays until the maximum
 * of some row of the warp exceeds it by more than 8 / c.  P then stays below 2^8, which
 * float16 holds too.  On random data m changes a few times in a whole row.  The idea is that
 * of FlashAttention-4's conditional rescaling.
 *
 * Everything else is rung 5's. */
#define BESIDE_RUNG_5
#include "portable/05_larger_tiles.cu"

/* o, l *= 2^(c (m - m_new)),  m = m_new = max(m, top).  While m_new is -inf (no
 * visible key yet) 0 takes its place in the difference: -inf - -inf never arises. */
template <class W>
static __forceinline__ __device__ void rescale(typename W::state &f,
                                               const float (&top)[W::MT][2], float c)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float m_new = fmaxf(f.m[i][r], top[i][r]);
            float base = m_new == -INFINITY ? 0.0f : m_new;
            float alpha = exp2_fast((f.m[i][r] - base) * c);
            f.m[i][r] = m_new;
            f.l[i][r] *= alpha;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++) {
                f.o[i][n][2 * r] *= alpha;
                f.o[i][n][2 * r + 1] *= alpha;
            }
        }
}

/* Folds the scores of a key block into m and l and turns them into P:
 *     m = max(m, max_j s_j) if some row of the warp grew by more than 8 / c, else m stays
 *     p_j = 2^(c s_j - c m),  l += sum_j p_j (this lane's columns) */
template <class W>
static __forceinline__ __device__ void softmax_step(typename W::state &f,
                                                    typename W::scores &s, float c)
{
    float top[W::MT][2];
    int grown = 0;
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float x = fmaxf(s[i][0][2 * r], s[i][0][2 * r + 1]);
#pragma unroll
            for (int n = 1; n < W::Bc / 8; n++)
                x = fmaxf(x, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
            top[i][r] = quad_max(x);
            grown |= (top[i][r] - f.m[i][r]) * c > 8.0f;
        }
    if (__any_sync(~0u, grown)) rescale<W>(f, top, c);
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float base = base_of<W>(s[i], r, f.m[i][r], c);
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++)
                    f.l[i][r] += s[i][n][e] = exp2_fast(fmaf(s[i][n][e], c, -base));
        }
}

#ifndef BESIDE_RUNG_6 /* general_mma.cu takes what stands above */
MMA_RUNG(lazy_rescaling, "rescale rarely: over 2^8", 80, async_refuses);
#endif
