/* reference.h: the right answer of every operation, in double with compensated sums, and
 * for each of its elements a proved bound on the error of a float computation. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "problem/dtype.h"
#include "problem/operation.h"
#include "harness.h"

#define ROUNDOFF 0x1p-24 /* u of float */

/* Multiply-adds below which a problem is not worth waking the other cores: on a busy
 * machine a barrier costs more than the work. */
#define WORTH_THREADS 3e7

/* Results and bounds have the length of the array they belong to; NULL where the
 * operation has no such array.
 *   *_bound       no float algorithm of these stages may err more (INFINITY: the input
 *                 is too ill-conditioned for any statement)
 *   *_bound_safe  the same for the plain three-pass computation: fewer roundings
 *   o_mass        sum_j p_j |v_jc|: what a relative error of p does to o
 *   weight        per row of o: 1 / l, the weight of the largest score
 *   max_s, max_v  per (batch, head_q): largest finite |score| and |v| not masked
 *   max_score     the largest of all |scores| or |x|, INFINITY for inf or NaN
 *   empty_rows    number of fully masked rows
 *   v_is_finite   v holds neither inf nor NaN anywhere */
struct reference {
    size_t n_y, n_o, n_lse;
    double *y, *y_bound, *y_bound_safe;
    double *o, *o_bound, *o_bound_safe, *o_mass;
    double *lse, *lse_bound;
    double *weight;
    double *max_s, *max_v;
    double max_score;
    size_t empty_rows;
    int v_is_finite;
};

/* Exits 1 when memory is short. */
struct reference *reference_new(const struct problem *p, const struct arrays *a);
void reference_free(struct reference *r);

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

/* Each fills r, which is zero, for one kind of operation (op_checks.c says which). */
void reference_softmax(struct reference *r, const struct problem *p, const struct arrays *a);
void reference_logsoftmax(struct reference *r, const struct problem *p,
                          const struct arrays *a);
void reference_mean(struct reference *r, const struct problem *p, const struct arrays *a);
void reference_fused(struct reference *r, const struct problem *p, const struct arrays *a);
void reference_attention(struct reference *r, const struct problem *p,
                         const struct arrays *a);

/* k or v [batch, heads_kv, seqlen_k, d], widened, the updates of p applied in order. */
float *widen_updated(const struct problem *p, const void *rows, const void *rows_new,
                     const size_t *index, size_t d);

#endif
