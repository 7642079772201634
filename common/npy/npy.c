/* npy.c: reads NumPy's .npy files and trusts nothing in them.
 *
 *     "\x93NUMPY" major minor length header data
 *
 * length is the number of bytes of header: 2 bytes in version 1, 4 in versions 2 and 3,
 * little endian.  header is a Python dictionary with exactly the keys 'descr' (the type:
 * '<f4'), 'fortran_order' (True, False) and 'shape' (a tuple).  NumPy enhancement
 * proposal 1 describes the format.
 *
 * Files and bytes in memory go the same way, through struct source (npy_source.h), so that
 * the fuzzer, which knows bytes only, sees all of it but the open(). */
#define _XOPEN_SOURCE 700
#include "npy/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy_header.h"
#include "npy/npy_source.h"
#include "npy/npy_text.h"
#include "problem/half.h"

#define HEADER_CAP 65536   /* bytes; NumPy itself refuses more than 10000 */

const char *npy_error(const char *format, ...)
{
    static _Thread_local char text[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return text;
}

/* Reverses the bytes of each of count elements of size 2, 4 or 8. */
static void swap_bytes(unsigned char *data, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++, data += size)
        for (size_t t = 0; t < size / 2; t++) {
            unsigned char other = data[t];
            data[t] = data[size - 1 - t];
            data[size - 1 - t] = other;
        }
}

/* Rounds count doubles to floats in the same memory.  Returns how many finite ones became
 * infinite. */
static size_t narrow(unsigned char *data, size_t count)
{
    size_t n_overflowed = 0;
    for (size_t i = 0; i < count; i++) {
        double wide;
        memcpy(&wide, data + 8 * i, 8);
        float x = (float)wide;
        if (isinf(x) && !isinf(wide)) n_overflowed++;
        memcpy(data + 4 * i, &x, 4);
    }
    return n_overflowed;
}

/* The same with 64-bit integers.  NULL, or which one is no int32. */
static const char *narrow_integers(const char *name, unsigned char *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t wide;
        memcpy(&wide, data + 8 * i, 8);
        int32_t x = (int32_t)wide;
        if (x != wide)
            return npy_error("%s: element %zu is %lld, which is no int32", name, i,
                             (long long)wide);
        memcpy(data + 4 * i, &x, 4);
    }
    return NULL;
}

/* Copies the column-major array from (shape in h) to row-major to.  stride[t] is the
 * distance in from of neighbours along dimension t. */
static void transpose(const unsigned char *from, unsigned char *to,
                      const struct header *h, size_t count, size_t size)
{
    size_t stride[NPY_MAX_DIMS], index[NPY_MAX_DIMS] = { 0 }, at = 0;
    for (size_t t = 0, n = 1; t < h->ndim; n *= h->shape[t++]) stride[t] = n;
    for (size_t i = 0; i < count; i++) {
        memcpy(to + i * size, from + at * size, size);
        for (size_t t = h->ndim; t-- > 0;) {
            at += stride[t];
            if (++index[t] < h->shape[t]) break;
            at -= stride[t] * h->shape[t];
            index[t] = 0;
        }
    }
}

/* The data of the array that h describes: native, row-major, f16 or f32. */
static const char *read_array(struct source *s, struct header *h, struct npy *out)
{
    size_t count = 0, bytes = 0, size = h->itemsize;
    unsigned char *data = NULL;
    const char *error = s->rows ? source_rows(s, h, &data) : NULL;
    if (!error) error = header_measure(s->name, h, &count, &bytes);
    if (!error && !s->rows) error = source_data(s, bytes, &data);
    if (error) return error;
    if (h->big_endian != BIG_ENDIAN_HOST) swap_bytes(data, count, size);
    if (size == 8) {
        if (h->integers) error = narrow_integers(s->name, data, count);
        else out->n_overflowed = narrow(data, count);
        if (error) {
            free(data);
            return error;
        }
        unsigned char *smaller = realloc(data, count ? count * 4 : 1);
        if (smaller) data = smaller;
        size = 4;
    }
    if (h->fortran && h->ndim > 1) {
        unsigned char *turned = malloc(count ? count * size : 1);
        if (turned) transpose(data, turned, h, count, size);
        free(data);
        if (!turned)
            return npy_error("%s: no memory to turn Fortran order into C order", s->name);
        data = turned;
    }
    out->dtype = size == 2 ? F16 : F32;
    out->is_int = h->integers;
    out->was_f64 = h->itemsize == 8 && !h->integers;
    out->was_big_endian = h->big_endian;
    out->was_fortran = h->fortran;
    out->rows_there = s->rows_there;
    out->ndim = h->ndim;
    memcpy(out->shape, h->shape, sizeof out->shape);
    out->count = count;
    out->data = data;
    return NULL;
}

