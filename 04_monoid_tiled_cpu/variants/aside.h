/* aside.h: what the descriptors of the asides have in common. */
#ifndef ASIDE_H
#define ASIDE_H

#include "problem/heads.h"

/* Float, with what each attention of stages 1 to 4 has, right for all scores and masks. */
#define ASIDE                                                                              \
    .group = IN_ASIDES, .types = TYPE(F32), .supports = BASIC_FEATURES,                    \
    .max_score = INFINITY, .masked_rows = 1, .isolates_v = 1

/* No score is stored.  A key costs one exp, and one more when it raises the maximum. */
static inline struct cost aside_cost(const struct problem *p)
{
    return (struct cost){
        .passes = 0, .bytes = attention_io_bytes(p), .exps = 2 * score_count(p)};
}

#endif
