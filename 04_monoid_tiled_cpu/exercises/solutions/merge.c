/* merge.c: exercise of stage 4, 15 points: the operation of the monoid.
 *
#if TASK == 0
 *     m = max(m1, m2),   f1 = exp(m1 - m),   f2 = exp(m2 - m),   l = f1 l1 + f2 l2
 *     o = (f1 l1 o1 + f2 l2 o2) / l      o1, o2 and o are already divided by their l
#else
 *     m = min(m1, m2),   f1 = exp(m - m1),   f2 = exp(m - m2),   l = f1 l1 + f2 l2
 *     o = f1 o1 + f2 o2                  m is minus the largest score
#endif
 *
 * Task: fill merge().  The chunks of a row are folded one by one and merged by it.
 * May be assumed: h has head_dim_v and nothing else; x and y are different elements.
 * Either or both may be the unit, since whole chunks can be masked: l = 0, o = 0, and m is
#if TASK == 0
 * -INFINITY.
#else
 * INFINITY.
#endif
 * After a score of NaN m and l are NaN, and stay so; a NaN in a column of o stays in that column.
 *
 * Half of the points: cases ascending, shift_200, low, mask_first, mask_row.
 * Time: 60 minutes.
 * Hint: what does merging with the unit give?  Where does infinity - infinity arise?
 * Hint: the unit is known by its m, or by l == 0.  Merging with it must not compute anything.
 * Hint: equal maxima have the factor 1, without an exponential.
 * Right or wrong:  make exercise 4 EX=merge */
#include "course/exercise.h"
#include "course/attend.h"

enum { CHUNK = 8 /* keys folded alone, then merged; one of 5, 8, 16 */ };

#if TASK == 0
/* What a set of keys stands for: m the largest of their scores, l = sum exp(s - m),
 * o (head_dim_v) = sum exp(s - m) v / l.  Without keys: m = -INFINITY, l = 0, o = 0. */
#else
/* What a set of keys stands for: m minus the largest of their scores, l = sum exp(s + m),
 * o (head_dim_v) = sum exp(s + m) v.  Without keys: m = INFINITY, l = 0, o = 0. */
#endif
struct aggregate { float m, l; float *o; };

/* >>> your part: functions, #include and #define may be added here */
/* x = x merged with y: the aggregate of the keys of both. */
static void merge(const struct head *h, struct aggregate *x, const struct aggregate *y)
{
    /* solution begin */
    if (y->l == 0) return; /* the unit */
#if TASK == 0
    float m_new = x->m > y->m ? x->m : y->m;
    float l_x = x->m == m_new ? x->l : x->l * expf(x->m - m_new);
    float l_y = y->m == m_new ? y->l : y->l * expf(y->m - m_new);
    x->l = l_x + l_y;
    for (size_t d = 0; d < h->head_dim_v; d++) x->o[d] = (x->o[d] * l_x + y->o[d] * l_y) / x->l;
#else
    float m_new = x->m < y->m ? x->m : y->m;
    float f_x = x->m == m_new ? 1 : expf(m_new - x->m);
    float f_y = y->m == m_new ? 1 : expf(m_new - y->m);
    x->l = x->l * f_x + y->l * f_y;
    for (size_t d = 0; d < h->head_dim_v; d++) x->o[d] = x->o[d] * f_x + y->o[d] * f_y;
#endif
    x->m = m_new;
    /* skeleton
    // Your code.
    solution end */
}
/* <<< end of your part */

/* x = the keys first .. end - 1 of query i. */
static void fold(const struct head *h, size_t i, size_t first, size_t end, struct aggregate *x)
{
    attend(h, i, first, end, &x->m, &x->l, x->o);
#if TASK == 0
    divide(h, x->o, x->l);
#else
    x->m = -x->m;
#endif
}

/* One query: its keys in chunks.  Returns lse.   scratch (head_dim_v): o of a chunk */
static float attention_row(const struct head *h, size_t i, float *scratch)
{
    struct head size = {.head_dim_v = h->head_dim_v};
    struct aggregate all = {.o = o_row(h, i)}, chunk = {.o = scratch};
    size_t n = visible(h, i);
    fold(h, i, 0, 0, &all);
    for (size_t first = 0; first < n; first += CHUNK) {
        fold(h, i, first, first + CHUNK < n ? first + CHUNK : n, &chunk);
        merge(&size, &all, &chunk);
    }
#if TASK == 0
    return all.m + logf(all.l);
#else
    divide(h, all.o, all.l);
    return logf(all.l) - all.m;
#endif
}

static void attention_head(const struct head *h)
{
    float scratch[h->head_dim_v];
    for (size_t i = 0; i < h->seqlen_q; i++) h->lse[i] = attention_row(h, i, scratch);
}

PROGRAM(4, merge, "chunks folded alone, then merged",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}})
