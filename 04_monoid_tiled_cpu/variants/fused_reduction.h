/* fused_reduction.h: two reductions in one loop, although the second needs the result of
 * the first.
 *
 *     s = R1 over the data,     t = sum_j G(s, x_j, w_j)
 *
 * Maximum, then the sum of exp(x_j - m); mean, then the sum of (x_j - mean)^2.  It can be
 * done when the effect on t of a change of s follows from t, s and the new s alone:
 *
 *     sum_j G(s_new, x_j, w_j) = move(t; s, s_new)
 *
 * (t may hold a few sums more than the answer needs, if that makes move possible.)  Then
 *
 *     C:  (s1, t1) . (s2, t2) = (s, move(t1; s1, s) + move(t2; s2, s)),   s = s1 . s2
 *
 * is a monoid, and everything in stage.c applies to it.  notes/fusing_reductions.md
 * proves this, and that there is no such C for sum_j |x_j - mean|. */
#pragma once

#include <stddef.h>

#define S_SIZE 2
#define T_SIZE 3

/* An element: both results over `n` elements of data.  n = 0 is the unit. */
struct pair { float n, s[S_SIZE], t[T_SIZE]; };

struct reduction {
    const char *name;
    /* One element of data: s, and t = G(s, x, w).  n = 0 for a masked one, else 1. */
    struct pair (*lift)(float x, float w);
    /* s = R1 of both parts, neither of which is the unit. */
    void (*first)(const struct pair *x, const struct pair *y, float *s);
    /* x->t as it would be if x->s had been s. */
    void (*move)(struct pair *x, const float *s);
    float (*finish)(const struct pair *x);
};

/* The answers, in the order of the columns in harness.h. */
extern const struct reduction reductions[];

/* C. */
struct pair pair_merge(const struct reduction *r, struct pair x, struct pair y);

/* The fold of x (n), w (n). */
struct pair pair_fold(const struct reduction *r, const float *x, const float *w,
                      size_t n);
