/* host_memory.h: host memory that fails early with a reason instead of late with a signal. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>

/* bytes (at least 1) of memory on a 1024-byte boundary, or NULL when the machine's
 * available memory does not hold them.  Not cleared. */
void *memory_new(size_t bytes);
void memory_free(void *p);

/* a * b, or SIZE_MAX when that overflows; SIZE_MAX stays SIZE_MAX. */
size_t size_times(size_t a, size_t b);
size_t size_plus(size_t a, size_t b);

size_t memory_available(void);  /* bytes that may be allocated now */

/* Most bytes of memory_new() in use at once since memory_peak_reset().  It counts what was
 * asked for: the resident size of the process would miss what a block takes from pages that
 * an earlier one has left, and include the program's own pages on first use. */
void memory_peak_reset(void);
size_t memory_peak(void);

#endif
