/* combine.c: exercise of stage 4, 20 points: answers of parts, combined.
 *
 *     m = max_t m_t,   w_t = l_t exp(m_t - m)
 *     o_i = sum_t w_t o_t / sum_t w_t,   lse = m + log(sum_t w_t)
 *
 * The keys of a query are cut into PARTS parts (split-KV); each part, on whatever thread,
 * is attention by itself: o_t is already divided by its own l_t.
 * Task: fill combine().  Always in the order of the parts, so that the threads that
 * computed them do not change a bit.
 * May be assumed: h has head_dim_v and nothing else; at least one part.  A part may have seen no
 * key: m_t = -INFINITY, l_t = 0, o_t = 0.  If none has, o_i = 0 and lse = -INFINITY.  After a
 * score of NaN m_t and l_t are NaN, and all of o_i is; a NaN in a column of o_t makes that column NaN.
 *
 * Half of the points: cases ascending, shift_200, low, mask_first, mask_row.
 * Time: 45 minutes.
 * Hint: two loops over the parts: the largest m first.
 * Hint: leave out a part with l_t == 0: with all parts masked exp(m_t - m) would be NaN.
 * Right or wrong:  make exercise 4 EX=combine */
/* forms of the task
 *     w_t = l_t exp(m_t - m) | w_t = exp(m_t - m)
 *     sum_t w_t,             | sum_t w_t l_t,
 *     log(sum_t w_t)         | log(sum_t w_t l_t)
 *     is already divided by its own l_t. | is a sum, not divided by its l_t.
 *     normalised, with its m and l. | not divided by l, with its m and l.
 *     m ? parts[t].l : parts[t].l * expf( | m ? 1 : expf(
 *     l += weight;             | l += weight * parts[t].l; */
#include "course/exercise.h"
#include "course/attend.h"

enum { PARTS = 4 /* parts of the keys; one of 3, 4, 7 */ };

/* The answer of one part: o (head_dim_v) normalised, with its m and l. */
struct part { float m, l; float *o; };

/* >>> your part: functions, #include and #define may be added here */
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
    // Your code.
    return 0;
    solution end */
}
/* <<< end of your part */

/* One query, its parts one by one.  Returns lse.   scratch (PARTS, head_dim_v)  o of the parts */
static float attention_row(const struct head *h, size_t i, float *scratch)
{
    struct part parts[PARTS];
    size_t n = visible(h, i);
    for (size_t t = 0; t < PARTS; t++) {
        parts[t].o = scratch + t * h->head_dim_v;
        attend(h, i, n * t / PARTS, n * (t + 1) / PARTS, &parts[t].m, &parts[t].l, parts[t].o);
#if TASK == 0
        divide(h, parts[t].o, parts[t].l);
#endif
    }
    struct head size = {.head_dim_v = h->head_dim_v};
    return combine(&size, parts, PARTS, o_row(h, i));
}

static void attention_head(const struct head *h)
{
    float scratch[PARTS * h->head_dim_v];
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, scratch);
}

PROGRAM(4, combine, "the answers of the parts, combined",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}})