/* The fixed part in front of the header: version and length of the header's text. */
static const char *read_prefix(struct source *s, int *version, size_t *length)
{
    unsigned char prefix[12];
    size_t n = source_read(s, prefix, 10);
    if (s->error) return npy_error("%s: cannot be read (%s)", s->name,
                                   strerror(s->error));
    if (n >= 2 && !memcmp(prefix, "PK", 2))
        return npy_error("%s: is a zip archive (.npz, .pt?); one array saved by "
                         "numpy.save is needed", s->name);
    if (memcmp(prefix, "\x93NUMPY", n < 6 ? n : 6))
        return npy_error("%s: is not a .npy file; one saved by numpy.save is needed",
                         s->name);
    if (n < 10)
        return npy_error("%s: has %zu bytes, the shortest .npy file more than 10",
                         s->name, n);
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0)
        return npy_error("%s: .npy format version %d.%d; 1.0, 2.0 and 3.0 exist", s->name,
                         prefix[6], prefix[7]);
    *version = prefix[6];
    *length = prefix[8] | (size_t)prefix[9] << 8;
    if (*version == 1) return NULL;
    if (source_read(s, prefix + 10, 2) < 2)
        return npy_error("%s: ends before its header", s->name);
    *length |= (size_t)prefix[10] << 16 | (size_t)prefix[11] << 24;
    return NULL;
}

static const char *read_source(struct source *s, struct npy *out)
{
    struct header h = { .ndim = 0, .integers = s->integers };
    int version = 0;
    size_t length = 0;
    memset(out, 0, sizeof *out);
    const char *error = read_prefix(s, &version, &length);
    if (error) return error;
    if (length > HEADER_CAP)
        return npy_error("%s: header of %zu bytes; at most %d are accepted", s->name,
                         length, HEADER_CAP);
    char *text = malloc(length + 1);
    if (!text) return npy_error("%s: no memory for the header", s->name);
    size_t n = source_read(s, text, length);
    if (n < length)
        error = npy_error("%s: ends inside its header (%zu of %zu bytes; cut off?)",
                          s->name, n, length);
    if (!error) error = header_parse(s->name, text, length, &h);
    if (!error) error = read_array(s, &h, out);
    if (error) memset(out, 0, sizeof *out);
    else out->version = version;
    free(text);
    return error;
}

const char *npy_parse(const char *name, const void *bytes, size_t n_bytes,
                      struct npy *out)
{
    struct source s = { .name = name, .fd = -1, .bytes = bytes, .left = n_bytes };
    return read_source(&s, out);
}

static const char *read_path(const char *path, const struct rows *rows, int integers,
                             struct npy *out)
{
    struct stat about;
    struct source s = { .name = *path ? path : "''", .left = SIZE_MAX, .rows = rows,
                        .integers = integers };
    memset(out, 0, sizeof *out);
    s.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s.fd < 0 || fstat(s.fd, &about)) {
        const char *error = npy_error("%s: cannot be opened (%s); the name of a .npy "
                                      "file is needed", s.name, strerror(errno));
        if (s.fd >= 0) close(s.fd);
        return error;
    }
    const char *error = NULL;
    if (S_ISDIR(about.st_mode))
        error = npy_error("%s: is a directory; a .npy file is needed", path);
    if (S_ISREG(about.st_mode)) { /* standard input may have been read in part */
        off_t at = lseek(s.fd, 0, SEEK_CUR);
        s.left = at < about.st_size ? (size_t)(about.st_size - (at < 0 ? 0 : at)) : 0;
    }
    if (!error) error = read_source(&s, out);
    close(s.fd);
    return error;
}

const char *npy_read(const char *path, struct npy *out)
{
    return read_path(path, NULL, 0, out);
}

const char *npy_read_ints(const char *path, struct npy *out)
{
    return read_path(path, NULL, 1, out);
}

const char *npy_read_rows(const char *path, size_t first, size_t end, struct npy *out)
{
    return read_path(path, &(struct rows){ first, end }, 0, out);
}

void npy_widen(const struct npy *a, float *to)
{
    for (size_t i = 0; i < a->count; i++)
        to[i] = a->dtype == F32 ? ((const float *)a->data)[i]
                                : half_to_float(((const uint16_t *)a->data)[i]);
}

void npy_free(struct npy *a)
{
    free(a->data);
    memset(a, 0, sizeof *a);
}

const char *npy_describe(const struct npy *a)
{
    static _Thread_local char text[4][NPY_MAX_DIMS * 22 + 32];
    static _Thread_local int next;
    char *t = text[next = (next + 1) % 4];
    size_t n = (size_t)sprintf(t, "[");
    for (size_t i = 0; i < a->ndim; i++)
        n += (size_t)sprintf(t + n, "%s%zu", i ? ", " : "", a->shape[i]);
    sprintf(t + n, "] %s", a->is_int ? "i32" : a->was_f64 ? "f64" : a->dtype == F16 ? "f16" : "f32");
    return t;
}
