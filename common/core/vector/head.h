/* head.h: scores and weighted sums of one head in vectors, for the fast/ folders of stages 1 to 3. */
#pragma once

#include "stage.h"
#include "vector/vector.h"

/* s (n) = scores of query i and the keys from `first` on, which it sees; -INFINITY where the bias
 * masks a key, whatever it holds. */
static inline void vector_scores(const struct head *h, size_t i, size_t first, size_t n, float *s)
{
    const float *q_i = q_row(h, i), *bias_i = h->bias ? h->bias + i * h->seqlen_k + first : NULL;
    for (size_t j = 0; j < n; j++) {
        s[j] = h->scale * vdot(q_i, k_row(h, first + j), h->head_dim);
        if (bias_i) s[j] = bias_i[j] == -INFINITY ? -INFINITY : s[j] + bias_i[j];
    }
}

/* Attention that stores S and P, the three steps of stages 1 and 2.
 *   softmax  y (n) = softmax of x (n); returns lse */
INLINE void stored_attention(const struct head *h,
                             float (*softmax)(const float *x, float *y, size_t n))
{
    for (size_t i = 0; i < h->seqlen_q; i++) {
        size_t n = visible(h, i);
        vector_scores(h, i, 0, n, s_row(h, i));
        for (size_t j = n; j < h->seqlen_k; j++) s_row(h, i)[j] = -INFINITY;
    }
    for (size_t i = 0; i < h->seqlen_q; i++)
        h->lse[i] = softmax(s_row(h, i), p_row(h, i), h->seqlen_k);
    for (size_t i = 0; i < h->seqlen_q; i++) {
        const float *s_i = s_row(h, i), *p_i = p_row(h, i), *v_j = h->v;
        float *o_i = o_row(h, i);
        size_t n = visible(h, i), head_dim_v = h->head_dim_v;
        for (size_t d = 0; d < head_dim_v; d++) o_i[d] = 0;
        for (size_t j = 0; j < n; j++, v_j += head_dim_v)
            if (s_i[j] != -INFINITY) vaxpy(o_i, p_i[j], v_j, head_dim_v);
    }
}
