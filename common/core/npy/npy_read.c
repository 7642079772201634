/* npy_read.c: reads NumPy's .npy files and trusts nothing in them.
 *
 *     "\x93NUMPY" major minor length header data
 *
 * length is the number of bytes of header: 2 bytes in version 1, 4 in versions 2 and 3,
 * little endian.  The header is a Python dictionary with the keys 'descr' (the type: '<f4'),
 * 'fortran_order' (True, False) and 'shape' (a tuple).  NumPy enhancement proposal 1 describes the
 * format. */
#include <errno.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "npy/npy.h"
#include "problem/host_memory.h"

enum { HEADER_CAP = 65536 }; /* bytes; NumPy itself refuses more than 10000 */

/* --- The header. --- */

const char *npy_error(const char *format, ...)
{
    static _Thread_local char text[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

/* What follows a key of the header, the bracketed part of the pattern, into text. */
static int find(const char *header, const char *pattern, char *text, size_t size)
{
    regex_t compiled;
    regmatch_t found[2];
    if (regcomp(&compiled, pattern, REG_EXTENDED)) return 0;
    int is_there = !regexec(&compiled, header, 2, found, 0);
    regfree(&compiled);
    if (is_there)
        snprintf(text, size, "%.*s", (int)(found[1].rm_eo - found[1].rm_so), header + found[1].rm_so);
    return is_there;
}

/* '<f2', '>f4', '=f8': byte order, kind, bytes. */
static const char *read_descr(const char *name, const char *d, int integers, struct npy *out)
{
    if (strlen(d) != 3 || !strchr("<>=", d[0]) || d[1] != (integers ? 'i' : 'f') ||
        !strchr(integers ? "48" : "248", d[2]))
        return npy_error("%s: elements are '%s'; %s is needed, for example "
                         "numpy.save(file, a.astype('%s'))", name, d,
                         integers ? "int32" : "float16, float32 or float64",
                         integers ? "i4" : "f4");
    out->itemsize = (size_t)(d[2] - '0');
    out->was_big_endian = d[0] == '>' || (d[0] == '=' && IS_BIG_ENDIAN);
    return NULL;
}

/* The header of the file of that name into shape, itemsize, was_big_endian and was_fortran. */
#define KEY(name) "['\"]" name "['\"][ \t\n]*:[ \t\n]*"
static const char *read_header(const char *name, const char *text, int integers, struct npy *out)
{
    char descr[32], order[8], shape[1024];
    int ok = find(text, KEY("descr") "['\"]([^'\"]*)['\"]", descr, sizeof descr) &&
             find(text, KEY("fortran_order") "(True|False)[^a-z]", order, sizeof order) &&
             find(text, KEY("shape") "[(]( *([0-9]+( *, *[0-9]+)* *,?)?) *[)]", shape, sizeof shape);
    errno = 0;
    for (char *at = shape, *end; ok && (at += strspn(at, " ,"), *at); at = end) {
        unsigned long long n = strtoull(at, &end, 10);
        ok = !errno && out->ndim < NPY_MAX_DIMS;
        if (ok) out->shape[out->ndim++] = n;
    }
    if (!ok)
        return npy_error("%s: header is wrong; numpy.save writes {'descr': '<f4', 'fortran_order': "
                         "False, 'shape': (2, 3), }, of at most %d dimensions", name, NPY_MAX_DIMS);
    out->was_fortran = *order == 'T';
    return read_descr(name, descr, integers, out);
}

/* --- The file. --- */

/* An open file, and what is wanted of it. */
struct source {
    const char *name;
    FILE *file;
    size_t size;         /* bytes of it */
    int integers;        /* int32 or int64 is wanted, not floats */
};

/* Version and length of the header, in front of it. */
static const char *read_prefix(struct source *s, size_t *length)
{
    unsigned char p[12] = {0};
    size_t n = fread(p, 1, 10, s->file);
    if (ferror(s->file))
        return npy_error("%s: cannot be read (%s)", s->name, strerror(errno));
    if (n >= 2 && !memcmp(p, "PK", 2))
        return npy_error("%s: is a zip archive (.npz, .pt?); one array saved by numpy.save is "
                         "needed", s->name);
    if (memcmp(p, "\x93NUMPY", n < 6 ? n : 6))
        return npy_error("%s: is not a .npy file; one saved by numpy.save is needed", s->name);
    if (n < 10)
        return npy_error("%s: has %zu bytes, the shortest .npy file more than 10", s->name, n);
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return npy_error("%s: .npy format version %d.%d; 1.0, 2.0 and 3.0 exist", s->name, p[6],
                         p[7]);
    if (p[6] > 1 && fread(p + 10, 1, 2, s->file) < 2)
        return npy_error("%s: ends before its header", s->name);
    *length = p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (*length <= HEADER_CAP) return NULL;
    return npy_error("%s: header of %zu bytes; at most %d are accepted", s->name, *length,
                     HEADER_CAP);
}

/* The product of the shape.  The overflow check passes over zeros, so that every product of
 * some of the dimensions fits a size_t. */
static const char *count_elements(const struct source *s, struct npy *out)
{
    size_t product = 1;
    out->count = 1;
    for (size_t t = 0; t < out->ndim; t++) {
        size_t n = out->shape[t];
        if (n && product > (size_t)PTRDIFF_MAX / 8 / n)
            return npy_error("%s: shape has more elements than memory has addresses", s->name);
        product *= n ? n : 1;
        out->count *= n;
    }
    return NULL;
}

static const char *no_memory(const struct source *s, size_t bytes)
{
    return npy_error("%s: needs %.1f GiB of memory, more than there is", s->name,
                     (double)bytes / (1 << 30));
}

/* The data, all that follows in the file. */
static const char *get_all(struct source *s, struct npy *a)
{
    size_t bytes = a->count * a->itemsize, there = s->size - (size_t)ftello(s->file);
    if (bytes != there)
        return npy_error("%s: shape needs %zu bytes of data, the file has %zu%s", s->name, bytes,
                         there, there < bytes ? " (cut off?)" : " (more than one array?)");
    a->data = bytes < memory_available() ? malloc(bytes + 1) : NULL;
    if (!a->data) return no_memory(s, bytes);
    if (fread(a->data, 1, bytes, s->file) == bytes) return NULL;
    return npy_error("%s: cannot be read (%s)", s->name, strerror(errno));
}

/* An element of 8 bytes as one of 4.  NULL, or why it does not fit. */
static const char *narrow(const struct source *s, struct npy *a, size_t i, void *element)
{
    if (s->integers) {
        int64_t wide;
        memcpy(&wide, element, 8);
        int32_t x = (int32_t)wide;
        memcpy(element, &x, 4);
        return x == wide ? NULL : npy_error("%s: element %zu is %lld, which is no int32", s->name,
                                            i, (long long)wide);
    }
    double wide;
    memcpy(&wide, element, 8);
    float x = (float)wide;
    a->n_overflowed += isfinite(wide) && !isfinite(x);
    memcpy(element, &x, 4);
    return NULL;
}

/* Swaps bytes, makes 8 of them 4, and turns columns into rows, where that is needed: then into
 * new memory.  stride[t] is the distance of neighbours along dimension t in the file. */
static const char *make_native(const struct source *s, struct npy *a)
{
    int swap = a->was_big_endian != IS_BIG_ENDIAN;
    size_t from = a->itemsize, to = from < 8 ? from : 4, at = 0, n = 1;
    size_t stride[NPY_MAX_DIMS], index[NPY_MAX_DIMS] = {0};
    const char *error = NULL;
    if (!swap && from == to && !a->was_fortran) return NULL;
    char *data = a->count * to < memory_available() ? malloc(a->count * to + 1) : NULL;
    if (!data) return no_memory(s, a->count * to);
    for (size_t k = 0; k < a->ndim; k++) {
        size_t t = a->was_fortran ? k : a->ndim - 1 - k;
        stride[t] = n, n *= a->shape[t];
    }
    for (size_t i = 0; i < a->count && !error; i++) {
        unsigned char element[8];
        for (size_t b = 0; b < from; b++)
            element[b] = ((unsigned char *)a->data)[at * from + (swap ? from - 1 - b : b)];
        if (from == 8) error = narrow(s, a, i, element);
        memcpy(data + i * to, element, to);
        for (size_t t = a->ndim; t-- > 0;) {
            at += stride[t];
            if (++index[t] < a->shape[t]) break;
            at -= stride[t] * a->shape[t];
            index[t] = 0;
        }
    }
    free(a->data);
    a->data = data;
    return error;
}

static const char *read_source(struct source *s, struct npy *a)
{
    size_t length = 0;
    const char *error = read_prefix(s, &length);
    if (error) return error;
    char *text = malloc(length + 1);
    size_t n = text ? fread(text, 1, length, s->file) : 0;
    if (n < length)
        error = npy_error("%s: ends inside its header (%zu of %zu bytes; cut off?)", s->name, n,
                          length);
    else text[length] = 0, error = read_header(s->name, text, s->integers, a);
    free(text);
    if (!error) error = count_elements(s, a);
    if (!error) error = get_all(s, a);
    if (!error) error = make_native(s, a);
    a->dtype = a->itemsize == 2 ? F16 : F32;
    a->is_int = s->integers;
    a->was_f64 = a->itemsize == 8 && !s->integers;
    return error;
}

const char *npy_read(const char *path, int integers, struct npy *out)
{
    struct stat about = {0};
    struct source s = {.name = *path ? path : "''", .integers = integers,
                       .file = fopen(path, "rbe")};
    const char *error = NULL;
    *out = (struct npy){0};
    if (!s.file || fstat(fileno(s.file), &about))
        error = npy_error("%s: cannot be opened (%s); the name of a .npy file is needed", s.name,
                          strerror(errno));
    else if (!S_ISREG(about.st_mode))
        error = npy_error("%s: is %s; a .npy file is needed", s.name,
                          S_ISDIR(about.st_mode) ? "a directory" : "a pipe or device");
    s.size = (size_t)about.st_size;
    if (!error) error = read_source(&s, out);
    if (s.file) fclose(s.file);
    if (error) npy_free(out);
    return error;
}

void npy_free(struct npy *a)
{
    free(a->data);
    memset(a, 0, sizeof *a);
}
