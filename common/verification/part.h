/* part.h: one sequence of an attention problem, as a plain problem of its own.
 *
 * Copies make it plain: its rows are gathered from strides, packed arrays and pages, and its
 * answer is scattered back.  The reference works on such parts, and so do the variants that
 * know nothing of layouts. */
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
    struct arrays a;     /* outputs not written yet; GUARD bytes on both sides */
    struct sequence s;   /* in the whole problem */
    void *memory[N_ARRAYS];
};

/* Sequence b of p.  Returns NULL, or why it could not be made. */
const char *part_new(struct part *part, const struct problem *p, const struct arrays *a,
                     size_t b);

/* The answer of a part without keys or queries: 0, and lse = -INFINITY. */
void part_without_rows(const struct part *part);

/* Adds the sinks of p (if any) to the part's answer.  Each is one more element of the
 * monoid, with the weight of one key and no value: (o, lse) . (0, sink). */
void part_add_sinks(const struct part *part);

/* Copies the part's outputs to their places in the whole problem's; dsinks is added. */
void part_deliver(const struct part *part, const struct problem *p, const struct arrays *a);
void part_free(struct part *part);

#endif
