/* options.h: the command line of a stage program: its verbs, and their options. */
#pragma once

#include "problem/arrays.h"

struct options {
    int help, version;        /* --help, -h; --version: nothing else is looked at */
    const char *variant;      /* --variant, or NULL */
    int quick;                /* --quick */
    int verbose;              /* --verbose */
    int has_seed;
    uint64_t seed;            /* --seed: one seed for every case, to repeat a failure */
    const char *only_case;    /* --case NAME: check only this case */
    size_t random;            /* --random: so many cases drawn at random instead */
    const char *csv;          /* --csv */
    int columns;              /* --columns: those of the CSV that bench writes */
    int has_dtype;
    enum dtype dtype;         /* --dtype */
    enum dtype cache;         /* --kv-dtype: E4M3 or INT8; F32: not given */
    size_t threads;           /* --threads, 0: all */
    int on_cpu;               /* --device cpu: execute CUDA kernels on the CPU */
    const char *file[N_ARRAYS]; /* --q FILE ...: the file of each array, or NULL */
    int log;
    struct problem score;     /* what options say of it: causal, scale, window, softcap */
    int has_scale;
    size_t gpus;              /* --gpus: so many GPUs of this machine, 0: not given */
    const char *strategy;     /* --strategy: how several ranks share the work */
    const char *row;          /* --row */
    /* bench: one shape instead of the standard ones; 0 means not given */
    int has_op;
    enum op op;
    size_t rows, cols, batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
};

/* Which verbs take an option: a mask of these. */
enum {
    IN_LIST = 1, IN_CHECK = 2, IN_BENCH = 4, IN_TRACE = 8, IN_RUN = 16,
    COMPUTES = IN_CHECK | IN_BENCH | IN_RUN
};

struct verb {
    const char *name;
    const char *what; /* it does, in the help; NULL: not a line of its own */
    unsigned bit;     /* IN_LIST ... */
    int (*function)(const struct stage *stage, const struct options *opt);
};

/* What a stage program can be asked to do; each returns the exit status. */
int list_stage(const struct stage *stage, const struct options *opt);
int check_stage(const struct stage *stage, const struct options *opt);
int bench_stage(const struct stage *stage, const struct options *opt);
int trace_stage(const struct stage *stage, const struct options *opt);
int run_stage(const struct stage *stage, const struct options *opt);

/* The heading of a group in `list` and `check`: "lesson". */
const char *group_name(enum group group);

/* Fills *opt from the words that follow the verb.  Returns 0, or 2 after one line on
 * stderr that names the culprit. */
int options_parse(int argc, char **argv, const struct verb *verb, const struct stage *stage,
                  struct options *opt);

/* Prints the options of a verb, as the help shows them. */
void options_help(const struct stage *stage, const struct verb *verb);

/* The sizes that were given, to name those that ask for too much: "--batch, --head-dim". */
const char *options_sizes(const struct options *opt);

/* The operation that `run` is asked for: --op, or that of the files. */
enum op run_operation(const struct options *opt);
