/* npy_header.c: reads the header of a .npy file: a Python dictionary with exactly the keys
 * 'descr', 'fortran_order' and 'shape'. */
#include "npy/npy_header.h"

#include <stdint.h>
#include <string.h>

#include "npy/npy_text.h"

struct cursor { const char *name, *at, *end; };

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
    if (d.n == 3 && memchr("<>=", d.at[0], 3) && d.at[1] == (h->integers ? 'i' : 'f') &&
        memchr(h->integers ? "48" : "248", d.at[2], h->integers ? 2 : 3)) {
        h->itemsize = (size_t)(d.at[2] - '0');
        h->big_endian = d.at[0] == '>' || (d.at[0] == '=' && BIG_ENDIAN_HOST);
        return NULL;
    }
    if (h->integers)
        return npy_error("%s: elements are '%.*s'; int32 is needed, for example "
                         "numpy.save(file, a.astype('i4'))", name, d.n < 24 ? d.n : 24, d.at);
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

const char *header_parse(const char *name, const char *text, size_t length, struct header *h)
{
    struct cursor c = { name, text, text + length };
    const char *error = parse_header(&c, h);
    return error ? error : read_descr(name, h);
}

const char *header_measure(const char *name, const struct header *h, size_t *count,
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
