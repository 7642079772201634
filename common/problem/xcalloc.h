/* xcalloc.h: memory that is there, or the program ends. */
#ifndef XCALLOC_H
#define XCALLOC_H

#include <stddef.h>

/* calloc that ends the program with a message instead of returning NULL.  Only for what
 * the harness needs itself; a variant's memory comes from memory_new(). */
void *xcalloc(size_t count, size_t size);

#endif
