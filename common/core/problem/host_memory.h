/* host_memory.h: host memory that fails early with a reason instead of late with a signal. */
#pragma once

#include <stddef.h>

/* bytes (at least 1) of memory on a 1024-byte boundary, or NULL when the machine's
 * available memory does not hold them.  Not cleared. */
void *memory_new(size_t bytes);
void memory_free(void *p);

size_t memory_available(void);  /* bytes that may be allocated now */

/* Most bytes of memory_new() in use at once since memory_peak_reset().  It counts what was
 * asked for: the resident size of the process would miss what a block takes from pages that
 * an earlier one has left, and include the program's own pages on first use. */
void memory_peak_reset(void);
size_t memory_peak(void);

/* calloc that ends the program with a message instead of returning NULL.  Only for what
 * the harness needs itself; a variant's memory comes from memory_new(). */
void *xcalloc(size_t count, size_t size);
