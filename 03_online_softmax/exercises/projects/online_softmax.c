/* online_softmax.c: project of stage 3, 40 points: softmax at the speed of memory.
 *
 * This program is right and slow.  Make it fast, on one core.  Everything may change: add
 * functions, use the compiler's vectors, approximate exp.  It must stay right in all cases:
 * any length, masked scores (-INFINITY), rows that are all masked (y = 0), NaN (the row
 * becomes NaN), scores up to 1e30.  One wrong case, and the speed does not count.
 *
 * The points are for the share of what copying the same rows takes:
 *
 * Speed: softmax:1024x4096, half of the points at 10 % of copy, all at 25 %.
 * Judged like: safe_row
 * Right, and how fast:  make project EX=online_softmax */
#include "course/exercise.h"

/* Softmax of one row.
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities */
static void softmax_row(const float *x, float *y, size_t n)
{
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) {
        if (x[j] == -INFINITY) continue;
        float m_new = x[j] > m ? x[j] : m;
        l = l * expf(m - m_new) + expf(x[j] - m_new);
        m = m_new;
    }
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : expf(x[j] - m) / l;
}

static void softmax(const struct problem *p, const struct arrays *a)
{
    const float *x = a->x;
    float *y = a->y;
    for (size_t i = 0; i < p->rows; i++)
        softmax_row(x + i * p->cols, y + i * p->cols, p->cols);
}

PROGRAM(3, online_softmax, "softmax at the speed of memory",
        .max_score = INFINITY, .masked_rows = 1, .does = {{OP_SOFTMAX, softmax}})
