/* trace.c: follow one row through a stage and print the state after every step. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/complain.h"
#include "program/verbs.h"

struct trace { int header; /* is the table's header out? */ };

enum { MOST = 256 };

static void print_number(float x)
{
    if (isnan(x)) printf(" %12s", "nan");
    else printf(" %12.6g", x);
}

void trace_state(struct trace *t, const char *step, size_t index, float x, float m, float l,
                 const float *o, size_t n_o, float correction)
{
    if (!t->header) {
        printf("%-12s %12s %12s %12s %12s  %s\n", "step", "x", "m", "l", "correction",
               n_o ? "o" : "");
        t->header = 1;
    }
    char name[32];
    snprintf(name, sizeof name, "%s %zu", step, index);
    printf("%-12s", name);
    print_number(x);
    if (isnan(m)) printf(" %12s", "-");
    else print_number(m);
    if (isnan(l) && isnan(m) == 0 && !isnan(x)) printf(" %12s", "-");
    else print_number(l);
    printf(" %12.6g ", correction);
    for (size_t c = 0; c < n_o; c++) printf(" %.6g", o[c]);
    printf("\n");
}

void trace_note(struct trace *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    t->header = 0;
}

/* "3,2,5,-inf" -> x; returns how many, 0 when the text is not such a list. */
static size_t parse_row(const char *text, float *x)
{
    size_t n = 0;
    for (const char *s = text;;) {
        char *end;
        float value = strtof(s, &end);
        if (end == s || n == MOST || (*s != '-' && *s != '+' && *s != '.' && *s != 'i' &&
                                      *s != 'n' && (*s < '0' || *s > '9')))
            return 0;
        x[n++] = value;
        if (*end == '\0') return n;
        if (*end != ',') return 0;
        s = end + 1;
    }
}

int trace_stage(const struct stage *stage, const struct options *opt)
{
    const char *text = opt->row ? opt->row : "3,2,5,1";
    float x[MOST], v[MOST * 2];
    size_t n = parse_row(text, x);
    if (!n)
        return complain(stage, "--row: '%s' is not a list of 1 to %d numbers like 3,2,5,1",
                        text, MOST);
    if (!stage->trace) {
        fprintf(stderr, "%s: this stage has no trace\n", stage->name);
        return 77;
    }
    /* Value rows that show which keys an output holds: (1, j). */
    for (size_t j = 0; j < n; j++) {
        v[2 * j] = 1;
        v[2 * j + 1] = (float)j;
    }
    struct trace t = {0};
    printf("%s: scores %s; value of key j: (1, j)\n", stage->name, text);
    stage->trace(&t, x, n, v, 2);
    return 0;
}
