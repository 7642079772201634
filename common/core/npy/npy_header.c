/* npy_header.c: the header of a .npy file: a Python dictionary with exactly the keys 'descr' (the
 * type: '<f4'), 'fortran_order' (True, False) and 'shape' (a tuple). */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "npy/npy.h"

const char *npy_error(const char *format, ...)
{
    static _Thread_local char text[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

struct cursor { const char *at, *end; };

/* Skips space; if the next character is wanted, consumes it and returns 1. */
static int take(struct cursor *c, char wanted)
{
    while (c->at < c->end && memchr(" \t\n\r", *c->at, 4)) c->at++;
    if (c->at == c->end || *c->at != wanted) return 0;
    c->at++;
    return 1;
}

/* A string in single or double quotes, without escapes. */
static int take_string(struct cursor *c, char *text, size_t size)
{
    char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : 0;
    size_t n = 0;
    while (c->at < c->end && *c->at != quote && *c->at != '\\' && *c->at != '\n' && n + 1 < size)
        text[n++] = *c->at++;
    text[n] = 0;
    return quote && c->at < c->end && *c->at++ == quote;
}

/* 0, 1, 2, ... that is no larger than memory. */
static int take_number(struct cursor *c, size_t *x)
{
    take(c, ' ');
    const char *start = c->at;
    for (*x = 0; c->at < c->end && isdigit((unsigned char)*c->at); c->at++) {
        size_t digit = (size_t)(*c->at - '0');
        if (*x > (PTRDIFF_MAX - digit) / 10) return 0;
        *x = 10 * *x + digit;
    }
    return c->at > start && (*start != '0' || c->at == start + 1);
}

/* A tuple of numbers: () or (5,) or (2, 3) or (2, 3,). */
static int take_shape(struct cursor *c, struct npy *out)
{
    int comma = 1;
    if (!take(c, '(')) return 0;
    for (out->ndim = 0; !take(c, ')'); comma = take(c, ','))
        if (!comma || out->ndim == NPY_MAX_DIMS || !take_number(c, &out->shape[out->ndim++]))
            return 0;
    return out->ndim != 1 || comma;
}

static int take_order(struct cursor *c, struct npy *out)
{
    take(c, ' ');
    size_t left = (size_t)(c->end - c->at);
    out->was_fortran = left >= 4 && !memcmp(c->at, "True", 4);
    int is_c = left >= 5 && !memcmp(c->at, "False", 5);
    c->at += out->was_fortran ? 4 : is_c ? 5 : 0;
    return out->was_fortran || is_c;
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

const char *npy_header(const char *name, const char *text, size_t n, int integers,
                       struct npy *out)
{
    struct cursor c = {text, text + n};
    const char *start = text; /* of what is wrong */
    char descr[32] = "";
    int seen = 0, bit, ok = take(&c, '{');
    for (int comma = 1; ok && !take(&c, '}'); comma = take(&c, ',')) {
        char key[32];
        start = c.at;
        ok = comma && take_string(&c, key, sizeof key) && take(&c, ':');
        bit = !ok ? 0 : !strcmp(key, "descr") ? 1 : !strcmp(key, "shape") ? 2
              : !strcmp(key, "fortran_order") ? 4 : 0;
        if (bit && !(seen & bit)) start = c.at;
        ok = bit && !(seen & bit) &&
             (bit == 1 ? take_string(&c, descr, sizeof descr)
              : bit == 2 ? take_shape(&c, out) : take_order(&c, out));
        seen |= bit;
    }
    take(&c, ' ');
    if (ok && c.at == c.end && seen == 7) return read_descr(name, descr, integers, out);
    if (ok) start = c.at;
    return npy_error("%s: header is wrong at '%.*s'; numpy.save writes {'descr': '<f4', "
                     "'fortran_order': False, 'shape': (2, 3), }, of at most %d dimensions",
                     name, (int)(text + n - start < 24 ? text + n - start : 24), start,
                     NPY_MAX_DIMS);
}
