/* trace.h: what `make trace 2` prints: the maximum and the denominator after every score. */
#ifndef STAGE_TRACE_H
#define STAGE_TRACE_H

#include "harness.h"

/* The three loops: the maximum, the denominator below it, the quotients. */
static void trace(struct trace *t, const float *x, size_t n, const float *v, size_t d)
{
    float m = -INFINITY, l = 0;
    (void)v, (void)d;
    trace_note(t, "loop 1: maximum");
    for (size_t j = 0; j < n; j++) {
        m = x[j] > m ? x[j] : m;
        trace_state(t, "element", j, x[j], m, NAN, NULL, 0, 1);
    }
    if (m == -INFINITY) m = 0; /* nothing is visible */
    trace_note(t, "loop 2: denominator");
    for (size_t j = 0; j < n; j++) {
        l += expf(x[j] - m);
        trace_state(t, "element", j, x[j], m, l, NULL, 0, 1);
    }
    trace_note(t, "loop 3: divide");
    for (size_t j = 0; j < n; j++)
        trace_note(t, "y[%zu] = exp(%g - %g) / %g = %g", j, x[j], m, l,
                   l == 0 ? 0 : expf(x[j] - m) / l);
}

#endif
