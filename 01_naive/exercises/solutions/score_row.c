/* score_row.c: exercise of stage 1, 15 points: the scores of one query.
 *
 *     s_j = scale * q_i . k_j + bias_ij,   or -INFINITY where key j is masked
 *
 * Task: fill score_row().  Query i sees the first visible(h, i) keys (stage.h); of those a bias of
 * -INFINITY masks some.  The score of a masked key is -INFINITY, whatever its row of k holds.
 * May be assumed: scores between -60 and 60; each query sees at least one key.  But seqlen_q may
 * differ from seqlen_k, and head_dim from head_dim_v.  Use the given scale.
 *
 * Point: cases random, nan_k, inf_k.
 * Time: 40 minutes.
 * Hint: q_row(h, i), k_row(h, j) and bias_of(h, i, j) find the numbers.
 * Hint: decide first whether key j is masked.  What would 0 * NaN do in the product?
 * Hint: keys from visible(h, i) on get -INFINITY, too: s_i is not cleared.
 * Right or wrong:  make exercise 1 EX=score_row */
#include "stage.h"
#include "course/exercise.h"

/* Scores of query i against every key.   s_i (seqlen_k) */
static void score_row(const struct head *h, size_t i, float *s_i)
{
    /* solution begin */
    const float *q_i = q_row(h, i);
    for (size_t j = 0; j < h->seqlen_k; j++) {
        s_i[j] = -INFINITY;
        if (j >= visible(h, i) || bias_of(h, i, j) == -INFINITY) continue;
        float dot = 0;
        for (size_t d = 0; d < h->head_dim; d++) dot += q_i[d] * k_row(h, j)[d];
        s_i[j] = h->scale * dot + bias_of(h, i, j);
    }
    /* skeleton
    for (size_t j = 0; j < h->seqlen_k; j++) s_i[j] = 0;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = head_of(c);
    score_row(&h, (size_t)c->n[6], c->y[0]);
}
