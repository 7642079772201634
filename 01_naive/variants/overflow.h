/* overflow.h: where the naive softmax stops being right. */
#ifndef OVERFLOW_H
#define OVERFLOW_H

#include "harness.h"

/* The least score x for which softmax_row is wrong on a row of n scores that are all x: a term
 * or the sum has overflowed. */
float first_failing_score(function_of_row *softmax_row, size_t n);

/* The same for a sum in which every number is rounded to a type of 16 bits.
 *   n  at least 1; a 16-bit sum of equal terms stops growing before n does */
float first_failing_score_16(enum dtype dtype, size_t n);

/* A table of them for rows of 1, 1024 and 1024^2 scores. */
void print_first_failing_scores(function_of_row *softmax_row);

#endif
