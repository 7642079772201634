/* stream.h: the second loop with non-temporal stores. */
#ifndef STREAM_H
#define STREAM_H

#include "row.h"

#define AHEAD 1024 /* so far ahead loop 2 asks for x */

/* `divide` with non-temporal stores: y is written without being read, and leaves the cache
 * to x.  Up to the first whole vector of y, and after the last, stores are plain.  The
 * caller ends its last row with vstream_end(): each such end waits for the memory. */
static inline void divide_streaming(const float *x, float *y, size_t n, struct state s)
{
    vfloat shift = shift_of(vset(s.m));
    float scale = s.l == 0 ? 0 : 1 / s.l;
    size_t head = (VECTOR_BYTES - (uintptr_t)y % VECTOR_BYTES) % VECTOR_BYTES / sizeof(float);
    if (head > n) head = n;
    divide(x, y, head, s);
    size_t j = head;
    for (; j + LANES <= n; j += LANES) {
        vfetch(x + j, AHEAD);
        vstream(y + j, weight(vload(x + j), shift) * scale);
    }
    divide(x + j, y + j, n - j, s);
}

/* Non-temporal stores read nothing unasked. */
static inline struct cost cost_streaming(const struct problem *p)
{
    struct cost c = cost(p);
    c.rfo_bytes = 0;
    return c;
}

static inline struct cost cost_streaming_large(const struct problem *p)
{
    return p->op == OP_SOFTMAX && p->rows * p->cols >= STREAM_FROM ? cost_streaming(p) : cost(p);
}

#endif
