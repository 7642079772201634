/* bench.h: the pieces of bench that one process and several ranks share. */
#pragma once

#include "measurement/csv.h"
#include "measurement/timing.h"
#include "program/options.h"

/* The attention asked for by --batch, --heads-q and so on; what is not given is that of `unless`
 * (heads_q, seqlen_q, head_dim), or 1, or alike for q, k and v. */
struct problem bench_heads(const struct options *opt, const struct problem *unless);

/* Do the options fit together?  own: the problem asked for, or NULL.  0, or 2 after one line. */
int bench_fits(const struct stage *stage, const struct options *opt, const struct problem *own);

/* Fills in what follows from the times, prints a line and writes one to csv (or NULL).  NULL, or
 * why it cannot be written.   rfo_bytes: see struct cost     more: what follows in the line */
const char *bench_report(struct measurement *m, const struct timing *t, double rfo_bytes,
                         const char *more, struct csv *csv);

/* --- One process alone. --- */

/* Where a shape is measured; FAST: only by variants that need little time for it. */
enum { CPU = 1, GPU = 2, EXECUTED = 4, QUICK = 8, SIXTEEN = 16, THIRTYTWO = 32, FAST = 64 };

struct shape { unsigned where; struct problem p; };

extern const struct shape bench_shapes[];
extern const size_t n_bench_shapes;

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
