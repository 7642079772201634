/* cost.h: what theory says that a tiled attention kernel moves and computes. */
#ifndef COST_H
#define COST_H

#include "harness.h"

/* Q and O once; K and V once for every br queries that see them. */
static inline struct cost attention_cost(const struct problem *p, size_t br)
{
    double heads = (double)p->batch * (double)p->heads_q, keys = 0.0, pairs = 0.0;
    for (size_t i = 0; i < p->seqlen_q; i += br) {
        size_t end = i + br < p->seqlen_q ? i + br : p->seqlen_q;
        struct key_range keys_of_tile = some_row_sees(problem_mask(p), i, end);
        double seen = (double)(keys_of_tile.end - keys_of_tile.first);
        keys += seen;
        pairs += seen * (double)(end - i);
    }
    double d = (double)p->head_dim + (double)p->head_dim_v;
    double size = (double)dtype_size(p->dtype);
    struct cost c = {};
    c.bytes = heads * size * d * ((double)p->seqlen_q + keys);
    c.exps = heads * pairs;
    return c;
}

#endif
