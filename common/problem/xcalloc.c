/* xcalloc.c: memory that is there, or the program ends. */
#include "problem/xcalloc.h"

#include <stdio.h>
#include <stdlib.h>

void *xcalloc(size_t count, size_t size)
{
    void *m = calloc(count ? count : 1, size);
    if (!m) {
        fprintf(stderr, "%zu x %zu bytes of memory are needed, more than this machine has\n",
                count, size);
        exit(1);
    }
    return m;
}
