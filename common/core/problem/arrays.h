/* arrays.h: the one list of arrays: their names, types and shapes.
 *
 * Which arrays an operation reads and writes stands in operation.c.  Whoever uploads,
 * fills, compares, reads or writes arrays loops over this list:
 *
 *     for (int i = 0; i < N_ARRAYS; i++)
 *         if (array_role(p, i) == OUTPUT) ... array_count(p, i) ... */
#pragma once

#include "harness.h"

#ifdef __cplusplus
extern "C" {
#endif

enum array {
    ARRAY_X, ARRAY_W, ARRAY_Y,
    ARRAY_Q, ARRAY_K, ARRAY_V, ARRAY_BIAS, ARRAY_SINKS,
    ARRAY_CU_SEQLENS_Q, ARRAY_CU_SEQLENS_K, ARRAY_SEQLENS_K, ARRAY_PAGE_TABLE,
    ARRAY_INDEX, ARRAY_K_NEW, ARRAY_V_NEW,
    ARRAY_O, ARRAY_LSE,
    ARRAY_DO, ARRAY_DQ, ARRAY_DK, ARRAY_DV, ARRAY_DSINKS, ARRAY_DBIAS,
    ARRAY_Q_SCALE, ARRAY_K_SCALE, ARRAY_V_SCALE, /* in the order of ARRAY_Q, ARRAY_K, ARRAY_V */
    N_ARRAYS
};

/* Bytes of a pattern that lie before and after every output given to execution_once(): they travel
 * to the GPU and back, so that a write outside is seen. */
#define GUARD 256

#define HAS(array) (1u << (array)) /* for sets of arrays */

enum role { ABSENT, INPUT, OUTPUT };
enum number { OF_PROBLEM, FLOAT, INT32, SIZE }; /* OF_PROBLEM: as array_dtype() says */

/* A dimension, as a question to the problem. */
enum dimension {
    NO_DIMENSION,
    ROWS, COLS, RESULTS,           /* RESULTS: numbers of y for each row */
    BATCHES, PAGES_OR_BATCHES,     /* 1 when packed; where k and v have pages, their number */
    HEADS_Q, HEADS_KV,
    QUERIES, KEYS, ANSWERS,        /* rows of a batch in q; in k and v; in o and lse */
    SEQLEN_Q, SEQLEN_K,            /* of the longest sequence */
    HEAD_DIM, HEAD_DIM_V,
    SUMS, SEQUENCES, SEQUENCE_PAGES, UPDATES
};

enum { MOST_DIMENSIONS = 4 };

struct array_entry {
    const char *name;          /* that of the option of `run`, without its dashes */
    size_t offset;             /* of the pointer in struct arrays */
    enum number number;
    enum dimension dimensions[MOST_DIMENSIONS];
    unsigned feature;          /* there only with this feature of the problem; 0: always */
    size_t strides;            /* offset in struct problem, 0: always contiguous */
};
extern const struct array_entry array_list[N_ARRAYS];

struct extents { size_t rank, size[MOST_DIMENSIONS]; };

/* Does p read or write the array, or not have it? */
enum role array_role(const struct problem *p, enum array i);

/* Its dimensions; packed arrays have one batch.  Rank 0 when p does not have it. */
struct extents array_extents(const struct problem *p, enum array i);

/* Elements from the first to the last, with strides those in between too; 0 when p does not
 * have the array, SIZE_MAX when they are more than a size_t counts. */
size_t array_count(const struct problem *p, enum array i);

/* The first of them.  Only of a bias whose rows run backwards does the pointer lie behind it. */
void *array_start(const struct problem *p, const struct arrays *a, enum array i);

/* Elements without those in between, as extents multiply to. */
size_t array_dense_count(const struct problem *p, enum array i);

/* The type of an array of floating-point numbers. */
enum dtype array_dtype(const struct problem *p, enum array i);

/* Bytes of an element; of the array, SIZE_MAX when they are no size_t. */
size_t array_element(const struct problem *p, enum array i);
size_t array_bytes(const struct problem *p, enum array i);

/* A dimension's name, as in "give [seqlen_q, seqlen_k]". */
const char *dimension_name(enum dimension d);

/* Strides from batch to batch, head to head and row to row, of an array that has these. */
struct strides array_strides(const struct problem *p, enum array i);
struct strides array_given_strides(const struct problem *p, enum array i); /* all 0: contiguous */

/* Is it an array of rows, [batches, heads, rows (, width)]?  Are these the rows of keys? */
int array_has_rows(enum array i);
int array_is_of_keys(enum array i);

/* Where element i of the array lies, counted without the elements in between. */
size_t array_at(const struct problem *p, enum array array, size_t i);

/* The pointer to the array, and how to set it. */
static inline void *array_of(const struct arrays *a, enum array i)
{
    return *(void *const *)((const char *)a + array_list[i].offset);
}

static inline void array_set(struct arrays *a, enum array i, const void *to)
{
    *(const void **)((char *)a + array_list[i].offset) = to;
}

/* Bytes of all arrays of p together, SIZE_MAX when they are no size_t. */
size_t problem_bytes(const struct problem *p);

/* The files of `run` that must be given; not those of features, nor lse beside o. */
unsigned files_needed(enum op op);

#ifdef __cplusplus
}
#endif
