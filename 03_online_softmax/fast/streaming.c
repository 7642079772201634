/* streaming.c: stage 3 on vectors, y stored past the cache.
 *
 * A plain store to a line that is not in the cache first reads the line.  A non-temporal
 * store does not: 12 bytes per element cross the memory interface instead of 16. */
#include "row.h"

static void softmax_streaming(const struct problem *p, const struct arrays *a)
{
    each_row(p, a, online_row, divide_streaming);
}

const struct variant online_streaming = {
    .name = "streaming", .idea = "y stored past the cache",
    .group = IN_FAST, SAFE_ON_CPU, .cost = cost_streaming,
    .does = {{OP_SOFTMAX, softmax_streaming}},
};
