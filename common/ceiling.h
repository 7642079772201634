/* ceiling.h: what this machine can do at most, measured in this run, so that every
 * speed is a share of it.
 *
 * Each number is the best of many short repeats, kept for the rest of the run, and costs
 * about a third of a second the first time it is asked for.  threads <= 0 means every
 * thread that OpenMP gives. */
#ifndef CEILING_H
#define CEILING_H

#ifdef __cplusplus
extern "C" {
#endif

/* Main memory, GB/s, arrays of 128 MiB.
 * A plain store to a line that is not in a cache first reads that line (read for
 * ownership), so a plain copy moves 3 floats an element; a non-temporal store does not,
 * so a streaming copy moves 2.  Both are counted as moved. */
double ceiling_copy_gbps(int threads);           /* the faster of the next two */
double ceiling_copy_plain_gbps(int threads);     /* 12 bytes an element */
double ceiling_copy_streaming_gbps(int threads); /* 8 bytes an element */
double ceiling_read_gbps(int threads);           /* a sum: 4 bytes an element */

/* Arithmetic, nothing but registers and the first-level cache. */
double ceiling_fma_gflops(int threads);          /* float32 fused multiply-adds, 2 flops */
double ceiling_exp_gexps(int threads);           /* y[j] = vexp(x[j]), 10^9 elements/s */

#ifdef __cplusplus
}
#endif
#endif
