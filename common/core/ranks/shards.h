/* shards.h: what check, bench and run ask of the ranks, whatever a rank is.
 *
 * A shard is what one rank holds of a problem: some queries, some keys (schedule.h).  The verbs
 * fill shards, compute, and take the answers out.  04_monoid_tiled_cpu/mpi does it with processes,
 * 05_flash_cuda/multi_gpu with GPUs; each defines what stands under "a rank's own". */
#ifndef SHARDS_H
#define SHARDS_H

#include "measurement/csv.h"
#include "problem/arrays.h"
#include "ranks/schedule.h"
#include "ranks/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- A rank's own. --- */

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
};
extern const struct kind_of_rank kind_of_rank;
extern const struct stage stage_on_mpi; /* of the program that mpirun starts */

/* NULL, or why this machine cannot: "skipped: ..." */
const char *ranks_open(void);
void ranks_close(void);

/* Memory for the shards of this process's ranks.  NULL, or why not. */
const char *shards_new(const struct problem *whole, const struct strategy *s);
void shards_free(void);

/* Where q, k or v of shard i of this process begins: [heads of all batches, its rows, width]. */
void *shard_array(int i, enum array which);
void shard_write(int i, void *to, const void *from, size_t bytes); /* into the shard's memory */
void shards_draw(uint64_t seed); /* normal numbers into all of q, k and v */

/* Computes on all ranks and waits; where one fails, all end.  Returns the seconds from the first
 * start to the last end of this process's ranks. */
double shards_attention(void);

/* n rows of the answer of shard i, o or lse, from row `first` on (counted over all its heads). */
void shard_take(int i, enum array which, size_t first, size_t n, void *to);

double shard_bytes(void); /* most that a rank of this process had in use since shards_new() */

/* What this process's ranks can do at most.  Sets m's kind, and their number of threads. */
double ranks_ceiling(struct measurement *m);

/* One GPU alone, in turns with all: sets *seconds of a call and returns 1; 0: not measured. */
int alone(const struct problem *p, double *seconds);
int alone_done(struct measurement *m); /* frees it; 1: sets its variant and bytes */

/* Appends what each GPU did when in the last call.  NULL or why not. */
const char *timeline_write(const char *path);

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
#endif
