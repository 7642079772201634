/* shards.h: what check, bench and run ask of the ranks, whatever a rank is.
 *
 * A shard is what one rank holds of a problem: some queries, some keys (schedule.h).  The verbs
 * fill shards, compute, and take the answers out.  04_monoid_tiled_cpu/mpi does it with processes,
 * 05_flash_cuda/multi_gpu with GPUs; each has a struct kind_of_rank. */
#pragma once

#include "measurement/csv.h"
#include "problem/arrays.h"
#include "ranks/schedule.h"
#include "ranks/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a rank is.  A function that may be NULL has nothing to do there. */
struct kind_of_rank {
    const char *name;             /* "rank", "GPU" */
    const char *stage;            /* in the CSV */
    const struct variant *kernel; /* computes on each: its types and promises hold for all */
    unsigned features;            /* WITH_CAUSAL | ...: those that shards have too */
    enum device device;           /* for the CSV */
    float max_score;              /* that its merge survives */
    struct problem example;       /* what bench measures unasked */
    size_t quick;                 /* its queries and keys with --quick */
    int least_calls, most_calls;  /* of a measurement */
    /* NULL, or why this machine cannot: "skipped: ..."  The function may be NULL. */
    const char *(*open)(void);
    void (*close)(void);          /* may be NULL */
    /* Memory for the shards of this process's ranks.  NULL, or why not. */
    const char *(*shards_new)(const struct problem *whole, const struct strategy *s);
    void (*shards_free)(void);
    /* Where q, k or v of shard i of this process begins: [heads of all batches, its rows, width],
     * and how its memory is written. */
    void *(*array)(int i, enum array which);
    void (*write)(int i, void *to, const void *from, size_t bytes);
    void (*draw)(uint64_t seed);  /* normal numbers into all of q, k and v */
    /* Computes on all ranks and waits; where one fails, all end.  Returns the seconds from the
     * first start to the last end of this process's ranks. */
    double (*attention)(void);
    /* n rows of the answer of shard i, o or lse, from row `first` on (counted over its heads). */
    void (*take)(int i, enum array which, size_t first, size_t n, void *to);
    double (*bytes)(void);        /* most that a rank had in use since shards_new() */
    /* What this process's ranks can do at most.  Sets m's kind, and their number of threads. */
    double (*ceiling)(struct measurement *m);
    /* One GPU alone, in turns with all: sets *seconds of a call and returns 1; 0: not measured.
     * alone_done() frees it; 1: it has set m's variant and bytes.  Both may be NULL. */
    int (*alone)(const struct problem *p, double *seconds);
    int (*alone_done)(struct measurement *m);
};
extern const struct kind_of_rank *kind; /* that of the present stage */

/* --- The same for all: shards.c, bench.c, run.c. --- */

/* The present problem and its strategy; set by shards_new(). */
extern struct problem whole;
extern const struct strategy *strategy;
extern const float *whole_bias; /* of check and run, where each process has the whole arrays */

/* The stage with its strategies as variants. */
struct stage stage_of_ranks(const struct stage *stage);

int bench_on_ranks(const struct stage *stage, const struct options *opt);
int run_on_ranks(const struct stage *stage, const struct options *opt);
int verb_on_ranks(const struct stage *stage, unsigned verb, const struct options *opt);

#ifdef __cplusplus
}
#endif
