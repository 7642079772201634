/* operation.h: the operations, one entry each: their names, arrays and flops.  How each is
 * checked stands in verification/standard.c, its cases in case_table.c. */
#pragma once

#include "problem/arrays.h"

/* ON_ROWS: x (, w) [rows, cols] -> y.   ON_HEADS: q, k, v (, bias) -> o, lse. */
enum family { ON_ROWS, ON_HEADS };
#define AS_X SIZE_MAX /* as many as x has */

struct operation {
    const char *name;     /* "softmax", as in the CSV */
    enum family family;
    const char *unit;     /* `list` gives the cost for one: "elem" (element), "score", "key" */
    int is_benched;       /* bench measures it */
    unsigned inputs, outputs; /* sets of arrays: HAS(ARRAY_X) | ... */
    unsigned files;           /* arrays that `run` reads and writes; 0: it does not do it */
    unsigned weighed;         /* inputs that weights multiply: NaN in a hidden row may leak */
    size_t results;       /* ON_ROWS: columns of y, or AS_X; 0: y [rows] */
    /* ON_HEADS */
    int one_query;        /* seqlen_q = 1 */
    int per_prefix;       /* an answer for each prefix of the keys, not for each query */
    int updates;          /* rows of k and v are replaced first */
};

extern const struct operation operations[N_OPS];

static inline const char *op_name(enum op op) { return operations[op].name; }

static inline int on_heads(const struct problem *p)
{
    return operations[p->op].family == ON_HEADS;
}

/* Sets *op to the operation of that name; 0 when there is none. */
int op_find(const char *name, enum op *op);

/* Query-key pairs of a head that the flop count of p credits: all, exactly half when causal
 * and square, the visible ones otherwise and of a window (design: results). */
double problem_pairs(const struct problem *p);

double problem_flops(const struct problem *p); /* 0 for operations on rows */

/* ON_HEADS: answers of one (batch, head). */
static inline size_t rows_per_head(const struct problem *p)
{
    return operations[p->op].per_prefix ? p->seqlen_k : p->seqlen_q;
}
