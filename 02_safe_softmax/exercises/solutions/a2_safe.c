/* a2_safe.c: assignment of stage 2, 40 points: attention for every score and every mask.
 *
 *     m = max_j s_j,   l = sum_j exp(s_j - m),   y_j = exp(s_j - m) / l,   log y_j = s_j - m - log(l)
 *
 * Task: fill the three functions.  Your a1_naive.c is included: use its dot().  The judge sends rows on which its
 * softmax() breaks, and asks both of your files: the first must say so, the second must be right.
 * May be assumed: nothing about the scores.  A masked score (-INFINITY) has weight 0 and the logarithm -INFINITY; a
 * row without visible keys gives 0, its lse and logarithms are -INFINITY.  NaN in a visible key reaches the output; whatever
 * lies in the rows of k and v of a masked key does not.
 *
 * Point: cases wide, shift_200, mask_row, nan_v, inf_v, nan_k, log_wide, naive_breaks.
 * Time: 6 hours.
 * Hint: a row of -INFINITY alone has m = -INFINITY, and -INFINITY + INFINITY is NaN.
 * Hint: (s_j - m) - log(l) keeps the digits that s_j - (m + log(l)) loses.
 * Hint: decide whether a key is masked before you touch its rows of k and v: bias_of(h, i, j) says it.
 * Right or wrong:  make exercise 2 EX=a2_safe */
#include "a1_naive.c"

/* Softmax of a row x (n) into y (n), which may be x.  Returns lse = m + log(l). */
static float safe_softmax(const float *x, float *y, size_t n)
{
    /* solution begin */
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    float from = m == -INFINITY ? 0 : m;
    for (size_t j = 0; j < n; j++) l += y[j] = expf(x[j] - from);
    for (size_t j = 0; j < n; j++) y[j] = l == 0 ? 0 : y[j] / l;
    return m + logf(l);
    /* skeleton
    return x == y ? (float)n : 0;
    solution end */
}

/* The logarithms of softmax; y may be x. */
static void log_softmax(const float *x, float *y, size_t n)
{
    /* solution begin */
    float m = -INFINITY, l = 0;
    for (size_t j = 0; j < n; j++) m = x[j] > m ? x[j] : m;
    if (m == -INFINITY) m = 0;
    for (size_t j = 0; j < n; j++) l += expf(x[j] - m);
    float log_l = l == 0 ? 0 : logf(l);
    for (size_t j = 0; j < n; j++) y[j] = (x[j] - m) - log_l;
    /* skeleton
    for (size_t j = 0; j < n; j++) y[j] = x[j] + 1;
    solution end */
}

/* One head: o and lse.   s (seqlen_k)  room for the scores of a query */
static void safe_attention(const struct head *h, float *s)
{
    /* solution begin */
    for (size_t i = 0; i < h->seqlen_q; i++) {
        float *o_i = o_row(h, i);
        for (size_t j = 0; j < h->seqlen_k; j++) {
            s[j] = bias_of(h, i, j);
            if (s[j] != -INFINITY) s[j] += h->scale * dot(q_row(h, i), k_row(h, j), h->head_dim);
        }
        h->lse[i] = safe_softmax(s, s, h->seqlen_k);
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
        for (size_t j = 0; j < h->seqlen_k; j++)
            for (size_t d = 0; d < h->head_dim_v && bias_of(h, i, j) != -INFINITY; d++)
                o_i[d] += s[j] * v_row(h, j)[d];
    }
    /* skeleton
    h->lse[0] = s[0] = 1;
    solution end */
}

/* The judge's call, where this file is not included by the next assignment. */
#if __INCLUDE_LEVEL__ == 0
void answer(const struct call *c)
{
    size_t n = (size_t)c->n[0];
    if (c->n[6] == 0) {
        float y[256];
        struct report r = softmax(c->x[0], y, n); /* of the first assignment */
        c->y[0][0] = (float)r.what;
        c->y[2][0] = safe_softmax(c->x[0], c->y[1], n);
    } else if (c->n[6] == 1) {
        log_softmax(c->x[0], c->y[0], n);
    } else {
        float s[256];
        struct head h = head_of(c);
        h.o = c->y[0], h.lse = c->y[1];
        safe_attention(&h, s);
    }
}
#endif
