/* one_loop.c: exercise of stage 3, 20 points: an answer after every key.
 *
 *     m_new = max(m, s_j),   l_old = l * exp(m - m_new),   w = exp(s_j - m_new)
 *     l = l_old + w,         o = (l_old o + w v_j) / l
 *
 * The lesson divides once, at the end.  Here o is the attention over the keys so far, after each
 * of them: what one needs where keys arrive one at a time.
 * Task: fill attention_row().  next_key() gives one key after another, each once: there is nothing for
 * a second loop.  After each key that takes part call arrived(o), which compares o with the answer for
 * the keys so far; the next key comes only then.
 * May be assumed: nothing about the scores.  A key whose score is -INFINITY takes no part, whatever its
 * row of v holds.  Without any key o = 0 and lse = -INFINITY.  A NaN must reach the output.
 *
 * Point: cases ascending, shift_200, low, nan_v, mask_row, nan_q.
 * Time: 75 minutes.
 * Hint: begin with the lesson's loop; which two lines change when o is always divided by l?
 * Hint: compute l before o, and keep l_old: both weights are divided by the new l.
 * Hint: where nothing was visible so far l is 0; the first key that is makes it 1.
 * Right or wrong:  make exercise 3 EX=one_loop */
#include "course/exercise.h"

static size_t d_v; /* the length of o and of a row of v */

/* The next key: its score s and its values v (d_v).  Returns 0 after the last. */
static int next_key(float *s, float *v)
{
    float both[1 + d_v];
    if (!ask('k', 0, 0, NULL, 0, both, 1 + d_v)) return 0;
    *s = both[0];
    for (size_t d = 0; d < d_v; d++) v[d] = both[1 + d];
    return 1;
}

/* o (d_v) is the answer for the keys so far. */
static void arrived(const float *o) { ask('o', 0, 0, o, d_v, NULL, 0); }

/* One query against all its keys.   o (d_v)   Returns lse. */
static float attention_row(float *o)
{
    /* solution begin */
    float m = -INFINITY, l = 0, s, v[d_v];
    for (size_t d = 0; d < d_v; d++) o[d] = 0;
    while (next_key(&s, v)) {
        if (s == -INFINITY) continue;
        float m_new = s > m ? s : m, w = expf(s - m_new);
        float l_old = l * expf(m - m_new);
        l = l_old + w;
        for (size_t d = 0; d < d_v; d++) o[d] = l_old / l * o[d] + w / l * v[d];
        m = m_new;
        arrived(o);
    }
    return m + logf(l);
    /* skeleton
    // Your code, with calls of next_key(&s, v) and arrived(o).
    for (size_t d = 0; d < d_v; d++) o[d] = 0;
    return 0;
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    d_v = (size_t)c->n[0];
    c->y[1][0] = attention_row(c->y[0]);
}
