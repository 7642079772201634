/* options.h: the command line of a stage program, parsed. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdarg.h>

#include "stage.h"

enum verb { VERB_LIST, VERB_CHECK, VERB_BENCH, VERB_TRACE, VERB_RUN, VERB_HELP };

struct options {
    enum verb verb;
    const char *variant;      /* --variant, or NULL */
    int quick;                /* --quick */
    int verbose;              /* --verbose */
    int has_seed;
    uint64_t seed;            /* --seed: one seed for every case, to repeat a failure */
    const char *only_case;    /* --case NAME: check only this case */
    size_t random;            /* --random: so many cases drawn at random instead */
    int huge;                 /* --huge: arrays of more than 2^31 elements, on a GPU */
    const char *csv;          /* --csv */
    int has_dtype;
    enum dtype dtype;         /* --dtype */
    int threads;              /* --threads, 0: all */
    int on_cpu;               /* --device cpu: execute CUDA kernels on the CPU */
    const char *x, *y, *q, *k, *v, *o, *lse, *bias; /* file names or NULL */
    int log, causal;
    int has_scale;
    float scale;
    const char *row;          /* --row */
    /* bench: one shape instead of the standard ones; 0 means not given */
    int has_op;
    enum op op;
    size_t rows, cols, batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
};

/* Fills *opt.  Returns 0, or 2 after one line on stderr that names the culprit. */
int options_parse(int argc, char **argv, const struct stage *stage, struct options *opt);

/* Writes "STAGE: " and a line, printf style, to stderr, with control characters (of file
 * names, of arguments) as '?', so that one complaint is one line.  Returns 2. */
int complain(const struct stage *stage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int complain_list(const struct stage *stage, const char *format, va_list arguments);

/* The verbs.  Each returns the exit status. */
int list_stage(const struct stage *stage, const struct options *opt);
int check_stage(const struct stage *stage, const struct options *opt);
int bench_stage(const struct stage *stage, const struct options *opt);
int trace_stage(const struct stage *stage, const struct options *opt);
int run_stage(const struct stage *stage, const struct options *opt);

#endif
