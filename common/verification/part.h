/* part.h: one sequence of an attention problem, as a plain problem of its own.
 *
 * Copies make it plain: its rows are gathered from strides, packed arrays and pages.  The reference
 * works on such parts. */
#ifndef PART_H
#define PART_H

#include "problem/arrays.h"
#include "problem/layout.h"

/* What a part does not have: the features that say only where rows lie. */
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

struct part {
    struct problem p;    /* batch 1 */
    struct arrays a;     /* its inputs */
    struct sequence s;   /* in the whole problem */
    void *memory[N_ARRAYS];
};

/* Sequence b of p. */
struct part part_new(const struct problem *p, const struct arrays *a, size_t b);
void part_free(struct part *part);

#endif
