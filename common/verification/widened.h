/* widened.h: the inputs of a problem as floats, and which of them make one answer of attention.
 * For the reference and the yardsticks, which know plain arrays alone (part.h makes them). */
#ifndef WIDENED_H
#define WIDENED_H

#include "problem/operation.h"

struct widened {
    float *array[N_ARRAYS]; /* those of the problem's type; k and v after the updates */
    float *kt; /* k as [batch, heads_kv, head_dim, seqlen_k]: keys are contiguous */
};

struct widened widened_new(const struct problem *p, const struct arrays *a);
void widened_free(struct widened *w);

/* The keys that answer i of a (batch, head) may see.  Scan has one query and an answer for each
 * prefix of the keys. */
static inline struct key_range row_keys(const struct problem *p, size_t i)
{
    struct key_range prefix = {0, i + 1};
    return operations[p->op].per_prefix ? prefix : visible_keys(p, i);
}

/* What answer `row` of o and lse is made from: a query, and the n keys that it may see. */
struct query {
    size_t head;              /* of all batches */
    size_t h;                 /* of its batch */
    size_t key;               /* the first that it sees, among those of all heads and batches */
    size_t n;                 /* how many */
    const float *q;           /* (head_dim) */
    const float *k, *kt, *v;  /* from that key on, of which each row of kt has seqlen_k */
    const float *bias;        /* (n) or NULL */
    float sink;               /* -INFINITY: none */
};
struct query query_of(const struct problem *p, const struct arrays *a, const struct widened *w,
                      size_t row);

#endif
