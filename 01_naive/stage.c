/* Stage 1: softmax and attention straight from the definition.
 *
 *     softmax(x)_j = exp(x_j) / sum_t exp(x_t)
 *     o_i = sum_j softmax(scale * q_i . k)_j v_j
 *
 * Right while every score lies between -60 and 60.  Beyond that exp overflows (scores
 * above 88.72) or every term underflows (all scores below -104), and the result is NaN.
 * Nothing here guards against it: the next stage does. */
#include "score.h"
#include "stage.h"

/* Softmax of one row, two loops.
 *     l   = sum_j exp(x_j)
 *     y_j = exp(x_j) / l
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * Returns lse = log(l).  A row that is all -INFINITY gives 0/0 = NaN.
 * Reads 2n floats, writes n. */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: denominator */
    float l = 0;
    for (size_t j = 0; j < n; j++) {
        l += expf(x[j]);
        watch("l", j, l);
    }

    /* loop 2: divide */
    watch_loop();
    for (size_t j = 0; j < n; j++) {
        y[j] = expf(x[j]) / l;
        watch("y", j, y[j]);
    }
    return logf(l);
}

/* Output of one query, the mean of the value rows:  o_i = sum_j p_j v_j
 *   s_i, p_i (seqlen_k)   o_i (head_dim_v)
 * A masked key is left out, not multiplied by 0: v_j may hold NaN, and 0 * NaN is NaN. */
static void weighted_sum(const struct head *h, const float *s_i, const float *p_i, float *o_i)
{
    watch_loop();
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < h->seqlen_k; j++) {
        if (s_i[j] == -INFINITY) continue;
        const float *v_j = v_row(h, j);
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] += p_i[j] * v_j[d];
        watch_row("o", j, o_i, h->head_dim_v);
    }
}

/* Attention of one head: S = scale * Q K^T,  P = softmax(S),  O = P V.
 * S and P have seqlen_q * seqlen_k numbers each: the memory that grows with seqlen^2. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++)
        for (size_t j = 0; j < h->seqlen_k; j++) s_row(h, i)[j] = score(h, i, j);
    for (size_t i = 0; i < h->seqlen_q; i++)
        h->lse[i] = softmax_row(s_row(h, i), p_row(h, i), h->seqlen_k);
    for (size_t i = 0; i < h->seqlen_q; i++)
        weighted_sum(h, s_row(h, i), p_row(h, i), o_row(h, i));
}
