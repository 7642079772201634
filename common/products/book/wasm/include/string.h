/* string.h for a WebAssembly module without a C library. */
#ifndef BOOK_STRING_H
#define BOOK_STRING_H

#include <stddef.h>

#define memcpy(to, from, n) __builtin_memcpy(to, from, n)
void *memset(void *to, int byte, size_t n);

#endif
