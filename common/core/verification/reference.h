/* reference.h: the right answer of every operation, in double with compensated sums, and
 * for each of its elements the likely error of a float computation. */
#pragma once

#include "dropout.h"
#include "problem/dtype.h"
#include "problem/operation.h"
#include "verification/standard.h"

#define ROUNDOFF 0x1p-24 /* u of float */

/* Multiply-adds below which a problem is not worth waking the other cores: on a busy
 * machine a barrier costs more than the work. */
#define WORTH_THREADS 3e7

/* Each fills in the answers of r and what else it tells, for one kind of operation
 * (standard.c says which). */
typedef void reference_function(struct standard *r, const struct problem *p,
                                const struct arrays *a);
reference_function reference_rows, reference_attention, reference_backward;

/* The rule of acceptance: `likely` becomes `allowed` (allowed.c). */
void allow(struct standard *s, const struct arrays *a);

/* The inputs of a plain problem as floats: widened.c. */
struct widened {
    float *array[N_ARRAYS]; /* those of the problem's type; k and v after the updates */
    float *kt; /* k as [batch, heads_kv, head_dim, seqlen_k]: keys are contiguous */
};

struct widened widened_new(const struct problem *p, const struct arrays *a);
void widened_free(struct widened *w);

/* Weights in 8 bits are e4m3, whatever the values are, and 256 times as large: the largest becomes
 * 256, and small ones stay normal numbers. */
#define WEIGHT_SCALE 256
static inline enum dtype weight_dtype(const struct problem *p)
{
    return dtype_size(p->dtype) == 1 ? E4M3 : p->dtype;
}

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
    size_t h, i;              /* of its batch; its number in the head */
    size_t key;               /* the first that it sees, among those of all heads and batches */
    size_t n;                 /* how many */
    const float *q;           /* (head_dim) */
    const float *k, *kt, *v;  /* from that key on, of which each row of kt has seqlen_k */
    const float *bias;        /* (n) or NULL */
    size_t bias_at;           /* where it begins in the array, and in dbias */
    float sink;               /* -INFINITY: none */
};
struct query query_of(const struct problem *p, const struct arrays *a, const struct widened *w,
                      size_t row);

/* What dropout makes of the weight of key j of those that the query sees: 0 or 1 / (1 - p). */
static inline double kept(const struct problem *p, const struct query *x, size_t j)
{
    struct dropout d = dropout_of(p);
    if (!d.below) return 1;
    return is_kept(&d, x->head, x->i, x->key % p->seqlen_k + j) ? 1 / (1 - (double)p->dropout) : 0;
}

/* Room for one row of scores, and of o: reference_scores.c. */
struct scratch {
    double *s, *eta, *slope, *p;  /* (seqlen_k) */
    double *squares, *partial, *terms; /* (seqlen_k): to work in */
    double *column;               /* (COLUMNS, head_dim_v): to work in */
    int exact;                    /* every q.k is a sum of zeros */
};
enum { COLUMNS = 13 };
struct scratch scratch_new(const struct problem *p); /* free(s) frees it */

/* Fills in s and eta, the scores of the row and what they may err by (in u), the slopes of the soft
 * cap and `exact`.  -INFINITY where the bias masks. */
void score_row(struct scratch *w, const struct problem *p, const struct query *x);
