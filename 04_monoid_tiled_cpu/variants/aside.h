/* aside.h: what the descriptors of the asides have in common. */
#ifndef ASIDE_H
#define ASIDE_H

#include "problem/heads.h"

#define ASIDE .group = IN_ASIDES, SAFE_ON_CPU

/* No score is stored.  A key costs one exp, and one more when it raises the maximum. */
static inline struct cost aside_cost(const struct problem *p)
{
    return (struct cost){
        .passes = 0, .bytes = attention_io_bytes(p), .exps = 2 * score_count(p)};
}

#endif
