/* yardstick.h: the harness's own straightforward computation, whose error says how well an
 * input can be computed at all. */
#ifndef YARDSTICK_H
#define YARDSTICK_H

#include "stage.h"

/* Softmax or log-softmax in three float passes; for 16-bit problems the result is rounded
 * to 16 bits.  Returns y [rows, cols], freed by free(). */
float *yardstick_rows(const struct problem *p, const struct arrays *a);

/* Attention, scan or update: scores, maximum, sum, product, all in float; for 16-bit
 * problems p and o are rounded to 16 bits.  Returns o, freed by free(). */
float *yardstick_attention(const struct problem *p, const struct arrays *a);

#endif
