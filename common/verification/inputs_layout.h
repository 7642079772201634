/* inputs_layout.h: the arrays of a case moved to where its layout has them. */
#ifndef INPUTS_LAYOUT_H
#define INPUTS_LAYOUT_H

#include "problem/random.h"
#include "verification/cases.h"

/* Queries (salt 1) or keys (salt 2) of sequence b of a packed case: the first is the
 * longest, others have fewer, some none. */
size_t packed_length(size_t longest, size_t b, int salt);

/* Sets total_q and total_k of a packed problem to the sums of these lengths. */
void packed_totals(struct problem *p);

/* Replaces the plain arrays [batch, heads, rows, .] of in by those of c's layout, and its
 * problem by c's.  Of a sequence the first rows are taken.  What lies between the rows, in
 * pages that nobody owns and behind the last key of a page is NaN. */
void inputs_lay_out(struct inputs *in, const struct test_case *c, struct random *r);

#endif
