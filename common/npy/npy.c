/* npy.c: reads NumPy's .npy files and trusts nothing in them.
 *
 *     "\x93NUMPY" major minor length header data
 *
 * length is the number of bytes of header: 2 bytes in version 1, 4 in versions 2 and 3,
 * little endian.  header is a Python dictionary with exactly the keys 'descr' (the type:
 * '<f4'), 'fortran_order' (True, False) and 'shape' (a tuple).  NumPy enhancement
 * proposal 1 describes the format.
 *
 * Files and bytes in memory go the same way, through struct source, so that the fuzzer,
 * which knows bytes only, sees all of it but the open(). */
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

#include "problem/half.h"
#include "npy/npy_text.h"

#define HEADER_CAP 65536   /* bytes; NumPy itself refuses more than 10000 */
#define CHUNK ((size_t)64 << 20) /* bytes by which an array of unknown size grows */

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BIG_ENDIAN_HOST 1
#else
#define BIG_ENDIAN_HOST 0
#endif

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

/* fd >= 0: an open file.  Otherwise bytes in memory.
 *   left   bytes not read yet; SIZE_MAX when nobody knows (a pipe) */
struct source {
    const char *name;
    int fd;
    const unsigned char *bytes;
    size_t left;
    int error; /* errno of a failed read, or 0 */
};

/* Reads up to n bytes into to; returns how many there were. */
static size_t source_read(struct source *s, void *to, size_t n)
{
    size_t done = 0;
    if (s->fd < 0) {
        done = n < s->left ? n : s->left;
        if (done) memcpy(to, s->bytes, done);
        s->bytes += done;
    }
    while (s->fd >= 0 && done < n) {
        size_t want = n - done < CHUNK ? n - done : CHUNK;
        ssize_t got = read(s->fd, (char *)to + done, want);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) s->error = errno;
        if (got <= 0) break;
        done += (size_t)got;
    }
    if (s->left != SIZE_MAX) s->left -= done < s->left ? done : s->left;
    return done;
}

struct cursor { const char *name, *at, *end; };

/* A piece of the header, not ended by a zero. */
struct piece { const char *at; int n; };

/* What the header says. */
struct header {
    struct piece descr;
    int fortran, has_descr, has_fortran, has_shape;
    size_t ndim, shape[NPY_MAX_DIMS];
    size_t itemsize;
    int big_endian;
};

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && memchr(" \t\n\r", *c->at, 4)) c->at++;
}

/* Skips space; if the next character is wanted, consumes it and returns 1. */
static int take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted) return 0;
    c->at++;
    return 1;
}

/* Consumes the word if it comes next and does not go on. */
static int take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return 0;
    if (c->at + n < c->end) {
        char after = c->at[n];
        if ((after >= '0' && after <= '9') || (after >= 'A' && after <= 'Z') ||
            (after >= 'a' && after <= 'z') || after == '_')
            return 0;
    }
    c->at += n;
    return 1;
}

/* What comes next, for messages. */
static struct piece rest(struct cursor *c)
{
    skip_space(c);
    struct piece p = { c->at, 0 };
    while (c->at + p.n < c->end && p.n < 24 && c->at[p.n] != '\n') p.n++;
    return p;
}

/* A string in single or double quotes, without escapes. */
static const char *parse_string(struct cursor *c, struct piece *out)
{
    char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : 0;
    out->at = c->at;
    if (!quote) {
        struct piece r = rest(c);
        return npy_error("%s: header has '%.*s' where a quoted string should be", c->name,
                         r.n, r.at);
    }
    while (c->at < c->end && *c->at != quote && *c->at != '\\' && *c->at != '\n') c->at++;
    if (c->at == c->end || *c->at != quote)
        return npy_error("%s: header has a string that does not end", c->name);
    out->n = (int)(c->at++ - out->at);
    return NULL;
}

/* A decimal number from 0 to PTRDIFF_MAX, without sign or leading zeros. */
static const char *parse_dimension(struct cursor *c, size_t *out)
{
    struct piece r = rest(c);
    const char *start = c->at;
    size_t n = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        size_t digit = (size_t)(*c->at++ - '0');
        if (n > ((size_t)PTRDIFF_MAX - digit) / 10)
            return npy_error("%s: shape has a dimension of '%.*s'; the largest is %td",
                             c->name, r.n, r.at, PTRDIFF_MAX);
        n = n * 10 + digit;
    }
    if (c->at == start || (*start == '0' && c->at - start > 1))
        return npy_error("%s: shape has '%.*s' where a number 0, 1, 2, ... should be",
                         c->name, r.n, r.at);
    *out = n;
    return NULL;
}

