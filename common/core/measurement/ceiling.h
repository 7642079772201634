/* ceiling.h: what this machine can do at most, measured in this run, so that every
 * speed is a share of it. */
#pragma once

/* The best of many short repeats, kept for the rest of the run; 0 when memory is short.
 *   kind  copy  main memory, GB/s.  A plain store to a line that is not in a cache first reads that line
 *               (read for ownership), so a plain copy moves 3 floats per element; a non-temporal store
 *               does not, so a streaming copy moves 2.  The faster of the two counts
 *         read  main memory, GB/s
 *         fma   float32 fused multiply-adds in registers, 2 flops, GFLOP/s
 *         exp   y[j] = 2^x[j] in the first-level cache, 10^9 elements/s
 *         gemm  a matrix unit, GFLOP/s: products() does some and returns their flops */
double ceiling(const char *kind, double (*products)(void), int threads);

/* A share above this needs a reason. */
#define CEILING_MOST 105

/* Why `percent` of a ceiling exceeds it; NULL when it does not.
 *   kind          on a GPU gemm is the vendor's product, a program that another may beat
 *   percent_once  the share if every array had been moved once and no more: when that does not
 *                 exceed the ceiling, the other passes that the model counts found their data
 *                 in a cache */
const char *ceiling_exceeded(const char *kind, int on_gpu, double percent, double percent_once);
