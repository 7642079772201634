/* Stage 3: online: the maximum and the denominator in one loop.
 *
 *     m_new = max(m, x_j)
 *     l     = l * exp(m - m_new) + exp(x_j - m_new)
 *
 * When the maximum grows, the sum so far is corrected to it (Milakov and Gimelshein 2018).
 * Attention corrects its output too, in the same loop, and stores no score. */
#include "score.h"
#include "stage.h"

/* Softmax of one row, two loops.
 *     m, l as above, from m = -INFINITY and l = 0
 *     y_j = exp(x_j - m) / l
 *   x (n)  scores; -INFINITY means masked      y (n)  probabilities; must not be x
 * Returns lse = m + log(l).  A row that is all -INFINITY gives l = 0, y = 0, lse = -INFINITY.
 * Reads 2n floats, writes n. */
static float softmax_row(const float *x, float *y, size_t n)
{
    /* loop 1: maximum and denominator */
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) {
        if (x[j] == -INFINITY) continue; /* masked; -INFINITY - -INFINITY would be NaN */
        float m_new = x[j] > m ? x[j] : m, correction = expf(m - m_new);
        float weight = expf(x[j] - m_new);
        l = l * correction + weight;
        m = m_new;
        watch("m", j, m);
        watch("correction", j, correction);
        watch("l", j, l);
    }

    /* loop 2: divide */
    watch_loop();
    for (size_t j = 0; j < n; j++) {
        y[j] = l == 0 ? 0 : expf(x[j] - m) / l;
        watch("y", j, y[j]);
    }
    return m + logf(l);
}

/* Attention of one query in one loop over its keys; no score is stored.
 *     o = o * exp(m - m_new) + exp(s_j - m_new) v_j     and at the end o_i = o / l
 * Returns lse = m + log(l).  A masked key is left out; if there is no other, o (head_dim_v) = 0
 * and lse = -INFINITY.  Reads K and V once, writes o once. */
static float attention_row(const struct head *h, size_t i, float *o)
{
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) continue; /* it weighs 0, and v_j may hold NaN */
        float m_new = s > m ? s : m, correction = expf(m - m_new), weight = expf(s - m_new);
        const float *v_j = v_row(h, j);
        l = l * correction + weight;
        for (size_t d = 0; d < h->head_dim_v; d++) o[d] = o[d] * correction + weight * v_j[d];
        m = m_new;
        watch("m", j, m);
        watch("correction", j, correction);
        watch("l", j, l);
        watch_row("o", j, o, h->head_dim_v);
    }
    for (size_t d = 0; d < h->head_dim_v; d++) o[d] = l == 0 ? 0 : o[d] / l;
    return m + logf(l);
}

/* Attention of one head: query by query. */
static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, o_row(h, i));
}
