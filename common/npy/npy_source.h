/* npy_source.h: where the bytes of a .npy file come from: an open file, or memory. */
#ifndef NPY_SOURCE_H
#define NPY_SOURCE_H

#include "npy/npy_header.h"

/* Rows first .. end - 1 of the last but one dimension. */
struct rows { size_t first, end; };

/* fd >= 0: an open file.  Otherwise bytes in memory.
 *   left   bytes not read yet; SIZE_MAX when nobody knows (a pipe) */
struct source {
    const char *name;
    int fd;
    const unsigned char *bytes;
    size_t left;
    int error; /* errno of a failed read, or 0 */
    const struct rows *rows; /* only these are wanted, or NULL */
    size_t rows_there;       /* of how many */
    int integers;            /* int32 or int64 is wanted, not floats */
};

/* Reads up to n bytes into to; returns how many there were. */
size_t source_read(struct source *s, void *to, size_t n);

/* Reads exactly bytes of data into new memory *out.  Memory grows with what arrives when
 * the source's size is unknown, so that a lying header costs nothing. */
const char *source_data(struct source *s, size_t bytes, unsigned char **out);

/* Reads s->rows alone, for every index of the dimensions before: the data begins where the
 * file has been read to.  h becomes the header of an array of just these rows. */
const char *source_rows(struct source *s, struct header *h, unsigned char **out);

#endif
