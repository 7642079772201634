/* math.h for a WebAssembly module without a C library: what the stages use of it.
 * logf, tanhf and exp come from the browser; expf is its exp, rounded once (module.c). */
#ifndef BOOK_MATH_H
#define BOOK_MATH_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isfinite(x) __builtin_isfinite(x)
#define sqrtf(x) __builtin_sqrtf(x)
#define fabsf(x) __builtin_fabsf(x)
#define fabs(x) __builtin_fabs(x)
#define fmaf(x, y, z) ((float)((double)(x) * (y) + (z))) /* but for rare ties */

float expf(float x);
float logf(float x);
float tanhf(float x);
double exp(double x);

#endif
