/* npy_read.c: reads NumPy's .npy files and trusts nothing in them.
 *
 *     "\x93NUMPY" major minor length header data
 *
 * length is the number of bytes of header: 2 bytes in version 1, 4 in versions 2 and 3,
 * little endian.  header is a Python dictionary with exactly the keys 'descr' (the type:
 * '<f4'), 'fortran_order' (True, False) and 'shape' (a tuple).  NumPy enhancement
 * proposal 1 describes the format. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy/npy.h"
#include "problem/half.h"
#include "problem/host_memory.h"

enum { HEADER_CAP = 65536 };     /* bytes; NumPy itself refuses more than 10000 */
#define CHUNK ((size_t)64 << 20) /* bytes by which an array from a pipe grows */

const char *npy_error(const char *format, ...)
{
    static _Thread_local char text[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c)) *c = '?';
    return text;
}

/* An open file (fd >= 0) or bytes in memory, and what is wanted of it. */
struct source {
    const char *name;
    int fd;
    const unsigned char *bytes;
    size_t left;         /* bytes not read yet; SIZE_MAX: nobody knows (a pipe) */
    int integers;        /* int32 or int64 is wanted, not floats */
    const size_t *rows;  /* only rows [0] to [1] - 1 of the last but one dimension, or NULL */
    size_t itemsize;     /* the header says: bytes of an element */
};

/* Reads up to n bytes; returns how many there were. */
static size_t get(struct source *s, void *to, size_t n)
{
    size_t done = 0;
    ssize_t got = 1;
    if (s->fd < 0) {
        done = n < s->left ? n : s->left;
        if (done) memcpy(to, s->bytes, done);
        s->bytes += done;
    }
    while (s->fd >= 0 && done < n && got > 0) {
        got = read(s->fd, (char *)to + done, n - done < CHUNK ? n - done : CHUNK);
        if (got < 0 && errno == EINTR) got = 1;
        else if (got > 0) done += (size_t)got;
    }
    if (s->left != SIZE_MAX) s->left -= done < s->left ? done : s->left;
    return done;
}

/* ---- The header. ---- */

struct cursor { const char *name, *at, *end; };

/* Skips space; if the next character is wanted, consumes it and returns 1. */
static int take(struct cursor *c, char wanted)
{
    while (c->at < c->end && memchr(" \t\n\r", *c->at, 4)) c->at++;
    if (c->at == c->end || *c->at != wanted) return 0;
    c->at++;
    return 1;
}

/* What comes next is not what should be there. */
static const char *instead_of(struct cursor *c, const char *what)
{
    int n = 0;
    take(c, 0);
    while (c->at + n < c->end && n < 24 && c->at[n] != '\n') n++;
    return npy_error("%s: header has '%.*s' where %s should be", c->name, n, c->at, what);
}

/* A word of letters, digits and what else Python puts into names and numbers. */
static size_t take_word(struct cursor *c, char *word, size_t size)
{
    size_t n = 0;
    take(c, 0);
    while (c->at + n < c->end && (isalnum((unsigned char)c->at[n]) || strchr("_+-.", c->at[n])) &&
           c->at[n] && n + 1 < size)
        n++;
    memcpy(word, c->at, n);
    word[n] = 0;
    c->at += n;
    return n;
}

/* A string in single or double quotes, without escapes. */
static const char *take_string(struct cursor *c, char *text, size_t size)
{
    const char *start = c->at;
    char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : 0;
    size_t n = 0;
    if (!quote) return instead_of(c, "a quoted string");
    while (c->at < c->end && *c->at != quote && *c->at != '\\' && *c->at != '\n' && n + 1 < size)
        text[n++] = *c->at++;
    text[n] = 0;
    if (take(c, quote)) return NULL;
    c->at = start;
    return instead_of(c, "a short string without escapes");
}

