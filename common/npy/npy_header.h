/* npy_header.h: the text in front of an array: what it says, checked. */
#ifndef NPY_HEADER_H
#define NPY_HEADER_H

#include "npy/npy.h"

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BIG_ENDIAN_HOST 1
#else
#define BIG_ENDIAN_HOST 0
#endif

/* A piece of the header, not ended by a zero. */
struct piece { const char *at; int n; };

/* What the header says. */
struct header {
    struct piece descr;
    int fortran, has_descr, has_fortran, has_shape;
    size_t ndim, shape[NPY_MAX_DIMS];
    size_t itemsize;
    int big_endian;
    int integers;   /* set by the caller: int32 or int64 is wanted, not floats */
};

/* Reads text [length], the header of the file `name`, into *h, whose piece points into it.
 * NULL, or what is wrong. */
const char *header_parse(const char *name, const char *text, size_t length, struct header *h);

/* Elements and bytes of the array.  The overflow check passes over zero dimensions, so
 * that every product of some of the dimensions fits a size_t. */
const char *header_measure(const char *name, const struct header *h, size_t *count,
                           size_t *bytes);

#endif
