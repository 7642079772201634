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
 * Half of the points: cases nan_v, inf_v.
 * Time: 30 minutes.
 * Hint: a key is masked for one of two reasons.
 * Hint: p_i[j] == 0 is no reason: a visible key's weight may underflow, and its NaN must show.
 * Right or wrong:  make exercise 2 EX=masked_sum */
#include "course/exercise.h"
#include "course/score.h"

/* Safe softmax of one row in place.  A row that is all -INFINITY gives 0.   Returns lse. */
static float normalise(float *s, size_t n)
{
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = s[j] > m ? s[j] : m;
    if (m == -INFINITY) m = 0;
    for (size_t j = 0; j < n; j++) l += s[j] = expf(s[j] - m);
    for (size_t j = 0; j < n; j++) s[j] = l == 0 ? 0 : s[j] / l;
    return m + logf(l);
}

/* >>> your part: functions, #include and #define may be added here */
/* The output of query i.   p_i (seqlen_k)  its probabilities   o_i (head_dim_v) */
static void weighted_sum(const struct head *h, size_t i, const float *p_i, float *o_i)
{
    /* solution begin */
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        if (bias_of(h, i, j) == -INFINITY) continue;
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] += p_i[j] * v_row(h, j)[d];
    }
    /* skeleton
    // Your code.
    solution end */
}
/* <<< end of your part */

static void attention_head(const struct head *h)
{
    struct head values = *h;
    values.q = values.k = NULL;
    for (size_t i = 0; i < h->seqlen_q; i++) {
        float *p_i = p_row(h, i);
        for (size_t j = 0; j < h->seqlen_k; j++) p_i[j] = score(h, i, j);
        h->lse[i] = normalise(p_i, h->seqlen_k);
        weighted_sum(&values, i, p_i, o_row(h, i));
    }
}

PROGRAM(2, masked_sum, "a weighted sum that leaves masked keys out",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}}, .stores_scores = 1)