/* A tuple of numbers: () or (5,) or (2, 3) or (2, 3,). */
static const char *parse_shape(struct cursor *c, struct header *h)
{
    struct piece r = rest(c);
    int comma = 1;
    if (!take(c, '('))
        return npy_error("%s: shape is '%.*s', not a tuple such as (2, 3)", c->name, r.n,
                         r.at);
    for (h->ndim = 0; !take(c, ')'); comma = take(c, ',')) {
        if (!comma)
            return npy_error("%s: shape '%.*s' lacks a comma or a parenthesis", c->name,
                             r.n, r.at);
        if (h->ndim == NPY_MAX_DIMS)
            return npy_error("%s: shape has more than %d dimensions", c->name,
                             NPY_MAX_DIMS);
        const char *error = parse_dimension(c, &h->shape[h->ndim++]);
        if (error) return error;
    }
    if (h->ndim == 1 && !comma)
        return npy_error("%s: shape '%.*s' is a number, not a tuple such as (5,)",
                         c->name, r.n, r.at);
    return NULL;
}

/* One "'key': value" of the dictionary. */
static const char *parse_entry(struct cursor *c, struct header *h)
{
    struct piece key;
    const char *error = parse_string(c, &key);
    if (error) return error;
    if (!take(c, ':'))
        return npy_error("%s: header lacks ':' after '%.*s'", c->name, key.n, key.at);

    int is_descr = key.n == 5 && !memcmp(key.at, "descr", 5);
    int is_fortran = key.n == 13 && !memcmp(key.at, "fortran_order", 13);
    int is_shape = key.n == 5 && !memcmp(key.at, "shape", 5);
    if ((is_descr && h->has_descr++) || (is_fortran && h->has_fortran++) ||
        (is_shape && h->has_shape++))
        return npy_error("%s: header has the key '%.*s' twice", c->name, key.n, key.at);
    if (is_shape) return parse_shape(c, h);
    if (is_descr) {
        struct piece r = rest(c);
        if (r.n && *r.at == '[')
            return npy_error("%s: elements are records '%.*s'; save one field of them",
                             c->name, r.n, r.at);
        return parse_string(c, &h->descr);
    }
    if (!is_fortran)
        return npy_error("%s: header has the key '%.*s'; only descr, fortran_order and "
                         "shape belong there", c->name, key.n, key.at);
    h->fortran = take_word(c, "True");
    if (h->fortran || take_word(c, "False")) return NULL;
    struct piece r = rest(c);
    return npy_error("%s: fortran_order is '%.*s', not True or False", c->name, r.n,
                     r.at);
}

/* The whole dictionary, and nothing but space after it. */
static const char *parse_header(struct cursor *c, struct header *h)
{
    if (!take(c, '{')) {
        struct piece r = rest(c);
        return npy_error("%s: header begins with '%.*s', not with '{'", c->name, r.n,
                         r.at);
    }
    for (int comma = 1; !take(c, '}'); comma = take(c, ',')) {
        struct piece r = rest(c);
        if (!comma)
            return npy_error("%s: header has '%.*s' where ',' or '}' should be", c->name,
                             r.n, r.at);
        const char *error = parse_entry(c, h);
        if (error) return error;
    }
    struct piece r = rest(c);
    if (r.n)
        return npy_error("%s: header goes on with '%.*s' after '}'", c->name, r.n, r.at);
    const char *lacks = !h->has_descr ? "descr" : !h->has_shape ? "shape"
                      : !h->has_fortran ? "fortran_order" : NULL;
    if (lacks) return npy_error("%s: header lacks the key '%s'", c->name, lacks);
    return NULL;
}

/* '<f2', '>f4', '=f8': byte order, kind, bytes. */
static const char *read_descr(const char *name, struct header *h)
{
    struct piece d = h->descr;
    if (d.n == 3 && memchr("<>=", d.at[0], 3) && d.at[1] == 'f' &&
        memchr("248", d.at[2], 3)) {
        h->itemsize = (size_t)(d.at[2] - '0');
        h->big_endian = d.at[0] == '>' || (d.at[0] == '=' && BIG_ENDIAN_HOST);
        return NULL;
    }
    const char *what = "of a type that cannot be read";
    char kind = d.n >= 2 ? d.at[1] : 0;
    if (kind == 'i' || kind == 'u') what = "integers";
    if (kind == 'b') what = "truth values";
    if (kind == 'c') what = "complex";
    if (kind == 'V') what = "raw bytes (bfloat16 has no .npy type: save as float32)";
    if (kind == 'O') what = "pickled Python objects, which are never loaded";
    if (kind == 'U' || kind == 'S') what = "text";
    return npy_error("%s: elements are %s ('%.*s'); float16, float32 or float64 is "
                     "needed, for example numpy.save(file, a.astype('f4'))", name, what,
                     d.n < 24 ? d.n : 24, d.at);
}

