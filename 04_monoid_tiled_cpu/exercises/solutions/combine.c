/* combine.c: exercise of stage 4, 20 points: answers of parts, combined.
 *
 *     m = max_t m_t,   w_t = l_t exp(m_t - m)
 *     o_i = sum_t w_t o_t / sum_t w_t,   lse = m + log(sum_t w_t)
 *
 * The keys of a query are cut into parts (split-KV); each part, on whatever thread,
 * is attention by itself: o_t is already divided by its own l_t.
 * Task: fill combine().  Always in the order of the parts, so that the threads that
 * computed them do not change a bit.
 * May be assumed: h has head_dim_v and nothing else; at least one part.  A part may have seen no
 * key: m_t = -INFINITY, l_t = 0, o_t = 0.  If none has, o_i = 0 and lse = -INFINITY.  After a
 * score of NaN m_t and l_t are NaN, and all of o_i is; a NaN in a column of o_t makes that column NaN.
 *
 * Point: cases ascending, shift_200, low, mask_first, mask_row.
 * Time: 45 minutes.
 * Hint: two loops over the parts: the largest m first.
 * Hint: leave out a part with l_t == 0: with all parts masked exp(m_t - m) would be NaN.
 * Right or wrong:  make exercise 4 EX=combine */
#include "stage.h"
#include "course/exercise.h"

/* The answer of one part: o (head_dim_v) normalised, with its m and l. */
struct part { float m, l; float *o; };

/* o_i (head_dim_v) = the attention over the keys of all parts.  Returns lse. */
static float combine(const struct head *h, const struct part *parts, size_t n_parts, float *o_i)
{
    /* solution begin */
    float m = -INFINITY, l = 0;
    for (size_t t = 0; t < n_parts; t++) m = parts[t].m > m ? parts[t].m : m;
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    for (size_t t = 0; t < n_parts; t++) {
        if (parts[t].l == 0) continue;
        float weight = parts[t].m == m ? parts[t].l : parts[t].l * expf(parts[t].m - m);
        l += weight;
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] += weight * parts[t].o[d];
    }
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = l == 0 ? 0 : o_i[d] / l;
    return m + logf(l);
    /* skeleton
    return 0;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    struct head h = {.head_dim_v = (size_t)c->n[1]};
    size_t n = (size_t)c->n[0];
    struct part parts[n];
    float o[n * h.head_dim_v];
    for (size_t e = 0; e < n * h.head_dim_v; e++) o[e] = c->x[1][e];
    for (size_t t = 0; t < n; t++)
        parts[t] = (struct part){c->x[0][2 * t], c->x[0][2 * t + 1], o + t * h.head_dim_v};
    c->y[1][0] = combine(&h, parts, n, c->y[0]);
}
