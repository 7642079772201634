/* quantise.h: arrays in 8 bits: a number is its code times the scale of its batch and key head. */
#pragma once

#include "problem/arrays.h"

/* The scales of an array stand where it stands. */
static inline enum array scales_of(enum array i) { return i - ARRAY_Q + ARRAY_Q_SCALE; }

/* Which scale a row has: one of the rows of all batches and heads of array i. */
size_t scale_at(const struct problem *p, const struct arrays *a, enum array i, size_t row);

/* Of the array i of p, q, k or v, whose rows are contiguous or packed: the least scales at which
 * no number saturates, largest |x| / largest number of the type; 1 where all are 0 or none is
 * finite.   x: as floats   scales [batch, heads_kv] */
void amax_scales(const struct problem *p, const struct arrays *a, enum array i, const float *x,
                 float *scales);

/* The codes of these numbers with these scales, rounded to nearest, and the numbers of codes. */
void quantise(const struct problem *p, const struct arrays *a, enum array i, const float *x,
              const float *scales, void *codes);

/* The numbers of array i, in any type, as floats; scales NULL: 1.  Freed by free(). */
float *dequantised(const struct problem *p, const struct arrays *a, enum array i);
