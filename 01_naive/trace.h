/* trace.h: what `make trace 1` prints: the denominator after every score. */
#ifndef STAGE_TRACE_H
#define STAGE_TRACE_H

#include "harness.h"

#include "variants/overflow.h"

/* The denominator after each score: where it leaves the range of a float, it shows.  Then
 * the scores at which that happens. */
static void trace(struct trace *t, const float *x, size_t n, const float *v, size_t d)
{
    float l = 0;
    (void)v, (void)d;
    trace_note(t, "loop 1: denominator");
    for (size_t j = 0; j < n; j++) {
        l += expf(x[j]);
        trace_state(t, "element", j, x[j], NAN, l, NULL, 0, 1);
    }
    trace_note(t, "loop 2: divide");
    for (size_t j = 0; j < n; j++)
        trace_note(t, "y[%zu] = exp(%g) / %g = %g", j, x[j], l, expf(x[j]) / l);
    trace_note(t, "the first score at which n equal scores overflow, by type:");
    trace_note(t, "%9s %12s %12s %12s", "n", "f32", "f16", "bf16");
    for (size_t length = 1; length <= (size_t)1 << 20; length *= 1024)
        trace_note(t, "%9zu %12.6f %12.6f %12.6f", length, first_failing_score(F32, length),
                   first_failing_score(F16, length), first_failing_score(BF16, length));
}

#endif
