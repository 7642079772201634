/* standard.h: what is accepted as right: the answer in float64 and the allowed error. */
#ifndef STANDARD_H
#define STANDARD_H

#include "problem/arrays.h"
#include "problem/layout.h"

/* One output, element by element, without the gaps that strides leave.
 *   want        the right answer, in double with compensated sums
 *   bound       no float algorithm of these stages may err more (INFINITY: the input is too
 *               ill-conditioned for any statement)
 *   likely      the same as bound where roundings do not conspire: sums of n terms grow the
 *               error by 4 sqrt(n) units, not by n
 *   allowed     what is accepted */
struct answer {
    size_t n;
    double *want, *bound, *likely, *allowed;
};

/* The answers of one problem, and what the rule of acceptance has to know about it.
 *
 * f32 o            2 err_safe + 1e-6 max(1, max|v|) + u max|s| max|v|, and the proved
 *                  bound.  err_safe, the error of the harness's own float three-pass
 *                  computation, and both maxima are taken per (batch, head).
 * f32 softmax      2 err_safe + 1e-6 per row, 2 err_safe relative to the largest element and
 *                  the likely bound, and the proved bound
 * 16-bit o         twice the error of the straightforward 16-bit computation (scores in
 *                  float, p and o rounded) per (batch, head), one rounding of p and of o, and
 *                  u max|s| max|v|
 * 16-bit y         the likely bound, a rounding, and twice the straightforward computation's
 *                  largest error, as a share of a rounding
 * log-softmax      2 err_safe and the likely bound, and the proved bound
 * lse, log form    2 err_safe (of lse: of the row) and the likely bound, and the proved bound
 * mean             err_safe of two codings and the likely bound, and the proved bound
 * fused            the likely bound and the proved bound
 * gradients        2 err_safe per (batch, head) of the array and the likely bound, and the
 *                  proved bound; in 16 bits p, ds, o and the gradients are rounded too */
struct standard {
    struct problem problem;
    struct answer answer[N_ARRAYS]; /* n = 0 for what is no output */
    double *o_mass;      /* per element of o: sum_j p_j |v_jc|, what a relative error of p does */
    double *weight;      /* per row of o: 1 / l, the weight of the largest score */
    double *max_s, *max_v; /* per (batch, head_q): largest finite |score| and |v| not masked */
    double max_score;    /* the largest of all |scores| or |x|, INFINITY for inf or NaN */
    size_t empty_rows;   /* fully masked rows */
    int v_is_finite;     /* v holds neither inf nor NaN anywhere; backward: nor q, k and do */
    char *broken;        /* NULL, or how the harness's own computation exceeded its proved
                          * bound: then nothing may be accepted by it */
};

/* Exits 1 when memory is short. */
struct standard *standard_new(const struct problem *p, const struct arrays *a);
void standard_free(struct standard *s);

/* Its memory alone, all 0, for a reference to fill in. */
struct standard *standard_room(const struct problem *p);

/* Fills a->o and a->lse, inputs of p (backward), with the answer of the forward pass. */
void forward_answer(const struct problem *p, struct arrays *a);

/* The features that say only where rows lie. */
#define LAYOUTS (WITH_PACKED | WITH_LENGTHS | WITH_PAGES | WITH_STRIDES)

/* p without these features; batch, seqlen_q and seqlen_k stay. */
struct problem problem_without_layout(const struct problem *p);

/* The rows of one sequence, wherever a problem has them. */
struct rows {
    const struct problem *p;
    const struct arrays *a; /* for the page table */
    struct sequence s;
};

/* Copies these rows of array i, whose elements have `size` bytes. */
void rows_copy(enum array i, size_t size, void *to, const struct rows *rows_to,
               const void *from, const struct rows *rows_from);

#endif
