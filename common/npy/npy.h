/* npy.h: NumPy's .npy files, strictly read and atomically written.
 *
 * Every function that can fail returns NULL, or one line of text without newline that
 * names the file, what is wrong and what would be right.  The text lives until the next
 * call from the same thread. */
#ifndef NPY_H
#define NPY_H

#include "harness.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPY_MAX_DIMS 32

/* Formats such a line, printf style; control characters (of file names, of header text)
 * become '?'. */
const char *npy_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* An array in memory: row-major, native byte order, whatever the file had. */
struct npy {
    enum dtype dtype;              /* F32: data is float; F16: uint16_t (half.h) */
    size_t ndim, shape[NPY_MAX_DIMS];
    size_t count;                  /* elements: the product of shape, 1 when ndim = 0 */
    void *data;                    /* npy_free() frees it */
    int version;                   /* of the format: 1, 2 or 3 */
    int is_int;                    /* npy_read_ints: data is int32_t */
    int was_f64;                   /* the file holds f64; rounded to f32 */
    size_t n_overflowed;           /* finite f64 that became an infinite f32 */
    int was_big_endian, was_fortran;
    size_t rows_there;             /* npy_read_rows: the file's last but one dimension */
};

/* Reads the array in the file (or pipe) path: f16, f32 or f64 in either byte order, C or
 * Fortran order, format versions 1 to 3.  Any failure is the input's fault (exit 2) and
 * leaves *out empty. */
const char *npy_read(const char *path, struct npy *out);

/* The same for whole numbers, int32 or int64 in the file, int32_t in memory.  One that does
 * not fit is a failure. */
const char *npy_read_ints(const char *path, struct npy *out);

/* The same for rows first .. end - 1 of the last but one dimension alone: what lies between
 * is not read.  Needs a regular file in C order.  With first = end = 0 only the header is
 * read: shape has 0 rows then, `rows_there` how many the file has. */
const char *npy_read_rows(const char *path, size_t first, size_t end, struct npy *out);

/* The same for n_bytes of file contents in memory; name is what messages call it. */
const char *npy_parse(const char *name, const void *bytes, size_t n_bytes,
                      struct npy *out);

/* The elements of a as floats, into to [count]. */
void npy_widen(const struct npy *a, float *to);

void npy_free(struct npy *a);      /* also of an empty one */

/* "[2, 3, 64] f32" of an array, for messages; lives until the fourth next call. */
const char *npy_describe(const struct npy *a);

/* One output file.  Its life: begin, commit; or begin, abort.
 *
 *     struct npy_writer w[2];
 *     npy_writer_begin(&w[0], "o.npy");    before the work: can it be written at all?
 *     npy_writer_begin(&w[1], "lse.npy");
 *     ... compute ...
 *     npy_writer_set(&w[0], 2, shape, o);
 *     npy_writer_set(&w[1], 1, shape, lse);
 *     npy_writer_commit(w, 2);             after it: all appear, or none */
struct npy_writer {
    const char *path;              /* as the user gave it */
    char *target, *temporary;      /* the file behind path; what becomes it, or NULL */
    int mode;                      /* permissions to keep, -1 for a new file */
    int direct;                    /* a device or pipe: written without a temporary */
    size_t ndim, shape[NPY_MAX_DIMS];
    const float *data;             /* everything, or NULL: */
    size_t (*next)(void *context, const float **data); /* slice by slice */
    void *context;
};

/* Resolves path and makes sure that a file can be created beside it; leaves nothing
 * behind, so that an interrupted computation does not either.  A failure is the path's fault
 * (exit 2). */
const char *npy_writer_begin(struct npy_writer *w, const char *path);

/* What to write: data (the product of shape) is not copied. */
void npy_writer_set(struct npy_writer *w, size_t ndim, const size_t *shape,
                    const float *data);

/* The same for an array that is never in memory as a whole: next() points *data to the numbers
 * that follow and returns how many, 0 at the end. */
void npy_writer_stream(struct npy_writer *w, size_t ndim, const size_t *shape,
                       size_t (*next)(void *context, const float **data), void *context);

/* Writes all n files as f32, version 1.0, each to a temporary beside its target, and when
 * every one is complete renames them.  On failure (disk full: exit 1) removes the temporaries
 * and leaves the old files.  Frees the writers in any case. */
const char *npy_writer_commit(struct npy_writer *w, size_t n);

void npy_writer_abort(struct npy_writer *w, size_t n); /* frees n begun writers */

/* The three in one. */
const char *npy_write_f32(const char *path, size_t ndim, const size_t *shape,
                          const float *data);

#ifdef __cplusplus
}
#endif
#endif
