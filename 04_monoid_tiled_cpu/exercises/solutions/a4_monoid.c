/* a4_monoid.c: assignment of stage 4, 20 points: parts of an answer, and how two become one.
 *
 *     m = max(m_x, m_y),   l = l_x exp(m_x - m) + l_y exp(m_y - m),   o = o_x exp(m_x - m) + o_y exp(m_y - m)
 *
 * Task: fill combine() and finish().  a4_tiled.c includes this file, for the parts of its threads, and a5_fused.cu,
 * for those of its blocks: it must be C and C++.
 * May be assumed: nothing about the numbers.  A part without keys is m = -INFINITY, l = 0, o = 0.
 * Parts are combined in any order.
 *
 * Point: cases shift_200, low, mask_row, mask_first, nan_q.
 * Time: 3 hours.
 * Hint: write down what combine() gives for two parts without keys.  Where does NaN come from?
 * Hint: a part whose l is 0 has no keys.  Asked for its m, a part with a NaN might pass for one.
 * Right or wrong:  make exercise 4 EX=a4_monoid */
#ifndef __device__
#define __device__ /* a word of CUDA: this function is for the GPU too */
#endif
#include "course/exercise.h"

/* What some keys give; o (n), not divided by l, lies beside it. */
struct part { float m, l; };

/* x becomes x and y. */
static __device__ void combine(struct part *x, float *o_x, const struct part *y, const float *o_y, size_t n)
{
    /* solution begin */
    if (y->l == 0) return;
    float m = y->m > x->m ? y->m : x->m;
    float old = x->l == 0 ? 0 : expf(x->m - m), part = expf(y->m - m);
    x->l = x->l * old + y->l * part;
    for (size_t d = 0; d < n; d++) o_x[d] = o_x[d] * old + o_y[d] * part;
    x->m = m;
    /* solution end */
}

/* Divides o (n) by l; returns lse. */
static __device__ float finish(const struct part *x, float *o, size_t n)
{
    /* solution begin */
    for (size_t d = 0; d < n && x->l != 0; d++) o[d] /= x->l;
    return x->m + logf(x->l);
    /* skeleton
    return 0;
    solution end */
}

/* The judge's call, where this file is not included by the next assignment. */
#if __INCLUDE_LEVEL__ == 0
void answer(const struct call *c)
{
    size_t n = (size_t)c->n[0], parts = (size_t)c->n[1];
    struct part p[16];
    float o[16][32];
    for (size_t t = 0; t < parts; t++) {
        p[t] = (struct part){c->x[0][2 * t], c->x[0][2 * t + 1]};
        for (size_t d = 0; d < n; d++) o[t][d] = c->x[1][t * n + d];
    }
    if (c->n[2]) { /* a tree */
        for (size_t step = 1; step < parts; step *= 2)
            for (size_t t = 0; t + step < parts; t += 2 * step) combine(&p[t], o[t], &p[t + step], o[t + step], n);
    } else
        for (size_t t = 1; t < parts; t++) combine(&p[0], o[0], &p[t], o[t], n);
    c->y[1][0] = finish(&p[0], o[0], n);
    for (size_t d = 0; d < n; d++) c->y[0][d] = o[0][d];
}
#endif
