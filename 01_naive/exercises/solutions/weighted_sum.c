/* weighted_sum.c: exercise of stage 1, 10 points: the output of one query.
 *
 *     o_i = sum_j w_j v_j / l,    l = sum_j w_j
 *
 * Task: fill weighted_sum().  Which of its two loops should be the inner one?
 * May be assumed: h->q and h->k are not there; the weights w_j are positive or 0,
 * not all 0; v holds neither NaN nor infinity.  o_i is not 0 on entry: it is filled with
 * something else.
 *
 * Time: 20 minutes.
 * Hint: start with o_i = 0.
 * Hint: row j of v lies in memory in one piece, column d does not.
 * Right or wrong:  make exercise 1 EX=weighted_sum */
#include "stage.h"
#include "course/exercise.h"

/* The mean of the rows of v, weighted by w (seqlen_k).   o_i (head_dim_v)   Returns l. */
static float weighted_sum(const struct head *h, const float *w, float *o_i)
{
    /* solution begin */
    float l = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < h->seqlen_k; j++) {
        const float *v_j = v_row(h, j);
        l += w[j];
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] += w[j] * v_j[d];
    }
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] /= l;
    return l;
    /* skeleton
    return 1;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = {.v = c->x[1], .seqlen_k = (size_t)c->n[0], .head_dim_v = (size_t)c->n[1]};
    c->y[1][0] = weighted_sum(&h, c->x[0], c->y[0]);
}
