/* serves.h: what the attention variants of this folder say of themselves. */
#ifndef SERVES_H
#define SERVES_H

#include "harness.h"

#define SERVES(type)                                                                       \
    .group = IN_FAST, .device = ON_CPU, .types = TYPE(type), .max_score = INFINITY,        \
    .masked_rows = 1, .isolates_v = 1,                                                     \
    .supports = BASIC_FEATURES | WITH_SHIFT | WITH_WINDOW | WITH_SOFTCAP | WITH_SINKS |    \
                WITH_PACKED | WITH_PAGES | WITH_STRIDES | WITH_BIAS_STRIDES | WITH_LENGTHS

#endif
