/* harness.h: how a stage describes itself to the harness.  A lesson, stage.c, includes stage.h
 * instead; its neighbour variants.c includes this.
 *
 * A stage is a list of variants.  A variant computes; the harness allocates, checks,
 * times, prints and reads files. */
#pragma once

#include "mask.h"    /* which keys a query sees */
#include "problem.h" /* what is to be computed */
#include "size.h"    /* sums and products of sizes */

#ifdef __cplusplus
extern "C" {
#endif

/* For a model of tiles of br queries: the keys that some query of a tile sees, summed over the tiles
 * of a head; and *pairs, those keys times the tile's queries. */
double keys_of_tiles(const struct problem *p, size_t br, double *pairs);

enum device {
    ON_CPU,
    ON_GPU,
    GPU_ON_CPU  /* a CUDA kernel executed on the CPU, block by block */
};

#define TYPE(t) (1u << (t))
#define ALL_TYPES (TYPE(F32) | TYPE(F16) | TYPE(BF16))

/* The four features that each attention of stages 1 to 4 has.  This set never grows: a
 * variant that supports more adds it, as in BASIC_FEATURES | WITH_WINDOW. */
#define BASIC_FEATURES (WITH_CAUSAL | WITH_BIAS | WITH_GROUPS | WITH_HEAD_DIM_V)

/* What a CPU variant says of itself from stage 2 on: right for all scores and masks. */
#define SAFE_ON_CPU SAFE_WITH(BASIC_FEATURES)
#define SAFE_WITH(features)                                                                \
    .types = TYPE(F32), .supports = (features), .max_score = INFINITY, .masked_rows = 1,   \
    .isolates_v = 1

/* Where a variant stands in `list` and `check`: the folder of its file. */
enum group {
    IN_LESSON,   /* stage.c and what lies beside it */
    IN_FAST,     /* fast/: faster CPU variants */
    IN_GPU,      /* gpu/ */
    IN_ASIDES,   /* variants/ */
    IN_PORTABLE, /* portable/: rungs for any GPU */
    IN_HOPPER,   /* hopper/: rungs for sm_90a */
    IN_SPLIT_KV, /* split_kv/: for few queries */
    IN_EIGHT_BITS, /* q, k and v in 8 bits */
    IN_BACKWARD, /* backward/: the gradients */
    N_GROUPS
};

typedef void variant_function(const struct problem *p, const struct arrays *a);

/* Stands for a function that only a GPU has, in the form of a variant built for the CPU. */
variant_function needs_gpu;

/* A function and the operation that it does. */
struct op_function { enum op op; variant_function *function; };

/* One row, x (n) -> y: the harness goes through the rows, and ignores what is returned. */
typedef float function_of_row(const float *x, float *y, size_t n);
struct row_operation { enum op op; function_of_row *function; };

/* One head of attention (stage.h): the harness goes through batches and heads. */
struct head;
typedef void function_of_head(const struct head *h);
struct head_operation { enum op op; function_of_head *function; };
enum { MOST_OF_A_KIND = 3 };

/* One way of doing a stage.  Fields that do not apply are left out (0 or NULL). */
struct variant {
    const char *name;
    const char *idea;              /* one line */
    enum group group;              /* its heading in `list` */
    enum device device;
    int least_arch;                /* GPU: 75, 80, 90: least compute capability x 10 */
    int only_arch;                 /* GPU: 90 for sm_90a code that runs nowhere else, or 0 */
    int all_cores;                 /* CPU: uses every thread OpenMP gives */
    unsigned types;                /* TYPE(F32) | ... */
    unsigned supports;             /* WITH_CAUSAL | ...; 0: no feature at all */
    float max_score;               /* right while every |score| <= max_score; INFINITY: always */
    size_t max_keys;               /* and seqlen_k <= max_keys; 0: always */
    int masked_rows;               /* a fully masked row gives 0 (o, y) and -INFINITY (lse) */
    int isolates_v;                /* NaN or inf in a masked row of v does not leak; of backward,
                                    * in any of q, k, v and do */
    int in_any_order;              /* blocks add in any order: runs may differ in the last bits */
    int lse_may_be_null;           /* of attention, where nobody wants it; else it is written */
    /* NULL when the shape is supported, else what is not: "head_dim 300".
     * Types, operations, features and the machine are checked by the harness. */
    const char *(*refuses)(const struct problem *p);
    /* 1 where another variant that does p is faster: then this one is taken by name only. */
    int (*yields)(const struct problem *p);
    /* NULL when this machine has the instructions, else what it lacks: "AMX for bf16". */
    const char *(*lacks)(void);
    /* CPU variant on a matrix unit: multiplies what lies in the unit's registers for a
     * millisecond and returns the flops.  NULL: its products are those of the fma ceiling. */
    double (*matrix_flops)(void);
    /* For a variant that chooses: the name of what it takes for p, or a tile and why. */
    const char *(*picks)(const struct problem *p);
    size_t (*workspace)(const struct problem *p); /* bytes; by_head: of h->scratch */
    struct cost (*cost)(const struct problem *p);
    /* What it does: {{OP_SOFTMAX, softmax_row}}, an operation in one of three ways.  With all_cores
     * the harness hands rows, or some queries of a head, to each core. */
    struct row_operation by_row[MOST_OF_A_KIND];
    struct head_operation by_head[MOST_OF_A_KIND];
    int stores_scores;             /* by_head: the harness gives it memory for s and p */
    struct op_function does[N_OPS + 1]; /* the whole problem */
    const struct variant *on_gpu;  /* the same kernel compiled for the GPU */
};

/* Does v do op? */
int variant_does(const struct variant *v, enum op op);

/* Is its function for op one that only a GPU has? */
int variant_only_on_gpu(const struct variant *v, enum op op);

/* Bytes of a->workspace for p. */
size_t variant_scratch(const struct variant *v, const struct problem *p);

/* Computes p, whose arrays v can reach. */
void variant_call(const struct variant *v, const struct problem *p, const struct arrays *a);

/* What a rung of a ladder was expected to gain over others, for `list --csv`. */
struct rung { const char *dtype, *over, *expected, *because, *look_at; };

struct options; /* a command line (program/options.h) */

/* A way to share one attention problem between several ranks (common/core/ranks). */
struct strategy {
    const char *name, *idea;
    int is_ring;   /* queries are cut too, and keys travel; else a tree: keys alone are cut */
    int is_zigzag; /* ring: two chunks a rank, which balance a causal mask */
    int reduces;   /* tree: the machine's own reduction, in any order; else merged by rank */
};

/* The array `name` of the variants that EACH(V) names, as V(one) V(two), which lie in other files. */
#define VARIANT_LIST(name, EACH)                                                           \
    EACH(DECLARE_VARIANT)                                                                  \
    static const struct variant *const name[] = {EACH(ADDRESS_OF_VARIANT) NULL};
#define DECLARE_VARIANT(one) extern const struct variant one;
#define ADDRESS_OF_VARIANT(one) &one,

struct stage {
    int number;                            /* 1 to 5 */
    const char *name;                      /* the directory: "03_online_softmax" */
    const char *idea;                      /* one line */
    /* Ends with NULL.  The plain one first; of several that do a problem equally well, `run`
     * takes the last (program/run.h). */
    const struct variant *const *variants;
    const struct rung *rungs;              /* of each variant, or NULL */
    /* `trace` runs the first variant on one row of scores, and watches (stage.h).  Here: also
     * attention, on a query with these scores. */
    int traces_attention;
    /* Prints what follows the trace of scores x (n) and values v (n, 2), (1, j) each; or NULL. */
    void (*after_trace)(const float *x, size_t n, const float *v);
    const struct strategy *strategies; /* of several ranks: values of --strategy; name NULL ends */
    /* check, bench or run (`verb`, a bit of program/options.h) on several ranks: with --gpus, or
     * always where the program is of several ranks. */
    const struct kind_of_rank *kind_of_rank; /* ranks/shards.h */
    int (*on_ranks)(const struct stage *stage, unsigned verb, const struct options *opt);
    const char *ranks;             /* "3 ranks": a program of several; else NULL */
};

/* The program: parses the command line, does the verb, returns the exit status
 * (0 done or passed, 1 failed, 2 bad usage or input, 77 skipped). */
int stage_main(int argc, char **argv, const struct stage *stage);

#ifdef __cplusplus
}
#endif