/* A tuple of numbers: () or (5,) or (2, 3) or (2, 3,). */
static const char *take_shape(struct cursor *c, struct npy *out)
{
    int comma = 1;
    if (!take(c, '(')) return instead_of(c, "a tuple such as (2, 3)");
    for (out->ndim = 0; !take(c, ')'); comma = take(c, ',')) {
        char word[24], *end;
        const char *start = c->at;
        if (!comma) return instead_of(c, "a comma or a parenthesis");
        if (out->ndim == NPY_MAX_DIMS)
            return npy_error("%s: shape has more than %d dimensions", c->name, NPY_MAX_DIMS);
        size_t n = take_word(c, word, sizeof word);
        errno = 0;
        unsigned long long x = strtoull(word, &end, 10);
        if (n == 0 || !isdigit((unsigned char)word[0]) || *end || (word[0] == '0' && n > 1) ||
            errno || x > PTRDIFF_MAX) {
            c->at = start;
            return instead_of(c, "a number 0, 1, 2, ... that is no larger than memory");
        }
        out->shape[out->ndim++] = (size_t)x;
    }
    return out->ndim == 1 && !comma ? npy_error("%s: shape is a number, not a tuple such as (5,)",
                                                c->name) : NULL;
}

/* '<f2', '>f4', '=f8': byte order, kind, bytes. */
static const char *read_descr(struct source *s, const char *d, struct npy *out)
{
    static const struct { char kind; const char *what; } others[] = {
        {'i', "integers"}, {'u', "integers"}, {'b', "truth values"}, {'c', "complex"},
        {'V', "raw bytes (bfloat16 has no .npy type: save as float32)"},
        {'O', "pickled Python objects, which are never loaded"}, {'U', "text"}, {'S', "text"}};
    const int big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    if (strlen(d) == 3 && strchr("<>=", d[0]) && d[1] == (s->integers ? 'i' : 'f') &&
        strchr(s->integers ? "48" : "248", d[2])) {
        s->itemsize = (size_t)(d[2] - '0');
        out->was_big_endian = d[0] == '>' || (d[0] == '=' && big);
        return NULL;
    }
    if (s->integers)
        return npy_error("%s: elements are '%s'; int32 is needed, for example "
                         "numpy.save(file, a.astype('i4'))", s->name, d);
    const char *what = "of a type that cannot be read";
    for (size_t i = 0; d[0] && i < sizeof others / sizeof *others; i++)
        if (d[1] == others[i].kind) what = others[i].what;
    return npy_error("%s: elements are %s ('%s'); float16, float32 or float64 is needed, for "
                     "example numpy.save(file, a.astype('f4'))", s->name, what, d);
}

/* The whole dictionary, and nothing but space after it. */
static const char *read_header(struct source *s, const char *text, size_t n, struct npy *out)
{
    static const char *const keys[] = {"descr", "shape", "fortran_order"};
    struct cursor c = {s->name, text, text + n};
    char key[32], word[32], descr[32] = "";
    int seen[3] = {0}, comma = 1;
    if (!take(&c, '{')) return instead_of(&c, "'{'");
    for (; !take(&c, '}'); comma = take(&c, ',')) {
        int which = 0;
        if (!comma) return instead_of(&c, "',' or '}'");
        const char *error = take_string(&c, key, sizeof key);
        if (error) return error;
        while (which < 3 && strcmp(key, keys[which])) which++;
        if (which == 3 || seen[which]++)
            return npy_error("%s: header has the key '%s'%s; descr, fortran_order and shape "
                             "belong there once", s->name, key, which < 3 ? " twice" : "");
        if (!take(&c, ':')) return instead_of(&c, "':'");
        if (which == 0 && take(&c, '['))
            return npy_error("%s: elements are records; save one field of them", s->name);
        if (which == 0) error = take_string(&c, descr, sizeof descr);
        if (which == 1) error = take_shape(&c, out);
        if (which == 2) {
            const char *start = c.at;
            take_word(&c, word, sizeof word);
            out->was_fortran = !strcmp(word, "True");
            if (!out->was_fortran && strcmp(word, "False")) {
                c.at = start;
                error = instead_of(&c, "True or False");
            }
        }
        if (error) return error;
    }
    take(&c, 0);
    if (c.at < c.end) return instead_of(&c, "nothing, after '}',");
    for (int i = 0; i < 3; i++)
        if (!seen[i]) return npy_error("%s: header lacks the key '%s'", s->name, keys[i]);
    return read_descr(s, descr, out);
}

/* ---- The data. ---- */

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

static const char *too_few(const struct source *s, size_t needed, size_t there)
{
    return npy_error("%s: shape needs %zu bytes of data, the file has %zu%s", s->name, needed,
                     there, there < needed ? " (cut off?)" : " (more than one array?)");
}

