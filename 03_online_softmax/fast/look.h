/* look.h: the first loop with one look at each element. */
#ifndef LOOK_H
#define LOOK_H

#include "row.h"

#define LOOK 4096 /* elements in a block, 16 KiB */

/* Pass 1 of a row, each element looked at once.  What a block adds to l is relative to the
 * maximum m before it, and l is rescaled afterwards if m has grown:
 *     l = (l + sum_j exp(x_j - m)) * exp(m - m_new)
 * Before the first block m is the largest of a few elements.  A block that exceeds m by more
 * than VEXP_ROOM is looked at twice. */
static inline struct state online_row_one_look(const float *x, size_t n)
{
    enum { FEW = 8 * LANES };
    vfloat l = {0}, m = n < LANES ? vload_part(x, n, -INFINITY) : vload(x);
    for (size_t j = LANES; j < FEW && j + LANES <= n; j += LANES) m = vmax(vload(x + j), m);
    struct state s = {vlargest(vmax(m, vset(-INFINITY))), 0};
    for (size_t j = 0; j < n; j += LOOK) {
        size_t n_block = n - j < LOOK ? n - j : LOOK;
        struct block_sum block = vexp_sum(x + j, n_block, s.m);
        if (block.top > s.m + VEXP_ROOM) {
            l *= sexp(s.m - block.top);
            s.m = block.top;
            block = vexp_sum(x + j, n_block, s.m);
        }
        l += block.sum;
        if (block.top > s.m) {
            l *= sexp(s.m - block.top);
            s.m = block.top;
        }
    }
    s.l = vsum(l);
    return s;
}

#endif
