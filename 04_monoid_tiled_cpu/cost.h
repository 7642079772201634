/* cost.h: what the rungs and asides of this stage have in common: what they say of themselves, and
 * the smaller of two sizes. */
#pragma once

#include "problem/heads.h"

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

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