/* Elements and bytes of the array.  The overflow check passes over zero dimensions, so
 * that every product of some of the dimensions fits a size_t. */
static const char *measure(const char *name, const struct header *h, size_t *count,
                           size_t *bytes)
{
    size_t product = 1;
    int empty = 0;
    for (size_t t = 0; t < h->ndim; t++) {
        size_t n = h->shape[t];
        if (n == 0) empty = 1;
        else if (product > (size_t)PTRDIFF_MAX / 8 / n)
            return npy_error("%s: shape has more elements than memory has addresses",
                             name);
        else product *= n;
    }
    *count = empty ? 0 : product;
    *bytes = *count * h->itemsize;
    return NULL;
}

/* Bytes of memory that this process can hope for; SIZE_MAX if unknown. */
static size_t memory_there(void)
{
    size_t best = SIZE_MAX;
    unsigned long long n;
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &n) == 1) best = (size_t)n * 1024;
    if (f) fclose(f);
    f = fopen("/sys/fs/cgroup/memory.max", "r");
    if (f && fscanf(f, "%llu", &n) == 1 && n < best) best = (size_t)n;
    if (f) fclose(f);
    return best;
}

/* Reads exactly bytes of data into new memory *out.  Memory grows with what arrives when
 * the source's size is unknown, so that a lying header costs nothing. */
static const char *read_data(struct source *s, size_t bytes, unsigned char **out)
{
    int known = s->left != SIZE_MAX;
    if (known && s->left != bytes)
        return npy_error("%s: shape needs %zu bytes of data, the file has %zu%s", s->name,
                         bytes, s->left,
                         s->left < bytes ? " (cut off?)" : " (more than one array?)");
    size_t done = 0, room = 0, there = bytes < CHUNK ? SIZE_MAX : memory_there();
    unsigned char *data = NULL;
    while (done < bytes || !data) {
        size_t step = room ? room : CHUNK;
        room = known || bytes - room < step ? bytes : room + step;
        unsigned char *bigger = room > there ? NULL : realloc(data, room ? room : 1);
        if (!bigger) {
            free(data);
            return npy_error("%s: needs %.1f GiB of memory, more than there is", s->name,
                             (double)bytes / (1 << 30));
        }
        data = bigger;
        size_t got = source_read(s, data + done, room - done);
        if (got < room - done) {
            free(data);
            if (s->error) return npy_error("%s: %s", s->name, strerror(s->error));
            return npy_error("%s: shape needs %zu bytes of data, the file has %zu "
                             "(cut off?)", s->name, bytes, done + got);
        }
        done += got;
    }
    unsigned char beyond;
    if (source_read(s, &beyond, 1)) {
        free(data);
        return npy_error("%s: has more data than its shape needs (more than one array?)",
                         s->name);
    }
    *out = data;
    return NULL;
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
static const char *read_array(struct source *s, const struct header *h, struct npy *out)
{
    size_t count = 0, bytes = 0, size = h->itemsize;
    unsigned char *data = NULL;
    const char *error = measure(s->name, h, &count, &bytes);
    if (!error) error = read_data(s, bytes, &data);
    if (error) return error;
    if (h->big_endian != BIG_ENDIAN_HOST) swap_bytes(data, count, size);
    if (size == 8) {
        out->n_overflowed = narrow(data, count);
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
    out->was_f64 = h->itemsize == 8;
    out->was_big_endian = h->big_endian;
    out->was_fortran = h->fortran;
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
    struct header h = { .ndim = 0 };
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
    struct cursor c = { s->name, text, text + length };
    if (!error) error = parse_header(&c, &h);
    if (!error) error = read_descr(s->name, &h);
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

const char *npy_read(const char *path, struct npy *out)
{
    struct stat about;
    struct source s = { .name = *path ? path : "''", .left = SIZE_MAX };
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
    sprintf(t + n, "] %s", a->was_f64 ? "f64" : a->dtype == F16 ? "f16" : "f32");
    return t;
}
