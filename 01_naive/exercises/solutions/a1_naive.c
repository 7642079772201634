/* a1_naive.c: assignment of stage 1, 40 points: attention that says where it breaks.
 *
 *     l = sum_j exp(x_j),    y_j = exp(x_j) / l,    o_i = sum_j y_j v_j,    lse_i = log(l)
 *
 * In float this breaks in two ways: l is infinite (TOO_LARGE), or l is 0 (NOTHING_LEFT).  A library that
 * returns NaN then leaves its user to search.  Yours says in which row, at which key and why.
 *
 * Task: fill the five functions.  a2_safe.c and a3_online.c include this file: what is slow or wrong here stays.
 * May be assumed: no score is NaN or -INFINITY.  Where a row breaks, its y or o may hold anything.
 *
 * Point: cases term_breaks, sum_breaks, nothing_left, head_breaks.
 * Time: 4 hours.
 * Hint: an infinite l does not become finite again: look at l after each key.
 * Hint: a sum may be infinite where no term is.
 * Hint: largest(): n exp(x) is at most FLT_MAX (float.h).  Take logarithms, in double.
 * Right or wrong:  make exercise 1 EX=a1_naive */
#include <float.h>

#include "stage.h"
#include "course/exercise.h"

enum what { FINE, TOO_LARGE, NOTHING_LEFT };

/* what has become of a row; at: the key at which l became infinite, else the number of keys. */
struct report { enum what what; size_t at; };

/* a . b, both of length n. */
static float dot(const float *a, const float *b, size_t n)
{
    /* solution begin */
    float sum = 0;
    for (size_t d = 0; d < n; d++) sum += a[d] * b[d];
    return sum;
    /* skeleton
    return 0 * a[0] * b[0] * (float)n;
    solution end */
}

/* Softmax of a row x (n) into y (n), not yet divided by *l. */
static struct report weights(const float *x, float *y, size_t n, float *l)
{
    /* solution begin */
    struct report r = {FINE, n};
    *l = 0;
    for (size_t j = 0; j < n; j++) {
        *l += y[j] = expf(x[j]);
        if (*l == INFINITY && r.what == FINE) r = (struct report){TOO_LARGE, j};
    }
    if (*l == 0) r.what = NOTHING_LEFT;
    return r;
    /* skeleton
    *l = 1;
    return (struct report){FINE, x == y ? n : n + 1};
    solution end */
}

/* Softmax of a row. */
static struct report softmax(const float *x, float *y, size_t n)
{
    /* solution begin */
    float l;
    struct report r = weights(x, y, n, &l);
    for (size_t j = 0; j < n; j++) y[j] /= l;
    return r;
    /* skeleton
    float l;
    return weights(x, y, n, &l);
    solution end */
}

/* One head: o, lse and a report for each query; returns how many queries broke.  Each query sees all keys, and
 * score_ij = scale q_i . k_j.   s (seqlen_k)  room for the scores of a query */
static size_t attention(const struct head *h, float *s, struct report *reports)
{
    /* solution begin */
    size_t broken = 0;
    for (size_t i = 0; i < h->seqlen_q; i++) {
        float l, *o_i = o_row(h, i);
        for (size_t j = 0; j < h->seqlen_k; j++) s[j] = h->scale * dot(q_row(h, i), k_row(h, j), h->head_dim);
        reports[i] = weights(s, s, h->seqlen_k, &l);
        broken += reports[i].what != FINE;
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
        for (size_t j = 0; j < h->seqlen_k; j++)
            for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] += s[j] * v_row(h, j)[d];
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] /= l;
        h->lse[i] = logf(l);
    }
    return broken;
    /* skeleton
    s[0] = 0, reports[0].what = NOTHING_LEFT;
    return h->seqlen_q + 1;
    solution end */
}

/* The largest score x for which a row of n scores x does not break, to 4 digits. */
static float largest(size_t n)
{
    /* solution begin */
    return (float)log(FLT_MAX / (double)n);
    /* skeleton
    return n ? 0 : 1;
    solution end */
}

/* The judge's call, where this file is not included by the next assignment. */
#if __INCLUDE_LEVEL__ == 0
void answer(const struct call *c)
{
    size_t n = (size_t)c->n[0];
    struct report reports[256];
    if (c->n[6] == 0) {
        reports[0] = softmax(c->x[0], c->y[0], n);
        c->y[1][0] = (float)reports[0].what, c->y[1][1] = (float)reports[0].at;
    } else if (c->n[6] == 1) {
        float s[256];
        struct head h = head_of(c);
        h.o = c->y[0], h.lse = c->y[1];
        c->y[2][0] = (float)attention(&h, s, reports);
        for (size_t i = 0; i < h.seqlen_q; i++)
            c->y[3][2 * i] = (float)reports[i].what, c->y[3][2 * i + 1] = (float)reports[i].at;
    } else
        c->y[0][0] = largest(n);
}
#endif
