/* masked_sum.c: exercise of stage 2, 15 points: a sum that masked rows cannot spoil.
 *
 *     o_i = sum over the keys j that query i sees of p_j v_j
 *
 * Task: fill weighted_sum().  The probability of a masked key is 0, but what lies in its
 * row of v is not always a number: padding is often left uninitialised, and 0 * NaN is
 * NaN.  Here nobody kept the scores: visible(h, i) and bias_of(h, i, j) say what is masked.
 * May be assumed: h->q and h->k are not there; the p_j are right.  A NaN in a visible row
 * of v does spread, to its own column and no other.
 *
 * Point: cases nan_v, inf_v.
 * Time: 30 minutes.
 * Hint: a key is masked for one of two reasons.
 * Hint: p_i[j] == 0 is no reason: a visible key's weight may underflow, and its NaN must show.
 * Right or wrong:  make exercise 2 EX=masked_sum */
#include "stage.h"
#include "course/exercise.h"

/* The output of query i.   p_i (seqlen_k)  its probabilities   o_i (head_dim_v) */
static void weighted_sum(const struct head *h, size_t i, const float *p_i, float *o_i)
{
    /* solution begin */
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        if (bias_of(h, i, j) == -INFINITY) continue;
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] += p_i[j] * v_row(h, j)[d];
    }
    /* solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = {.v = c->x[1], .bias = c->n[5] ? c->x[2] : NULL};
    h.seqlen_q = (size_t)c->n[0], h.seqlen_k = (size_t)c->n[1], h.head_dim_v = (size_t)c->n[3];
    h.last = (ptrdiff_t)c->n[1] - (c->n[4] ? (ptrdiff_t)c->n[0] : 1);
    weighted_sum(&h, (size_t)c->n[6], c->x[0], c->y[0]);
}
