/* trace.h: what `make trace 4` prints: the aggregate after every key and every tile. */
#ifndef STAGE_TRACE_H
#define STAGE_TRACE_H

#include "harness.h"

#include "monoid.h"
#include "scores.h"

/* The fold of scores x (n) and values v (n, d) key by key; then in tiles of 2 keys, each
 * folded alone and merged, with the factor that corrected what was there before. */
static void trace(struct trace *t, const float *x, size_t n, const float *v, size_t d)
{
    float o[2][64];
    struct aggregate all = {.o = o[0], .d = smaller(d, 64)};
    struct aggregate tile = {.o = o[1], .d = all.d};
    trace_note(t, "one fold, from the unit (m = -inf, l = 0, o = 0):");
    aggregate_unit(&all);
    for (size_t j = 0; j < n; j++) {
        float factor = aggregate_push(&all, x[j], v + j * d);
        trace_state(t, "element", j, x[j], all.m, all.l, all.o, all.d, factor);
    }
    trace_note(t, "the same in tiles of 2 keys, each folded alone and merged:");
    aggregate_unit(&all);
    for (size_t j = 0; j < n; j += 2) {
        float m = all.m;
        aggregate_unit(&tile);
        for (size_t i = j; i < smaller(j + 2, n); i++)
            aggregate_push(&tile, x[i], v + i * d);
        trace_state(t, "tile", j / 2, tile.m, tile.m, tile.l, tile.o, tile.d, 1.0f);
        aggregate_merge(&all, &tile);
        trace_state(t, "merge", j / 2, tile.m, all.m, all.l, all.o, all.d,
                    m == -INFINITY ? 1.0f : se_factor(m, all.m));
    }
}

#endif
