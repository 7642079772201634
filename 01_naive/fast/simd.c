/* simd.c: stage 1 on the vectors of one core.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * The two loops of stage.c; a core does LANES elements at once (row.h). */
#include "row.h"

const struct variant naive_simd = {
    .name = "simd", .idea = "vectors with our own exponential",
    NAIVE_FAST,
    .by_row = {{OP_SOFTMAX, softmax_row}},
};
