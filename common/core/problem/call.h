/* call.h: what may be asked.  `run`, the C library and Python describe a problem, each in its own
 * way.  Here its sizes follow from the shapes of its arrays, and what cannot be is named: the three
 * relay these words.  choice.h chooses the kernel. */
#pragma once

#include "problem/arrays.h"

/* What is wrong: with an array, or (N_ARRAYS) with what the text names. */
struct fault { int array; char text[300]; };

/* An array as a caller gives it; size NULL: not given.  data is looked at of prefix sums alone. */
struct given { const size_t *size; size_t rank; const void *data; };

/* Sets the sizes of p, whose op is set, by the shapes of its inputs (N_ARRAYS), which are checked
 * against each other: of q, k and v [seqlen, head_dim], with heads, or with batch and heads; with
 * bias and sinks where these are given.  1: *f says what is wrong. */
int call_shapes(struct problem *p, const struct given *given, struct fault *f);

/* The shape that array i then has, with the rank of x or q; gives its rank.
 *   size (MOST_DIMENSIONS, and as many as x has) */
size_t call_shape_of(const struct problem *p, const struct given *given, enum array i,
                     size_t *size);

/* Can these sizes and scores be?  A window that asks for nothing is left out, and one that is the
 * causal mask becomes it, so that every kernel that can may take it. */
int call_scores(struct problem *p, struct fault *f);

/* Are the prefix sums, lengths and page numbers what they say?  The arrays lie in host memory. */
int call_numbers(const struct problem *p, const struct arrays *a, struct fault *f);
