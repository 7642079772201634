/* simd.c: stage 1 on the vectors of one core.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 * The two loops of stage.c; a core does LANES elements at once (row.h). */
#include "row.h"

const struct variant naive_simd = {
    .name = "simd",
    .idea = "vectors with our own exponential",
    .group = IN_FAST,
    .types = TYPE(F32),
    .supports = BASIC_FEATURES,
    .max_score = 60,
    .isolates_v = 1,
    .cost = cost,
    .by_row = {{OP_SOFTMAX, softmax_row}},
    .by_head = {{OP_ATTENTION, attention_head}},
    .stores_scores = 1,
};
