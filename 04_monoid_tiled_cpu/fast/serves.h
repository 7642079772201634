/* serves.h: what the attention variants of this folder say of themselves. */
#ifndef SERVES_H
#define SERVES_H

#include "harness.h"

#define DECODE_ROWS 8 /* up to so many query rows of a head of k, keys are folded row by row */

variant_function widened_attention; /* tiled.c */
size_t widened_workspace(const struct problem *p);

/* A second argument: what else is supported. */
#define SERVES(set, ...)                                                                   \
    .group = IN_FAST, .device = ON_CPU, .types = (set), .max_score = INFINITY,             \
    .masked_rows = 1, .isolates_v = 1,                                                     \
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |    \
                WITH_PACKED | WITH_PAGES | WITH_STRIDES | WITH_BIAS_STRIDES | WITH_LENGTHS |   \
                WITH_INVARIANT __VA_ARGS__

#endif
