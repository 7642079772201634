/* fuzz_cli.c: any list of arguments as a command line (libFuzzer).  A newline in the
 * bytes ends an argument.
 *
 * Whatever the arguments: either 0 and no complaint, and then every number lies in its
 * range, or 2 and exactly one line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/cli.h"
#include "program/verbs.h"

/* What the parser's file needs of the program, which is never run here. */
#define VERB(verb)                                                                       \
    int verb(const struct stage *s, const struct options *o) { return !s || !o; }
VERB(list_stage) VERB(check_stage) VERB(bench_stage) VERB(trace_stage) VERB(run_stage)

static const struct variant online = { .name = "online", .types = TYPE(F32) };
static const struct variant tiled = { .name = "tiled", .types = ALL_TYPES };
static const struct variant *const variants[] = { &online, &tiled, NULL };
static const struct stage stage = { .number = 3, .name = "fuzz", .variants = variants };

static FILE *terminal, *memory;
static char text[1 << 16];

static void demand(int condition, const char *what)
{
    if (condition) return;
    fprintf(terminal, "fuzz_cli: %s: '%s'\n", what, text);
    abort();
}

static void check_ranges(const struct options *o, const struct verb *verb)
{
    const size_t counts[] = { o->rows, o->cols, o->batch, o->heads_q, o->heads_kv,
                              o->seqlen_q, o->seqlen_k, o->head_dim, o->head_dim_v };
    for (size_t t = 0; t < sizeof counts / sizeof *counts; t++)
        demand(counts[t] <= (size_t)1 << 40, "a count is out of range");
    demand(o->threads >= 0 && o->threads <= 4096, "threads is out of range");
    demand(!o->has_scale || isfinite(o->scale), "scale is not finite");
    demand(!o->has_dtype || o->dtype < N_DTYPES, "no such dtype");
    demand(!o->has_op || o->op < N_OPS, "no such op");
    demand(!o->variant || !strcmp(o->variant, "online") || !strcmp(o->variant, "tiled"),
           "no such variant");
    demand(o->help || o->version || verb->bit != IN_RUN || (o->x ? o->y != NULL : o->q && o->k && o->v && o->o),
           "run without its files");
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n_bytes)
{
    char *argv[258] = { "fuzz" };
    int argc = 1;
    char *copy = malloc(n_bytes + 1);
    memcpy(copy, bytes, n_bytes);
    copy[n_bytes] = 0;
    for (char *at = copy; at && argc < 257;) {
        char *end = strchr(at, '\n');
        if (end) *end = 0;
        argv[argc] = malloc(strlen(at) + 1); /* so that reading beyond its end is seen */
        strcpy(argv[argc++], at);
        at = end ? end + 1 : NULL;
    }
    if (!memory) {
        terminal = stderr;
        memory = fmemopen(text, sizeof text, "w");
        setbuf(memory, NULL);
    }
    rewind(memory);
    memset(text, 0, 64);
    stderr = memory;
    struct options opt;
    const struct verb *verb;
    int status = command_parse(argc, argv, &stage, &verb, &opt);
    fflush(memory);
    stderr = terminal;
    long n = ftell(memory);
    text[n] = 0;
    if (status == 0) {
        demand(n == 0, "a complaint although it is accepted");
        check_ranges(&opt, verb);
    } else {
        demand(status == 2, "a status that is neither 0 nor 2");
        demand(!strncmp(text, "fuzz: ", 6), "the complaint does not name the program");
        demand(n > 0 && strchr(text, '\n') == text + n - 1, "not exactly one line");
    }
    for (int i = 1; i < argc; i++) free(argv[i]);
    free(copy);
    return 0;
}
