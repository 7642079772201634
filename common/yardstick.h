/* yardstick.h: the harness's own straightforward computation, whose error says how well
 * an input can be computed at all.
 *
 * It is done in two ways, and the worse is the yardstick: sums from the first to the last
 * key and the scale applied to the scores, or, in reverse, from the last to the first and
 * the scale applied to q.  A stage may do either, and where one score outweighs all
 * others the order decides whether the small terms survive. */
#ifndef YARDSTICK_H
#define YARDSTICK_H

#include "stage.h"

/* Softmax or log-softmax in three float passes; for 16-bit problems the result is rounded
 * to 16 bits.  Returns y [rows, cols], freed by free(). */
float *yardstick_rows(const struct problem *p, const struct arrays *a, int reverse);

/* Attention, scan or update: scores, maximum, sum, product, all in float; for 16-bit
 * problems p and o are rounded to 16 bits.  Returns o, freed by free(). */
float *yardstick_attention(const struct problem *p, const struct arrays *a, int reverse);

#endif
