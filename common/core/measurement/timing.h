/* timing.h: how long one call takes. */
#pragma once

#include "problem/execute.h"

struct timing { double median_s, min_s, spread; int reps; }; /* spread: (p90 - p10) / median */

struct timing timing_of(double *seconds, int n); /* of n calls; sorts them */

double seconds_now(void); /* a monotonic clock */

/* Warms up with one call, then repeats it: at least 20 times or for `seconds`, never fewer
 * than 3.  On a GPU by events, with the L2 cache flushed before each call. */
struct timing time_execution(struct execution *e, int on_gpu, double seconds);
