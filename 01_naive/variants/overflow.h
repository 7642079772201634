/* overflow.h: where the naive softmax stops being right. */
#ifndef OVERFLOW_H
#define OVERFLOW_H

#include "harness.h"

/* The least score x, representable in dtype, for which the naive softmax of n scores that
 * are all x, computed in dtype, is not finite: a term or the sum has overflowed.
 *   n  at least 1; a 16-bit sum of equal terms stops growing before n does */
float first_failing_score(enum dtype dtype, size_t n);

#endif