/* Exactly `bytes` bytes.  Memory grows with what arrives when the size of the source is
 * unknown, so that a lying header costs nothing. */
static const char *get_all(struct source *s, size_t bytes, unsigned char **out)
{
    size_t done = 0, room = 0, there = bytes < CHUNK ? SIZE_MAX : memory_available();
    unsigned char beyond;
    if (s->left != SIZE_MAX && s->left != bytes) return too_few(s, bytes, s->left);
    while (done < bytes || !*out) {
        size_t more = room ? room : CHUNK;
        room = s->left != SIZE_MAX || bytes - room < more ? bytes : room + more;
        unsigned char *bigger = room > there ? NULL : realloc(*out, room ? room : 1);
        if (!bigger)
            return npy_error("%s: needs %.1f GiB of memory, more than there is", s->name,
                             (double)bytes / (1 << 30));
        *out = bigger;
        done += get(s, *out + done, room - done);
        if (done < room) return too_few(s, bytes, done);
    }
    return get(s, &beyond, 1) ? too_few(s, bytes, bytes + 1) : NULL;
}

/* The wanted rows alone, for every index of the dimensions before. */
static const char *get_rows(struct source *s, struct npy *a, unsigned char **out)
{
    size_t first = s->rows[0], end = s->rows[1], n = a->ndim < 2 ? 0 : a->shape[a->ndim - 2];
    size_t bytes = a->count * s->itemsize, done = 0;
    off_t at = lseek(s->fd, 0, SEEK_CUR);
    if (a->ndim < 2 || end > n || first > end)
        return npy_error("%s: has no rows %zu to %zu", s->name, first, end);
    if (a->was_fortran || at < 0 || s->left == SIZE_MAX)
        return npy_error("%s: is %s; to read a part of it, a file in C order is needed", s->name,
                         a->was_fortran ? "in Fortran order" : "no regular file");
    if (s->left != bytes) return too_few(s, bytes, s->left);
    size_t row = a->count ? a->shape[a->ndim - 1] * s->itemsize : 0;
    size_t planes = row ? bytes / row / n : 0, part = (end - first) * row;
    a->shape[a->ndim - 2] = end - first;
    a->count = planes * (end - first) * (row / s->itemsize);
    a->rows_there = n;
    *out = malloc(planes * part + 1);
    if (!*out) return npy_error("%s: no memory for rows %zu to %zu", s->name, first, end);
    while (done < planes * part) {
        off_t from = at + (off_t)(done / part * n * row + first * row + done % part);
        ssize_t got = pread(s->fd, *out + done, part - done % part, from);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return npy_error("%s: %s", s->name, got ? strerror(errno) : "cut off?");
        done += (size_t)got;
    }
    return NULL;
}

/* In the same memory: bytes swapped, 8 bytes made 4.  NULL, or which integer is too large. */
static const char *make_native(const struct source *s, struct npy *a, unsigned char *data)
{
    const int big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    size_t size = s->itemsize;
    for (size_t i = 0; i < a->count; i++) {
        unsigned char element[8], *from = data + size * i;
        for (size_t t = 0; t < size; t++)
            element[t] = from[a->was_big_endian != big ? size - 1 - t : t];
        if (size < 8) {
            memcpy(from, element, size);
        } else if (s->integers) {
            int64_t wide;
            memcpy(&wide, element, 8);
            int32_t x = (int32_t)wide;
            if (x != wide)
                return npy_error("%s: element %zu is %lld, which is no int32", s->name, i,
                                 (long long)wide);
            memcpy(data + 4 * i, &x, 4);
        } else {
            double wide;
            memcpy(&wide, element, 8);
            float x = (float)wide;
            a->n_overflowed += x - x != 0 && wide - wide == 0;
            memcpy(data + 4 * i, &x, 4);
        }
    }
    return NULL;
}

/* Column-major to row-major; NULL without memory.  stride[t] is the distance of neighbours
 * along dimension t in the file. */
static unsigned char *turned(const struct npy *a, const unsigned char *from, size_t size)
{
    size_t stride[NPY_MAX_DIMS], index[NPY_MAX_DIMS] = {0}, at = 0;
    unsigned char *to = malloc(a->count * size + 1);
    for (size_t t = 0, n = 1; t < a->ndim; n *= a->shape[t++]) stride[t] = n;
    for (size_t i = 0; to && i < a->count; i++) {
        memcpy(to + i * size, from + at * size, size);
        for (size_t t = a->ndim; t-- > 0;) {
            at += stride[t];
            if (++index[t] < a->shape[t]) break;
            at -= stride[t] * a->shape[t];
            index[t] = 0;
        }
    }
    return to;
}

