/* options.h: the command line of a stage program, parsed. */
#ifndef OPTIONS_H
#define OPTIONS_H

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
    int huge;                 /* --huge: arrays of more than 2^31 elements, on a GPU */
    const char *csv;          /* --csv */
    int has_dtype;
    enum dtype dtype;         /* --dtype */
    int threads;              /* --threads, 0: all */
    int on_cpu;               /* --device cpu: execute CUDA kernels on the CPU */
    const char *file[N_ARRAYS]; /* --q FILE ...: the file of each array, or NULL */
    int log;
    struct problem score;     /* what options say of it: causal, scale, window, softcap */
    int has_scale;
    size_t gpus;              /* --gpus: so many GPUs of this machine, 0: not given */
    const char *strategy;     /* --strategy: how several ranks share the work */
    const char *timeline;     /* --timeline: CSV of what each GPU does when */
    const char *row;          /* --row */
    /* bench: one shape instead of the standard ones; 0 means not given */
    int has_op;
    enum op op;
    size_t rows, cols, batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, head_dim_v;
};

#endif
