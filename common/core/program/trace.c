/* trace.c: run a stage's own functions on one row, and print what they watch after every step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/complain.h"
#include "program/options.h"
#include "stage.h"

enum { MOST = 256, MOST_NAMES = 8, WIDTH = 2 };

/* The table of one loop.  A step is printed when the next one begins: then all is known. */
static struct table {
    const char *of, *scores;        /* "softmax", and the name of its scores, "x" */
    const float *x;                 /* (n) */
    size_t n, j, next;              /* the step that is being filled; the first not printed */
    int loop, n_names, has_header;
    const char *name[MOST_NAMES];
    double number[MOST_NAMES];
    float row[MOST_NAMES][WIDTH];   /* of a name that has a row instead */
    size_t n_row[MOST_NAMES];
} table;

static void print_number(double x)
{
    if (isnan(x)) printf(" %12s", "nan");
    else printf(" %12.6g", x);
}

/* The last value of a name in this step, or NAN. */
static double number_of(const char *name)
{
    for (int c = 0; c < table.n_names; c++)
        if (!strcmp(table.name[c], name)) return table.number[c];
    return NAN;
}

static int has_l(void) { return !isnan(number_of("l")); }

static void print_header(void)
{
    printf("%s, loop %d\n%3s %12s", table.of, ++table.loop, "j", table.scores);
    for (int c = 0; c < table.n_names; c++) {
        printf(" %12s", table.name[c]);
        for (size_t d = 1; d < table.n_row[c]; d++) printf(" %12s", "");
        if (table.n_row[c] && has_l()) printf(" %10s/l", table.name[c]);
    }
    printf("\n");
    table.has_header = 1;
}

/* Steps that nobody watched were passed over: masked keys. */
static void print_skipped(size_t end)
{
    for (; table.next < end; table.next++)
        printf("%3zu %12.6g %12s\n", table.next, table.x[table.next], "-");
}

static void print_step(void)
{
    if (!table.n_names) return;
    if (!table.has_header) print_header();
    print_skipped(table.j);
    printf("%3zu", table.j);
    print_number(table.x[table.j]);
    for (int c = 0; c < table.n_names; c++) {
        if (!table.n_row[c]) print_number(table.number[c]);
        for (size_t d = 0; d < table.n_row[c]; d++) print_number(table.row[c][d]);
        for (size_t d = 0; has_l() && d < table.n_row[c]; d++)
            print_number(table.row[c][d] / number_of("l"));
    }
    printf("\n");
    table.next = table.j + 1;
    table.n_names = 0;
}

static void end_loop(void)
{
    print_step();
    if (table.has_header) print_skipped(table.n);
    table.has_header = 0;
    table.next = 0;
}

/* What watch() and watch_row() call. */
static void show(const char *name, size_t j, double number, const float *row, size_t n)
{
    if (!strcmp(name, "loop")) {
        end_loop();
        return;
    }
    int again = 0;
    for (int c = 0; c < table.n_names; c++) again |= !strcmp(table.name[c], name);
    if (table.n_names && j > table.j) print_step();
    else if (again || (table.n_names && j < table.j)) end_loop();
    if (table.n_names == MOST_NAMES || j >= table.n) return;
    table.j = j;
    int c = table.n_names++;
    table.name[c] = name;
    table.number[c] = number;
    table.n_row[c] = row ? n < WIDTH ? n : WIDTH : 0;
    for (size_t d = 0; d < table.n_row[c]; d++) table.row[c][d] = row[d];
}

/* The first variant on the row x, and where the stage says so on a query with the scores x. */
static void trace_variant(const struct stage *stage, const float *x, size_t n, const float *v)
{
    float y[MOST], lse, q = 1, o[WIDTH], s_and_p[2 * MOST];
    const struct variant *plain = stage->variants[0];
    struct problem rows = {.op = OP_SOFTMAX, .rows = 1, .cols = n};
    struct problem head = {.op = OP_ATTENTION, .batch = 1, .heads_q = 1, .heads_kv = 1,
                           .seqlen_q = 1, .seqlen_k = n, .head_dim = 1, .head_dim_v = WIDTH,
                           .scale = 1};
    watcher = show;
    if (variant_does(plain, OP_SOFTMAX)) {
        table = (struct table){.of = "softmax", .scores = "x", .x = x, .n = n};
        variant_call(plain, &rows, &(struct arrays){.x = x, .y = y});
        end_loop();
    }
    if (stage->traces_attention) {
        table = (struct table){.of = "attention", .scores = "s", .x = x, .n = n};
        printf("value of key j: (1, j)\n");
        variant_call(plain, &head,
                     &(struct arrays){.q = &q, .k = x, .v = v, .o = o, .lse = &lse,
                                     .workspace = s_and_p});
        end_loop();
    }
    watcher = NULL;
    if (stage->after_trace) stage->after_trace(x, n, v);
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
    /* Value rows that show which keys an output holds: (1, j). */
    for (size_t j = 0; j < n; j++) {
        v[2 * j] = 1;
        v[2 * j + 1] = (float)j;
    }
    printf("%s: scores %s%s\n", stage->name, text,
           variant_does(stage->variants[0], OP_SOFTMAX) ? "" : "; value of key j: (1, j)");
    trace_variant(stage, x, n, v);
    return 0;
}
