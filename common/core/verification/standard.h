/* standard.h: what is accepted as right: the answer in float64 and the allowed error. */
#pragma once

#include "problem/arrays.h"
#include "problem/layout.h"

/* One output, element by element, without the gaps that strides leave.
 *   want        the right answer, in double with compensated sums
 *   likely      what a float algorithm of these stages errs by, if roundings do not conspire:
 *               those that may all point one way in full, those that are independent as
 *               LAMBDA sqrt(sum of squares)
 *   own         what the harness's own computation errs by; of gradients, while they grow, the sum of
 *               squares
 *   allowed     what is accepted */
struct answer {
    size_t n;
    double *want, *likely, *own, *allowed;
};

/* The answers of one problem, and what the rule of acceptance has to know about it.
 *
 *     allowed = max(likely times D, twice own) + the rounding of the output to its type
 *
 * `likely` is one theorem for every operation and type (notes/numerics.md).  D, the dependence, is 1
 * where the roundings are as independent as the theorem takes them to be.  For results in 16 bits,
 * gradients, the log form and the mean the harness measures it: D is twice the largest error of its
 * own straightforward computation as a share of likely, in the whole of a (batch, head).  Equal
 * weights, which 16 bits round alike, make it more than 1; random numbers do not. */
struct standard {
    struct problem problem;
    struct answer answer[N_ARRAYS]; /* n = 0 for what is no output */
    double max_score;    /* the largest of all |scores| or |x|, INFINITY for inf or NaN */
    size_t empty_rows;   /* fully masked rows */
    int v_is_finite;     /* v holds neither inf nor NaN anywhere; backward: nor q, k and do */
    char *broken;        /* NULL, or how the harness's own computation errs by more than any
                          * number of roundings can: then nothing may be accepted by it */
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
