/* npy.h: NumPy's .npy files, strictly read and atomically written.
 *
 * Every function that can fail returns NULL, or one line of text that names the file, what is
 * wrong and what would be right.  File names and header text stand in it as they are.  It lives
 * until the next call from the same thread. */
#pragma once

#include "harness.h"

#define NPY_MAX_DIMS 32
enum { IS_BIG_ENDIAN = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ };

/* An array in memory: row-major, native byte order, whatever the file had. */
struct npy {
    enum dtype dtype;              /* F32: data is float; F16: uint16_t (half.h) */
    size_t ndim, shape[NPY_MAX_DIMS];
    size_t count;                  /* elements: the product of shape, 1 when ndim = 0 */
    void *data;                    /* npy_free() frees it */
    int is_int;                    /* data is int32_t */
    int was_f64;                   /* the file holds f64; rounded to f32 */
    size_t n_overflowed;           /* finite f64 that became an infinite f32 */
    int was_big_endian, was_fortran;
    size_t itemsize;               /* bytes of an element of the file */
};

/* Reads the array in the file path: f16, f32 or f64 in either byte order, C or
 * Fortran order, format versions 1 to 3.  Any failure is the input's fault (exit 2) and
 * leaves *out empty.
 *   integers  int32 or int64 in the file instead, int32_t in memory; one that does not fit is
 *             a failure */
const char *npy_read(const char *path, int integers, struct npy *out);

void npy_free(struct npy *a);      /* also of an empty one */

/* Formats a line, printf style. */
const char *npy_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One output file.  Its life: begin, before the work: can it be written at all?  Then what to
 * write is filled in, and commit; or abort. */
struct npy_writer {
    const char *path;              /* as the user gave it; NULL: not begun */
    char *target, *temporary;      /* the file behind path; what becomes it, or NULL: */
    int mode;                      /* permissions to keep, -1 for a new file */
    /* To be filled in. */
    size_t ndim, shape[NPY_MAX_DIMS];
    const float *data;             /* (the product of shape) */
};

/* Resolves path and makes sure that a file can be created beside it; leaves nothing
 * behind, so that an interrupted computation does not either.  A failure is the path's fault
 * (exit 2).  A device or pipe is written without a temporary. */
const char *npy_writer_begin(struct npy_writer *w, const char *path);

/* Writes all of the n files that were begun as f32, version 1.0, each to a temporary beside its
 * target, and when every one is complete renames them.  On failure (disk full: exit 1) removes
 * the temporaries and leaves the old files.  Frees the writers in any case. */
const char *npy_writer_commit(struct npy_writer *w, size_t n);

void npy_writer_abort(struct npy_writer *w, size_t n); /* frees them */
