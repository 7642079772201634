/* one_look.c: stage 3 on vectors, one comparison and one rescale for a block of 4096.
 *
 * The terms of a block are relative to the maximum before the block, so that no element has
 * to be looked at twice (vector/softmax_rows.h).  Large outputs are stored past the cache. */
#include "row.h"

static void softmax_one_look(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_row_one_look, is_large(p) ? divide_streaming : divide);
}

const struct variant online_one_look = {
    .name = "one_look", .idea = "one correction per block",
    .group = IN_FAST, SAFE_ON_CPU, .cost = cost_streaming_large,
    .does = {{OP_SOFTMAX, softmax_one_look}},
};
