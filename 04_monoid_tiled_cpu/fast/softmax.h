/* softmax.h: softmax and log-softmax of rows on all cores (softmax.c), for the variant all_cores. */
#ifndef ROWS_H
#define ROWS_H

#include "harness.h"

void rows_softmax(const struct problem *p, const struct arrays *a);
void rows_logsoftmax(const struct problem *p, const struct arrays *a);
size_t rows_workspace(const struct problem *p); /* bytes: an element a chunk of a row */

/* Scores are read twice, in rows of up to 4096 once; probabilities are written once, past the
 * cache when they are many. */
struct cost rows_cost(const struct problem *p);

#endif
