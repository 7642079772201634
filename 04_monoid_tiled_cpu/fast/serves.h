/* serves.h: what the attention variants of this folder say of themselves, and use of one another. */
#pragma once

#include "harness.h"

#define DECODE_ROWS 8 /* up to so many query rows of a head of k, keys are folded row by row */

variant_function widened_attention; /* tiled.c */
size_t widened_workspace(const struct problem *p);

/* Softmax and log-softmax of rows on all cores (softmax.c), for the variant all_cores.  Scores are
 * read twice, in rows of up to 4096 once; probabilities are written once, past the cache when they
 * are many. */
variant_function rows_softmax, rows_logsoftmax;
size_t rows_workspace(const struct problem *p); /* an element a chunk of a row */
struct cost rows_cost(const struct problem *p);

/* A second argument: what else is supported. */
#define SERVES(set, ...)                                                                   \
    .group = IN_FAST, .device = ON_CPU, .types = (set), .max_score = INFINITY,             \
    .masked_rows = 1, .isolates_v = 1, .lse_may_be_null = 1,                               \
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |    \
                WITH_PACKED | WITH_PAGES | WITH_STRIDES | WITH_BIAS_STRIDES | WITH_LENGTHS |   \
                WITH_INVARIANT __VA_ARGS__
