/* tile.h: a tile of 16 queries and 32 keys, for the rungs tile, threads and simd; the step of a chunk
 * of keys is that of correct_once, too. */
#pragma once

#include "monoid.h"
#include "score.h"

enum { Br = 16, Bc = 32 }; /* queries and keys of a tile */

/* x = x . (n keys with scores s): one maximum and one correction for all of them.
 *     m_new = max(m, max_j s_j),  correction = e^(m - m_new),  weight_j = e^(s_j - m_new)
 *   s (n)  -INFINITY means masked      v (n, x->d)  a masked row of it is not read */
static void push_tile(struct aggregate *x, const float *s, const float *v, size_t n)
{
    float m_new = x->m;
    for (size_t j = 0; j < n; j++)
        if (s[j] > m_new || isnan(s[j])) m_new = s[j];
    float correction = se_factor(x->m, m_new);
    x->l *= correction;
    for (size_t d = 0; d < x->d; d++) x->o[d] *= correction;
    for (size_t j = 0; j < n; j++) {
        if (s[j] == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */
        float weight = expf(s[j] - m_new);
        x->l += weight;
        for (size_t d = 0; d < x->d; d++) x->o[d] += weight * v[j * x->d + d];
    }
    x->m = m_new;
}

/* x (rows) = the partial results of the queries i .. i + rows - 1, rows <= Br, for the keys
 * first .. end - 1, tile by tile.  A key that a query does not see scores -INFINITY. */
static __attribute__((unused)) void fold_tiles(const struct head *h, size_t i, size_t rows,
                                               size_t first, size_t end, struct aggregate *x)
{
    float s[Bc];
    end = smaller(end, visible(h, i + rows - 1)); /* the last query sees most */
    for (size_t r = 0; r < rows; r++) aggregate_unit(&x[r]);
    for (size_t j = first; j < end; j += Bc)
        for (size_t r = 0; r < rows; r++) {
            size_t n = smaller(Bc, end - j);
            for (size_t t = 0; t < n; t++) s[t] = score(h, i + r, j + t);
            push_tile(&x[r], s, v_row(h, j), n);
        }
}
