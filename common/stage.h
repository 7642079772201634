/* stage.h: what a lesson sees: one row of scores, or one head of attention.
 *
 * The harness (harness.h and the rooms below it) takes batches, heads, groups and files apart
 * and calls a stage's functions once for each row or head. */
#ifndef STAGE_H
#define STAGE_H

#include <math.h>
#include <stddef.h>

/* One head: query i attends to the keys that it sees.  Row-major, contiguous. */
struct head {
    const float *q, *k, *v; /* (seqlen_q, head_dim) (seqlen_k, head_dim) (seqlen_k, head_dim_v) */
    const float *bias;      /* (seqlen_q, seqlen_k), added to the scores; or NULL */
    float *o, *lse;         /* (seqlen_q, head_dim_v) (seqlen_q) */
    float *s, *p;           /* (seqlen_q, seqlen_k) each, for a stage that stores them; or NULL */
    size_t seqlen_q, seqlen_k, head_dim, head_dim_v;
    float scale;            /* multiplies q . k */
    ptrdiff_t first, last;  /* query i sees the keys i + first to i + last, of those that exist */
};

#endif
