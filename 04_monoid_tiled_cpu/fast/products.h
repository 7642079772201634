/* products.h: the matrix product of which attention and its gradient consist.
 *
 *     c (rows, cols) = factor c + a (rows, steps) . b (steps, cols)
 * Numbers of a are read one at a time, rows of b and c as vectors. */
#pragma once

#include "vector/vector.h"

#define PANEL 48 /* queries side by side: whole vectors of every width */

struct product {
    const float *a; /* element (r, t) at a[r * a_row + t * a_step]; one of the two is 1 */
    size_t a_row, a_step;
    const float *b; /* (steps, cols), rows b_row apart */
    size_t b_row;
    float *c;       /* (rows, cols), rows c_row apart */
    size_t c_row;
    const float *factor; /* (rows); or NULL: c is overwritten */
    size_t rows, steps, cols; /* cols: whole vectors; steps > 0 */
};

typedef void product_function(const struct product *x);

/* microkernel.c: in blocks that stay in registers. */
product_function block_product;
