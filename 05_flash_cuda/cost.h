/* cost.h: what theory says that a tiled attention kernel moves and computes. */
#pragma once

#include "harness.h"

/* Q and O once; K and V once for every br queries that see them. */
static inline struct cost attention_cost(const struct problem *p, size_t br)
{
    double heads = (double)p->batch * (double)p->heads_q, pairs;
    double keys = keys_of_tiles(p, br, &pairs);
    double d = (double)p->head_dim + (double)p->head_dim_v;
    double size = (double)dtype_size(p->dtype);
    struct cost c = {};
    c.bytes = heads * size * d * ((double)p->seqlen_q + keys);
    c.exps = heads * pairs;
    return c;
}
