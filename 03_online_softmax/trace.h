/* trace.h: what `make trace 3` prints: m, l and o after every score. */
#ifndef STAGE_TRACE_H
#define STAGE_TRACE_H

#include "harness.h"

/* m, l and the factor that corrected l, after every score; with values also the output so
 * far, un-normalised, as one loop over the keys would have it. */
static void trace(struct trace *t, const float *x, size_t n, const float *v, size_t d)
{
    float m = -INFINITY, l = 0, o[64] = {0};
    if (d > 64) d = 64;
    trace_note(t, "loop 1: maximum and denominator");
    for (size_t j = 0; j < n; j++) {
        float m_new = x[j] > m ? x[j] : m;
        float correction = m_new > m ? expf(m - m_new) : 1;
        float weight = x[j] == -INFINITY ? 0 : expf(x[j] - m_new);
        l = l * correction + weight;
        for (size_t c = 0; c < d; c++) o[c] = o[c] * correction + weight * v[j * d + c];
        m = m_new;
        trace_state(t, "element", j, x[j], m, l, o, d, correction);
    }
    trace_note(t, "loop 2: divide");
    for (size_t j = 0; j < n; j++)
        trace_note(t, "y[%zu] = exp(%g - %g) / %g = %g", j, x[j], m, l,
                   l == 0 ? 0 : expf(x[j] - m) / l);
}

#endif
