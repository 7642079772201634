/* softmax_step.h: the online softmax of rungs 3 to 5, on a warp's scores. */
#pragma once

#include "portable/scores.h"
#include "portable/swizzled_tile.h"

/* Folds the scores of a key block into m, l and o and turns them into P:
 *     m_new = max(m, max_j s_j),  alpha = 2^(c (m - m_new))
 *     p_j   = 2^(c s_j - c m_new),  l = l alpha + sum_j p_j (this lane's columns),  o = o alpha
 * While m_new is -inf no key was visible: alpha = 1, so that -inf - -inf never arises. */
template <class W>
static __forceinline__ __device__ void softmax_step(typename W::state &f,
                                                    typename W::scores &s, float c)
{
#pragma unroll
    for (int i = 0; i < W::MT; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float m_new = f.m[i][r];
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
                m_new = fmaxf(m_new, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
            m_new = quad_max(m_new);
            float alpha = m_new == -INFINITY ? 1.0f : exp2_fast((f.m[i][r] - m_new) * c);
            float base = base_of<W>(s[i], r, m_new, c);
            f.m[i][r] = m_new;
            f.l[i][r] *= alpha;
#pragma unroll
            for (int n = 0; n < W::D / 8; n++) {
                f.o[i][n][2 * r] *= alpha;
                f.o[i][n][2 * r + 1] *= alpha;
            }
#pragma unroll
            for (int n = 0; n < W::Bc / 8; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++)
                    f.l[i][r] += s[i][n][e] = exp2_fast(fmaf(s[i][n][e], c, -base));
        }
}
