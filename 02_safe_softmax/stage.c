/* Stage 2: the same, safe: the row's maximum is subtracted first.
 *
 *     softmax(x)_j = exp(x_j - m) / sum_t exp(x_t - m),    m = max_t x_t
 *     o_i = sum_j softmax(scale * q_i . k)_j v_j
 *
 * Any shift cancels.  With this one every term is at most 1 and one is exactly 1, so the sum lies
 * between 1 and n.  The price is a third loop. */
#include "score.h"
#include "stage.h"

/* Softmax of one row, three loops.
 *     m   = max_j x_j
 *     l   = sum_j exp(x_j - m)
 *     y_j = exp(x_j - m) / l
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * Returns lse = m + log(l).  A row that is all -INFINITY gives l = 0, y = 0, lse = -INFINITY.
 * Reads 3n floats, writes n. */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum */
    float m = -INFINITY;
    for (size_t j = 0; j < n; j++) {
        m = x[j] > m ? x[j] : m;
        watch("m", j, m);
    }
    if (m == -INFINITY) m = 0; /* all are masked; -INFINITY - -INFINITY would be NaN */

    /* loop 2: denominator */
    watch_loop();
    float l = 0;
    for (size_t j = 0; j < n; j++) {
        l += expf(x[j] - m);
        watch("l", j, l);
    }

    /* loop 3: divide */
    watch_loop();
    for (size_t j = 0; j < n; j++) {
        y[j] = l == 0 ? 0 : expf(x[j] - m) / l;
        watch("y", j, y[j]);
    }
    return m + logf(l);
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
