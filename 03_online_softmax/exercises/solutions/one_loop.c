/* one_loop.c: exercise of stage 3, 20 points: an answer after every key.
 *
 *     m_new = max(m, s_j),   l_old = l * exp(m - m_new),   w = exp(s_j - m_new)
 *     l = l_old + w,         o = (l_old o + w v_j) / l
 *
 * The lesson divides once, at the end.  Here o is the attention over the keys so far, after each
 * of them: what one needs where keys arrive one at a time.
 * Task: fill attention_row().  No score may be stored.  score() is given.
 * May be assumed: nothing about the scores.  Query i sees the first visible(h, i) keys; of those
 * one whose score() is -INFINITY takes no part, whatever its row of v holds.  A query that sees
 * none gives o_i = 0 and lse = -INFINITY.  A visible NaN must reach the output.
#if TASK == 0
 * After each key that took part call arrived(h, i, j, o_i), which looks whether o_i is the answer for
 * the keys 0 to j.
#else
 * After each of the visible(h, i) keys, whether it took part or not, call arrived(h, i, j, o_i), which
 * looks whether o_i is the answer for the keys 0 to j.
#endif
 *
 * Half of the points: cases ascending, shift_200, low, nan_v, mask_row, nan_q.
 * Time: 75 minutes.
 * Hint: begin with the lesson's loop; which two lines change when o is always divided by l?
 * Hint: compute l before o, and keep l_old: both weights are divided by the new l.
 * Hint: where nothing was visible so far l is 0; the first key that is makes it 1.
 * Right or wrong:  make exercise 3 EX=one_loop */
#include "course/exercise.h"
#include "course/score.h"

static size_t n_arrived, n_wrong; /* of the row that is being computed */

/* Is o_i the attention of query i to the keys 0 to j?  Two loops, in double. */
static void arrived(const struct head *h, size_t i, size_t j, const float *o_i)
{
    double m = -INFINITY, l = 0, o = 0, large = 1, last = 0;
    for (size_t t = 0; t <= j; t++) m = fmax(m, score(h, i, t));
    for (size_t t = 0; t <= j; t++) {
        double w = score(h, i, t) == -INFINITY ? 0 : exp(score(h, i, t) - m);
        last = w > 0 ? v_row(h, t)[0] : 0;
        l += w, o += w * last;
        large = fmax(large, fabs(last));
    }
    n_arrived++;
    n_wrong += fabs(o_i[0] - (l == 0 ? 0 : o / l)) > 1e-3 * large;
}

/* >>> your part: functions, #include and #define may be added here */
/* One query against all its keys.   o_i (head_dim_v)   Returns lse. */
static float attention_row(const struct head *h, size_t i, float *o_i)
{
    /* solution begin */
    float m = -INFINITY, l = 0;
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    for (size_t j = 0; j < visible(h, i); j++) {
        float s = score(h, i, j);
        if (s == -INFINITY) {
#if TASK == 1
            arrived(h, i, j, o_i);
#endif
            continue;
        }
        float m_new = s > m ? s : m, w = expf(s - m_new);
        float l_old = l * expf(m - m_new);
        const float *v_j = v_row(h, j);
        l = l_old + w;
        for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = l_old / l * o_i[d] + w / l * v_j[d];
        m = m_new;
        arrived(h, i, j, o_i);
    }
    return m + logf(l);
    /* skeleton
    // Your code, with calls of score(h, i, j) and arrived(h, i, j, o_i).
    for (size_t d = 0; d < h->head_dim_v; d++) o_i[d] = 0;
    return 0;
    solution end */
}
/* <<< end of your part */

static void attention_head(const struct head *h)
{
    for (size_t i = 0; i < h->seqlen_q; i++) {
        size_t due = 0;
#if TASK == 0
        for (size_t j = 0; j < visible(h, i); j++) due += score(h, i, j) != -INFINITY;
#else
        due = visible(h, i);
#endif
        n_arrived = n_wrong = 0;
        h->lse[i] = attention_row(h, i, o_row(h, i));
        if (n_arrived != due || n_wrong) o_row(h, i)[0] = NAN; /* an answer is missing or wrong */
    }
}

PROGRAM(3, one_loop, "attention in one loop, divided after each key",
        ALL_PROBLEMS, .by_head = {{OP_ATTENTION, attention_head}})