static const char *read_array(struct source *s, struct npy *a, unsigned char **data)
{
    const char *error = count_elements(s, a);
    size_t size = s->itemsize < 8 ? s->itemsize : 4;
    if (!error) error = s->rows ? get_rows(s, a, data) : get_all(s, a->count * s->itemsize, data);
    if (!error && (s->itemsize == 8 || a->was_big_endian != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)))
        error = make_native(s, a, *data);
    if (error) return error;
    if (a->was_fortran && a->ndim > 1) {
        unsigned char *other = turned(a, *data, size);
        if (!other) return npy_error("%s: no memory to turn Fortran order into C order", s->name);
        free(*data);
        *data = other;
    }
    a->dtype = size == 2 ? F16 : F32;
    a->is_int = s->integers;
    a->was_f64 = s->itemsize == 8 && !s->integers;
    return NULL;
}

/* ---- The whole file. ---- */

/* Version and length of the header, in front of it. */
static const char *read_prefix(struct source *s, int *version, size_t *length)
{
    unsigned char p[12] = {0};
    errno = 0;
    size_t n = get(s, p, 10);
    if (n < 10 && errno && s->fd >= 0)
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
    if (p[6] > 1 && get(s, p + 10, 2) < 2)
        return npy_error("%s: ends before its header", s->name);
    *version = p[6];
    *length = p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (*length <= HEADER_CAP) return NULL;
    return npy_error("%s: header of %zu bytes; at most %d are accepted", s->name, *length,
                     HEADER_CAP);
}

static const char *read_source(struct source *s, struct npy *out)
{
    struct npy a = {0};
    size_t length = 0;
    unsigned char *data = NULL;
    const char *error = read_prefix(s, &a.version, &length);
    char *text = error ? NULL : malloc(length + 1);
    if (!error && !text) error = npy_error("%s: no memory for the header", s->name);
    size_t n = error ? 0 : get(s, text, length);
    if (!error && n < length)
        error = npy_error("%s: ends inside its header (%zu of %zu bytes; cut off?)", s->name, n,
                          length);
    if (!error) error = read_header(s, text, length, &a);
    if (!error) error = read_array(s, &a, &data);
    free(text);
    *out = error ? (struct npy){0} : a;
    if (error) free(data);
    else out->data = data;
    return error;
}

const char *npy_parse(const char *name, const void *bytes, size_t n_bytes, struct npy *out)
{
    struct source s = {.name = name, .fd = -1, .bytes = bytes, .left = n_bytes};
    return read_source(&s, out);
}

static const char *read_path(const char *path, const size_t *rows, int integers, struct npy *out)
{
    struct stat about;
    struct source s = {.name = *path ? path : "''", .left = SIZE_MAX, .rows = rows,
                       .integers = integers};
    const char *error = NULL;
    *out = (struct npy){0};
    s.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s.fd < 0 || fstat(s.fd, &about))
        error = npy_error("%s: cannot be opened (%s); the name of a .npy file is needed", s.name,
                          strerror(errno));
    else if (S_ISDIR(about.st_mode))
        error = npy_error("%s: is a directory; a .npy file is needed", path);
    else if (S_ISREG(about.st_mode)) { /* standard input may have been read in part */
        off_t at = lseek(s.fd, 0, SEEK_CUR);
        s.left = at < about.st_size ? (size_t)(about.st_size - (at < 0 ? 0 : at)) : 0;
    }
    if (!error) error = read_source(&s, out);
    if (s.fd >= 0) close(s.fd);
    return error;
}

const char *npy_read(const char *path, struct npy *out) { return read_path(path, NULL, 0, out); }

const char *npy_read_ints(const char *path, struct npy *out)
{
    return read_path(path, NULL, 1, out);
}

const char *npy_read_rows(const char *path, size_t first, size_t end, struct npy *out)
{
    return read_path(path, (const size_t[]){first, end}, 0, out);
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
    sprintf(t + n, "] %s",
            a->is_int ? "i32" : a->was_f64 ? "f64" : a->dtype == F16 ? "f16" : "f32");
    return t;
}
