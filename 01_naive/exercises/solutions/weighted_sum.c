/* weighted_sum.c: exercise of stage 1, 10 points: the output of one query.
 *
 *     o_i = sum_j w_j v_j / l,    l = sum_j w_j
 *
 * Task: fill weighted_sum().  Which of its two loops should be the inner one?  Both are right;
 * `build/exercises/weighted_sum bench --quick` tells them apart.
 * May be assumed: h->q and h->k are not there; the weights w_j are positive or 0,
 * not all 0; v holds neither NaN nor infinity.  o_i is not 0 on entry: it is filled with
 * something else.
 *
 * Time: 20 minutes.
 * Hint: start with o_i = 0.
 * Hint: row j of v lies in memory in one piece, column d does not.
 * Right or wrong:  make exercise 1 EX=weighted_sum */
#include "course/exercise.h"
#include "course/score.h"

/* >>> your part: functions, #include and #define may be added here */
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
    // Your code.
    return 1;
    solution end */
}
/* <<< end of your part */

static void attention_head(const struct head *h)
{
    struct head values = *h;
    values.q = values.k = NULL;
    for (size_t i = 0; i < h->seqlen_q; i++) {
        float *w = s_row(h, i);
        for (size_t j = 0; j < h->seqlen_k; j++) w[j] = expf(score(h, i, j));
        h->lse[i] = logf(weighted_sum(&values, w, o_row(h, i)));
    }
}

PROGRAM(1, weighted_sum, "the mean of the value rows",
        .supports = BASIC_FEATURES, .max_score = 60,
        .by_head = {{OP_ATTENTION, attention_head}}, .stores_scores = 1)
