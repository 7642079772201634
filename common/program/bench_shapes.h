/* bench_shapes.h: the standard shapes that bench measures. */
#ifndef BENCH_SHAPES_H
#define BENCH_SHAPES_H

#include "harness.h"

/* Where a shape is measured; FAST: only by variants that need little time for it. */
enum { CPU = 1, GPU = 2, EXECUTED = 4, QUICK = 8, SIXTEEN = 16, THIRTYTWO = 32, FAST = 64 };

struct shape { unsigned where; struct problem p; };

extern const struct shape bench_shapes[];
extern const size_t n_bench_shapes;

#endif
