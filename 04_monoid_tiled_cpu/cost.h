/* cost.h: what the descriptors of this stage's rungs and asides have in common. */
#ifndef COST_H
#define COST_H

#include "problem/heads.h"

#define RUNG SAFE_ON_CPU, .cost = fold_cost
#define ASIDE .group = IN_ASIDES, SAFE_ON_CPU

/* No score is stored.  A key costs one exp, and one more when the sums are corrected. */
static inline struct cost fold_cost(const struct problem *p)
{
    return (struct cost){
        .passes = 0, .bytes = attention_io_bytes(p), .exps = 2 * score_count(p)};
}

static inline size_t one_row_of_o(const struct problem *p)
{
    return p->head_dim_v * sizeof(float);
}

#endif
