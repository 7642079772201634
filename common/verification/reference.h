/* reference.h: the right answer of every operation, in double with compensated sums, and
 * for each of its elements a proved bound on the error of a float computation. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "problem/dtype.h"
#include "problem/operation.h"
#include "verification/standard.h"

#define ROUNDOFF 0x1p-24 /* u of float */

/* Multiply-adds below which a problem is not worth waking the other cores: on a busy
 * machine a barrier costs more than the work. */
#define WORTH_THREADS 3e7

/* Answer i of a (batch, head): the keys that it may see, and its query.  Scan has one query
 * and an answer for each prefix of the keys. */
static inline struct key_range row_keys(const struct problem *p, size_t i)
{
    struct key_range prefix = {0, i + 1};
    return operations[p->op].per_prefix ? prefix : visible_keys(p, i);
}
static inline size_t row_query(const struct problem *p, size_t i)
{
    return operations[p->op].per_prefix ? 0 : i;
}

/* Each fills in the answers of r and what else it tells, for one kind of operation
 * (standard.c says which). */
typedef void reference_function(struct standard *r, const struct problem *p,
                                const struct arrays *a);
reference_function reference_rows, reference_attention, reference_backward;

/* The rule of acceptance: the allowed errors of a standard whose reference is there. */
void allow_rows(struct standard *s, const struct arrays *a); /* softmax, log-softmax */
void allow_mean(struct standard *s, const struct arrays *a);
void allow_bounds(struct standard *s, const struct arrays *a); /* of fused reductions */
void allow_attention(struct standard *s, const struct arrays *a);
void allow_log_form(struct standard *s, const struct arrays *a);
void allow_backward(struct standard *s, const struct arrays *a);

/* k or v [batch, heads_kv, seqlen_k, d], widened, the updates of p applied in order. */
float *widen_updated(const struct problem *p, const void *rows, const void *rows_new,
                     const size_t *index, size_t d);

#endif
