/* cuda_failed.cc: what a program does when a CUDA call fails. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/cuda_check.h"

/* What a program makes of a CUDA error.  The library has a function of that name that
 * throws instead, and it comes first. */
__attribute__((weak)) void cuda_failed(const char *file, int line, const char *call,
                                       const char *name, const char *text)
{
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, name, text);
    exit(1);
}
