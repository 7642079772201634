/* attend.h: attention in one loop, for exercises about what is done with it. */
#ifndef ATTEND_H
#define ATTEND_H

#include "course/score.h"

/* Keys first .. end - 1 of query i: the largest score m, l = sum exp(s - m) and
 * o (head_dim_v) = sum exp(s - m) v, not divided.  After a score of NaN m and l are NaN. */
static inline void attend(const struct head *h, size_t i, size_t first, size_t end, float *m,
                          float *l, float *o)
{
    *m = -INFINITY, *l = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = 0;
    for (size_t j = first; j < end; j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) continue;
        float m_new = *m > s ? *m : s, correction = m_new == *m ? 1 : expf(*m - m_new);
        float weight = expf(s - m_new);
        *l = *l * correction + weight;
        for (size_t d = 0; d < h->head_dim_v; d++)
            o[d] = o[d] * correction + weight * v_row(h, j)[d];
        *m = m_new;
    }
}

static inline void divide(const struct head *h, float *o, float l)
{
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = l == 0 ? 0 : o[d] / l;
}

/* All of query i: its row of o, and its lse. */
static inline void attend_row(const struct head *h, size_t i)
{
    float m, l;
    attend(h, i, 0, visible(h, i), &m, &l, o_row(h, i));
    divide(h, o_row(h, i), l);
    h->lse[i] = m + logf(l);
}

#endif
