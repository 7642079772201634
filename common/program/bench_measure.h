/* bench_measure.h: one measurement of bench. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "measurement/csv.h"
#include "harness.h"

/* The last speed of a variant, by which its time for the next shape is estimated. */
struct pace { double seconds, work; };

/* What a problem's time grows with: flops, or elements. */
double bench_work(const struct problem *p);

/* "softmax [16, 4096] f32" into text [size]. */
void bench_describe(const struct problem *p, char *text, size_t size);

/* Measures v on p for about so many seconds, prints a line, writes one to csv (or NULL)
 * and sets *pace.  0 done, 1 the result is wrong or a line could not be written, 77 memory
 * is short. */
int bench_measure(const struct stage *stage, const struct variant *v, struct problem p,
                  double seconds, struct csv *csv, struct pace *pace);

#endif
